import concurrent.futures
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import code_embedding
from export_models import ids_input
from export_models import random_ids
from export_models import two_signatures

from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.file_input import FileInput
from keras_compembed.export.interpreter import LiteRTModel
from keras_compembed.export.litert_file import LiteRTTensor


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


def test_takes_what_keras_takes(exported):
    model, path = exported
    litert_model = LiteRTModel(path)
    # The order of the model, not of names.
    assert litert_model.input_names == ["ids", "features"]
    assert litert_model.output_names == model.output_names
    ids, features = random_ids(3, 4), np.arange(6.0).reshape(3, 2)
    for inputs in (
        [ids, features],
        (ids.astype("int64"), features.tolist()),
        [ids.astype("float32"), tf.constant(features)],
        [tf.cast(ids, "bfloat16"), tf.cast(features, "bfloat16")],
        {"features": features, "ids": ids, "more": "is left out, as in Keras"},
    ):
        expected = model([ids, features])
        for run in (litert_model, litert_model.predict):
            got = run(inputs)
            assert list(got) == model.output_names
            for array, other in zip(got.values(), expected, strict=True):
                np.testing.assert_allclose(array, other, rtol=0, atol=1e-6)


def test_one_input_in_a_list_or_as_numbers(exported_single):
    model, path = exported_single
    litert_model = LiteRTModel(path)
    (name,) = litert_model.input_names
    ids = random_ids(2, 4)
    expected = litert_model(ids)
    np.testing.assert_allclose(expected, model(ids), rtol=0, atol=1e-6)
    # Keras takes an axis of size 1 at the end, or leaves it out.
    for inputs in ([ids], (ids,), {name: ids}, ids.tolist(), ids[..., None]):
        np.testing.assert_array_equal(litert_model(inputs), expected)
        np.testing.assert_array_equal(model(ids[..., None]), model(ids))
    with pytest.raises(ValueError, match="Received: a list of 2"):
        litert_model(list(ids))


@pytest.fixture(scope="module")
def columns(tmp_path_factory):
    """A model of two columns, as tables of data have them."""
    path = tmp_path_factory.mktemp("export") / "model.tflite"
    number = keras.Input((1,), name="number")
    flag = keras.Input((), dtype="bool", name="flag")
    outputs = [number * 2, keras.ops.logical_not(flag)]
    model = keras.Model([number, flag], outputs)
    export_litert(model, path, verbose=0)
    return model, path


def test_columns(columns):
    model, path = columns
    litert_model = LiteRTModel(path)
    for number in (np.arange(3.0), np.arange(3)[:, None]):
        for flag in (np.array([True, False, True]), np.array([[1], [0], [1]])):
            got = litert_model.predict([number, flag], batch_size=2)
            expected = model([number, flag])
            for array, other in zip(got.values(), expected, strict=True):
                np.testing.assert_array_equal(array, other)
                assert array.dtype == other.numpy().dtype


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[1, 2.5]], r"'ids' must hold numbers that int32 holds.*2\.5, of"),
        ([[1, np.nan]], "Received: nan"),
        ([[1, -np.inf]], "Received: -inf"),
        ([[1, 2**31]], "Received: 2147483648, of dtype int64"),
        ([[0.0, 2.0**31]], "Received: 2147483648.0"),
        (np.array([[2**63]], "uint64"), "Received: 9223372036854775808"),
        ([["a", "b"]], "must hold numbers.*list of dtype <U1"),
        ([[1, None]], "list of dtype object"),
        ([[1, 2], [3]], "must be an array. Received: list"),
        (3, r"must have shape \(None, None\). Received: shape \(\)"),
        ([1, 2], r"Received: shape \(2,\)"),
        (np.zeros((2, 2, 2), "int32"), r"Received: shape \(2, 2, 2\)"),
        (np.zeros((0, 2), "int32"), "must have no empty axis"),
        (np.zeros((2, 0), "int32"), "must have no empty axis"),
    ],
)
def test_refuses_what_would_be_garbage(exported, ids, message):
    litert_model = LiteRTModel(exported[1])
    features = np.zeros((1, 2))
    with pytest.raises(ValueError, match=message):
        litert_model([ids, features])
    with pytest.raises(ValueError, match=message):
        litert_model.predict({"ids": ids, "features": features})


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        ("uint8", [0, 255, 3.0, True], [-1, 256, 0.5]),
        ("int8", [-128, 127], [-129, 128, 127.5]),
        ("int64", [2**63 - 1, -(2**63)], [np.float32(2**63), np.uint64(2**63)]),
        ("uint64", [2**64 - 1, 0], [np.float64(2**64), -1]),
        ("bool", [True, 0, 1.0], [2, -1, 0.5]),
        ("float32", [True, 2**24, 0.1, np.float16(3)], [2**24 + 1, -1e300]),
    ],
)
def test_numbers_are_kept(dtype, good, bad):
    fit = FileInput(LiteRTTensor("x", dtype, (None,))).fit
    for number in good:
        (kept,) = fit([number])
        assert kept.dtype == dtype
        assert kept == np.asarray(number).astype(dtype)
    for number in bad:
        with pytest.raises(ValueError, match=f"numbers that {dtype} holds"):
            fit([number])


def test_quantized_inputs_tell_their_step():
    tensor = LiteRTTensor("x", "int8", (None,), scale=0.5, zero_point=-3)
    with pytest.raises(ValueError, match=r"holds, x / 0.5 - 3 rounded. Rec"):
        FileInput(tensor).fit([0.25])


def test_numbers_that_floats_do_not_hold(exported):
    litert_model = LiteRTModel(exported[1])
    ids = random_ids(1, 4)
    for features in ([[0, 2**24 + 1]], [[0, 1e39]]):
        with pytest.raises(ValueError, match="numbers that float32 holds"):
            litert_model([ids, features])
    got = litert_model([ids, [[np.nan, np.inf]]])
    assert np.isnan(got[litert_model.output_names[1]][0, 0])


def test_bad_inputs(exported, tmp_path):
    _, path = exported
    with pytest.raises(FileNotFoundError, match="no LiteRT file"):
        LiteRTModel(tmp_path / "missing.tflite")
    with pytest.raises(ValueError, match="`signature` must be one of"):
        LiteRTModel(path, signature="other")
    litert_model = LiteRTModel(path)
    with pytest.raises(ValueError, match="`inputs` must have an array for ea"):
        litert_model(random_ids(2, 4))
    with pytest.raises(ValueError, match="Received: a tuple of 1"):
        litert_model((random_ids(2, 4),))
    with pytest.raises(ValueError, match="`inputs` must have the keys"):
        litert_model({"ids": random_ids(2, 4)})
    with pytest.raises(ValueError, match=r"shape \(None, 2\).*shape \(2, 3\)"):
        litert_model([random_ids(2, 4), np.zeros((2, 3))])
    with pytest.raises(ValueError, match="as many in each array"):
        litert_model.predict([random_ids(2, 4), np.zeros((3, 2))])
    with pytest.raises(ValueError, match="`batch_size` must be"):
        litert_model.predict([random_ids(2, 4), np.zeros((2, 2))], batch_size=0)


def test_runs_after_an_error(exported_single):
    model, path = exported_single
    litert_model = LiteRTModel(path)
    for bad in (ROWS, -1):
        with pytest.raises(RuntimeError) as error:
            litert_model([[0, bad]])
        # What it said of earlier ones is left out.
        assert str(error.value).count("out of bounds") == 1
    ids = random_ids(2, 4)
    np.testing.assert_allclose(litert_model(ids), model(ids), rtol=0, atol=1e-6)


def test_outputs_stay_and_threads_wait(exported_single):
    model, path = exported_single
    litert_model = LiteRTModel(path)
    other = LiteRTModel(path)
    batches = [random_ids(n, n) for n in range(1, 9)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        got = list(pool.map(litert_model, batches * 4))
    for ids, vectors in zip(batches * 4, got, strict=True):
        np.testing.assert_array_equal(vectors, other(ids))


@pytest.mark.parametrize("batch", [1, 4])
def test_fixed_batch(tmp_path, batch):
    path = tmp_path / "model.tflite"
    model = keras.Sequential(
        [ids_input(3), code_embedding(), keras.layers.Flatten()]
    )
    signature = tf.TensorSpec((batch, 3), "int32")
    export_litert(model, path, input_signature=signature, verbose=0)
    litert_model = LiteRTModel(path)
    for rows in (1, 4, 7):
        ids = random_ids(rows, 3)
        np.testing.assert_allclose(
            litert_model.predict(ids), model(ids), rtol=0, atol=1e-6
        )
        if rows != batch:
            with pytest.raises(ValueError, match=rf"shape \({batch}, 3\)"):
                litert_model(ids)


def test_outputs_without_rows(tmp_path):
    path = tmp_path / "model.tflite"
    ids = keras.Input((3,), name="ids")
    model = keras.Model(ids, [ids * 2, keras.ops.sum(ids, axis=0)])
    export_litert(model, path, verbose=0)
    litert_model = LiteRTModel(path)
    with pytest.raises(ValueError, match="row of outputs for each row of in"):
        litert_model.predict(np.zeros((2, 3)))
    assert len(litert_model(np.zeros((2, 3)))) == 2


def test_several_signatures(tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(two_signatures())
    with pytest.raises(ValueError, match=r"one of \['less', 'more'\]"):
        LiteRTModel(path)
    less = LiteRTModel(path, signature="less")
    more = LiteRTModel(path, signature="more")
    assert sorted(more.input_names) == ["x", "y"]
    assert less(3) == 2
    assert more({"x": 3, "y": 4}) == 7


def test_broken_file(exported, tmp_path):
    _, path = exported
    broken = tmp_path / "broken.tflite"
    content = path.read_bytes()
    for part in (b"", content[:100], content[:-10]):
        broken.write_bytes(part)
        with pytest.raises(ValueError):
            LiteRTModel(broken)
