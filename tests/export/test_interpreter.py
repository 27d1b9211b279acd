import sys

import keras
import numpy as np
import pytest
from export_models import code_embedding
from export_models import ids_input
from export_models import random_ids

from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.interpreter import LiteRTModel


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "model.tflite"
    ids, features = ids_input(name="ids"), keras.Input((2,), name="features")
    pooled = keras.layers.GlobalAveragePooling1D()(code_embedding()(ids))
    model = keras.Model([ids, features], [pooled, features + 1.0])
    export_litert(model, path, verbose=0)
    return model, path


@pytest.fixture(scope="module")
def exported_single(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "model.tflite"
    model = keras.Sequential([ids_input(), code_embedding()])
    export_litert(model, path, verbose=0)
    return model, path


def test_predict_in_batches(exported_single):
    model, path = exported_single
    ids = random_ids(11, 4)
    got = LiteRTModel(path, num_threads=2).predict(ids, batch_size=4)
    np.testing.assert_allclose(got, model(ids), rtol=0, atol=1e-6)


def test_predict_several_outputs(exported):
    model, path = exported
    litert_model = LiteRTModel(path)
    inputs = {"ids": random_ids(5, 4), "features": np.zeros((5, 2))}
    got = litert_model.predict(inputs, batch_size=2)
    assert list(got) == litert_model.output_names
    expected = dict(
        zip(model.output_names, model(list(inputs.values())), strict=True)
    )
    assert set(expected) == set(got)
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=0, atol=1e-6)


def test_falls_back_on_tensorflow(exported_single, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    model, path = exported_single
    ids = random_ids(2, 4)
    got = LiteRTModel(path)(ids)
    np.testing.assert_allclose(got, model(ids), rtol=0, atol=1e-6)


def test_bad_inputs(exported, tmp_path):
    _, path = exported
    with pytest.raises(FileNotFoundError, match="no LiteRT file"):
        LiteRTModel(tmp_path / "missing.tflite")
    litert_model = LiteRTModel(path)
    with pytest.raises(ValueError, match="must be a dict with the keys"):
        litert_model(random_ids(2, 4))
    with pytest.raises(ValueError, match="`inputs` must have the keys"):
        litert_model({"ids": random_ids(2, 4)})
    with pytest.raises(ValueError, match="as many in each array"):
        litert_model.predict(
            {"ids": random_ids(2, 4), "features": np.zeros((3, 2))}
        )
    with pytest.raises(ValueError, match="`batch_size` must be"):
        litert_model.predict(
            {"ids": random_ids(2, 4), "features": np.zeros((2, 2))},
            batch_size=0,
        )


def test_broken_file(exported, tmp_path):
    _, path = exported
    broken = tmp_path / "broken.tflite"
    content = path.read_bytes()
    for part in (b"", content[:100], content[:-10]):
        broken.write_bytes(part)
        with pytest.raises(ValueError):
            LiteRTModel(broken)
