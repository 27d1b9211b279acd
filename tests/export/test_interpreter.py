"""`LiteRTModel`: what it takes, and what it refuses."""

import concurrent.futures
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from export_models import ROWS
from export_models import code_embedding
from export_models import error_of
from export_models import ids_input
from export_models import random_ids
from export_models import towers
from export_models import two_signatures
from export_models import write

from keras_compembed.export import LiteRTModel


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "model.tflite"
    ids, features = ids_input(name="ids"), keras.Input((2,), name="features")
    pooled = keras.layers.GlobalAveragePooling1D()(code_embedding()(ids))
    model = keras.Model([ids, features], [pooled, features + 1.0])
    write(model, path)
    return model, path


@pytest.fixture(scope="module")
def exported_single(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "model.tflite"
    model = towers([code_embedding()])
    write(model, path)
    return model, path


def test_batches(exported_single, monkeypatch):
    model, path = exported_single
    ids = random_ids(11, 4)
    got = LiteRTModel(path, num_threads=2).predict(ids, batch_size=4)
    np.testing.assert_allclose(got, model(ids), rtol=0, atol=1e-6)
    # Without the package of LiteRT, TensorFlow's interpreter will do.
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    assert error_of(path, model, ids) < 1e-6


def test_takes_what_keras_takes(exported):
    model, path = exported
    litert_model = LiteRTModel(path)
    # The order of the model, not of names.
    assert litert_model.input_names == ["ids", "features"]
    ids, features = random_ids(3, 4), np.arange(6.0).reshape(3, 2)
    expected = model([ids, features])
    for inputs in (
        [ids, features],
        (ids.astype("int64"), features.tolist()),
        [ids.astype("float32"), tf.constant(features)],
        [tf.cast(ids, "bfloat16"), tf.cast(features, "bfloat16")],
        {"features": features, "ids": ids, "more": "is left out, as in Keras"},
    ):
        for run in (litert_model, litert_model.predict):
            got = run(inputs)
            assert list(got) == litert_model.output_names
            for array, other in zip(got.values(), expected, strict=True):
                np.testing.assert_allclose(array, other, rtol=0, atol=1e-6)


def test_one_input_in_a_list_or_as_numbers(exported_single):
    model, path = exported_single
    litert_model = LiteRTModel(path)
    (name,) = litert_model.input_names
    ids = random_ids(2, 4)
    expected = litert_model(ids)
    # Keras takes an axis of size 1 at the end, or leaves it out.
    for inputs in ([ids], (ids,), {name: ids}, ids.tolist(), ids[..., None]):
        np.testing.assert_array_equal(litert_model(inputs), expected)
        np.testing.assert_array_equal(model(ids[..., None]), model(ids))
    with refused("inputs", "number=2"):
        litert_model(list(ids))


@pytest.mark.parametrize(
    ("ids", "received"),
    [
        ([[1, 2.5]], "2.5, of"),
        ([[1, 2**31]], "2147483648, of dtype int64"),
        ([["a", "b"]], "list of dtype <U1"),
        ([[1, 2], [3]], "list"),
        (np.zeros((2, 2, 2), "int32"), "shape (2, 2, 2)"),
        (np.zeros((2, 0), "int32"), "shape (2, 0)"),
    ],
)
def test_refuses_what_would_be_garbage(exported, ids, received):
    litert_model = LiteRTModel(exported[1])
    features = np.zeros((1, 2))
    for run, inputs in (
        (litert_model, [ids, features]),
        (litert_model.predict, {"ids": ids, "features": features}),
    ):
        with refused(received=received) as caught:
            run(inputs)
        assert "'ids'" in str(caught.value)


NUMBERS = {
    "int8": ([-128, 127, 3.0, True], [-129, 128, 127.5]),
    "int64": ([2**63 - 1, -(2**63)], [np.float32(2**63), np.uint64(2**63)]),
    "bool": ([True, 0, 1.0], [2, -1, 0.5]),
    "float32": (
        [True, 2**24, 0.1, np.float16(3), np.nan, np.inf],
        [2**24 + 1, -1e300],
    ),
}


def test_numbers_are_kept_or_refused(path):
    inputs = {
        dtype: keras.Input((), dtype=dtype, name=dtype) for dtype in NUMBERS
    }
    outputs = {
        dtype: keras.layers.Lambda(lambda x: tf.reshape(x, [-1, 1]))(tensor)
        for dtype, tensor in inputs.items()
    }
    write(keras.Model(inputs, outputs), path)
    litert_model = LiteRTModel(path)
    zeros = {dtype: [0] for dtype in NUMBERS}
    for dtype, (good, bad) in NUMBERS.items():
        for number in good:
            kept = litert_model({**zeros, dtype: [number]})[dtype]
            assert kept.dtype == dtype
            np.testing.assert_array_equal(
                kept, [[np.asarray(number).astype(dtype)]]
            )
        for number in bad:
            with refused() as caught:
                litert_model({**zeros, dtype: [number]})
            assert f"numbers that {dtype} holds" in str(caught.value)


def test_bad_inputs(exported, path):
    ids, features = random_ids(2, 4), np.zeros((2, 2))
    with pytest.raises(FileNotFoundError, match=path.name):
        LiteRTModel(path)
    with refused("signature", "other"):
        LiteRTModel(exported[1], signature="other")
    litert_model = LiteRTModel(exported[1])
    for inputs, received in (
        (ids, None),
        ((ids,), "number=1"),
        ({"ids": ids}, "ids"),
    ):
        with refused("inputs", received):
            litert_model(inputs)
    with refused(received="shape (2, 3)"):
        litert_model([ids, np.zeros((2, 3))])
    with pytest.raises(ValueError, match="as many"):
        litert_model.predict([ids, np.zeros((3, 2))])
    with refused("batch_size", 0):
        litert_model.predict([ids, features], batch_size=0)
    content = exported[1].read_bytes()
    path.write_bytes(content[:-10])
    with pytest.raises(ValueError):
        LiteRTModel(path)


def test_runs_after_an_error(exported_single):
    model, path = exported_single
    litert_model = LiteRTModel(path)
    for _ in range(2):
        with pytest.raises(RuntimeError) as error:
            litert_model([[0, ROWS]])
        # What it said of earlier ones is left out.
        assert str(error.value).count("out of bounds") == 1
    ids = random_ids(2, 4)
    np.testing.assert_allclose(litert_model(ids), model(ids), rtol=0, atol=1e-6)


def test_outputs_stay_and_threads_wait(exported_single):
    _, path = exported_single
    litert_model, other = LiteRTModel(path), LiteRTModel(path)
    batches = [random_ids(n, n) for n in range(1, 9)] * 4
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        got = list(pool.map(litert_model, batches))
    for ids, vectors in zip(batches, got, strict=True):
        np.testing.assert_array_equal(vectors, other(ids))


def test_fixed_batch(path):
    model = towers([code_embedding(), keras.layers.Flatten()], length=3)
    write(model, path, input_signature=tf.TensorSpec((4, 3), "int32"))
    litert_model = LiteRTModel(path)
    for rows in (1, 7):
        ids = random_ids(rows, 3)
        got = litert_model.predict(ids)
        np.testing.assert_allclose(got, model(ids), rtol=0, atol=1e-6)
        with refused(received=f"shape ({rows}, 3)"):
            litert_model(ids)


def test_several_signatures(path):
    path.write_bytes(two_signatures())
    with pytest.raises(ValueError, match="less.*more"):
        LiteRTModel(path)
    less = LiteRTModel(path, signature="less")
    more = LiteRTModel(path, signature="more")
    assert sorted(more.input_names) == ["x", "y"]
    assert less(3) == 2
    assert more({"x": 3, "y": 4}) == 7
