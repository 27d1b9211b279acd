"""Methods whose layers have no tests of their sizes elsewhere."""

import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.methods import Anchors
from keras_compembed.methods import Codes
from keras_compembed.methods import Hashed
from keras_compembed.methods import Pruned
from keras_compembed.methods import QuotientRemainder
from keras_compembed.methods import TensorTrain
from keras_compembed.methods import Vocabulary

TABLE = np.random.default_rng(0).normal(size=(400, 12)).astype("float32")
METHODS = {
    method.name: method
    for method in (
        Codes(4, 8, effort=0.05),
        Codes(4, 8, rank=3, effort=0.05),
        Anchors(30, 2, iterations=1),
        Anchors(30, 2, 2, iterations=1),
        Anchors(30, 1.4, iterations=1),
        Hashed(60),
        Hashed(60, 3, num_importances=100),
        QuotientRemainder(20),
        QuotientRemainder(25, "add"),
        TensorTrain(8),
        TensorTrain(6, (25, 17), (3, 4)),
        Pruned(0.8),
        Pruned(0.8, bits=8),
        Vocabulary(150, 7),
        Vocabulary(150, 7, "nearest", scores=np.arange(400) % 7),
        Vocabulary(150, 7, rows=Pruned(0.5)),
    )
}
QUANTIZE = (None, "int8")


@pytest.fixture(scope="module", params=METHODS)
def method(request):
    return METHODS[request.param]


@pytest.fixture(scope="module")
def small(method):
    inputs = keras.Input((5,), dtype="int32")
    rows = keras.layers.Embedding(400, 12, name="words")
    outputs = keras.ops.tanh(rows(inputs))
    model = keras.Model(inputs, outputs)
    rows.embeddings.assign(TABLE)
    return kc.compression.compress_model(
        model, method=method, min_bytes=0, seed=0, verbose=0
    )


def test_layer_is_near_to_the_table(method, small):
    layer = small.get_layer("words")
    assert isinstance(layer, method.rows)
    rows = keras.ops.convert_to_numpy(layer.embeddings)
    assert ((rows - TABLE) ** 2).sum() < 0.9 * (TABLE**2).sum()


def test_new_layer_has_the_shapes_of_a_fitted_one(method):
    fit = method.start(seed=0)
    new = method.new_layer(method.rows, fit, 400, 12)
    fitted = fit.from_table(TABLE, sample_weight=np.arange(1, 401))
    shapes = [weight.shape for weight in fitted.weights]
    assert [weight.shape for weight in new.weights] == shapes
    new.set_weights(fitted.get_weights())
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(new.embeddings),
        keras.ops.convert_to_numpy(fitted.embeddings),
    )


@pytest.mark.parametrize("quantize", QUANTIZE)
def test_bytes_are_those_of_the_file(method, small, quantize, tmp_path):
    path = tmp_path / "model.tflite"
    kc.export.export_litert(small, path, quantize=quantize, verbose=0)
    sizes = kc.export.inspect_litert(path).constant_bytes
    wanted = method.litert_bytes(400, 12, quantize)
    # Constants of ops, and floats too few to be worth eight bits.
    assert abs(sizes - wanted) < 400 + (1200 if quantize else 0)


def test_names_and_arguments():
    assert Codes(4, 8, rank=3).name == "codes 4x8 rank 3"
    assert Anchors(30, 2).name == "30 anchors, 2 a row, 8 at most"
    assert Anchors(30, 20).name == "30 anchors, 20 a row, 28 at most"
    assert Anchors(30, 2, 2).name == "30 anchors, 2 a row"
    assert Hashed(60).name == "hashed 60 rows x 2"
    name = "hashed 60 rows x 3, 100 importances"
    assert Hashed(60, 3, num_importances=100).name == name
    assert QuotientRemainder(20).name == "quotient and remainder 20 multiply"
    assert TensorTrain(8).name == "tensor train rank 8"
    name = "tensor train rank 6 25x17 3x4"
    assert TensorTrain(6, (25, 17), (3, 4)).name == name
    assert "fewer rows" in Hashed(60).reason_against(59, 12)
    assert "fewer rows" in QuotientRemainder(60).reason_against(59, 12)
    assert "two parts" in QuotientRemainder(6, "concat").reason_against(9, 1)
    assert "do not fit" in TensorTrain(8, (5, 5)).reason_against(26, 12)
    for method in METHODS.values():
        assert method.reason_against(400, 12) is None
    with pytest.raises(ValueError, match="`num_rows` must be a positive"):
        Hashed(0)
    with pytest.raises(ValueError, match="`num_hashes` must be a positive"):
        Hashed(9, 0)
    with pytest.raises(ValueError, match="`num_importances` must be a"):
        Hashed(9, num_importances=0)
    with pytest.raises(ValueError, match="`num_remainders` must be a positive"):
        QuotientRemainder(0)
    with pytest.raises(ValueError, match="`operation` must be one of"):
        QuotientRemainder(9, "divide")
    for learner in (
        kc.learners.AdditiveQuantizer(4, 8),
        kc.learners.GumbelCodeLearner(4, 8),
        "additive",
    ):
        with pytest.raises(ValueError, match="`learner` must be a function"):
            Codes(4, 8, learner=learner)
    made = Codes(4, 8, learner=lambda *shape: kc.learners)
    with pytest.raises(ValueError, match="`learner` must be a learner, such"):
        made.start()
    with pytest.raises(ValueError, match="`rank` must be a positive"):
        TensorTrain(0)
    assert "narrower" in Codes(4, 8, rank=13).reason_against(400, 12)
    assert "fewer rows" in Anchors(30, 2).reason_against(29, 12)
    assert Anchors(30, 2).reason_against(30, 12) is None
    with pytest.raises(ValueError, match="`rank` must be None with"):
        Codes(4, 8, "linear", rank=3)
    with pytest.raises(ValueError, match="`rank` must be a positive"):
        Codes(4, 8, rank=0)
    with pytest.raises(ValueError, match="`effort` must be a positive"):
        Codes(4, 8, effort=0)
    assert Anchors(30, 0.25).name == "30 anchors, 0.25 a row, 1 at most"
    for mean in (0, 4):
        with pytest.raises(ValueError, match="`mean_nonzeros` must be a"):
            Anchors(3, mean)
    for most in (3, 10):
        with pytest.raises(ValueError, match="`max_nonzeros` must be an int"):
            Anchors(9, 4, most)
    with pytest.raises(ValueError, match="`num_anchors` must be a positive"):
        Anchors(0, 1)


def test_anchors_give_numbers_to_rows_that_count():
    weight = np.where(np.arange(400) < 100, 100.0, 1.0)
    errors, numbers = [], []
    for method in (Anchors(30, 2, 2), Anchors(30, 2)):
        layer = method.start(seed=0).from_table(TABLE, sample_weight=weight)
        rows = keras.ops.convert_to_numpy(layer.embeddings)
        errors.append(np.average(((rows - TABLE) ** 2).sum(1), weights=weight))
        numbers.append(layer.get_transform().row_lengths)
    assert numbers[1].sum() == numbers[0].sum() == layer.nnz == 800
    assert numbers[1].max() == 8
    assert numbers[1][:100].mean() > 3 * numbers[1][100:].mean()
    assert errors[1] < 0.6 * errors[0]


def test_anchors_of_rows_that_need_fewer_numbers_have_zeros():
    table = np.repeat(TABLE[:20], 20, axis=0)
    table[5:50] = 0
    layer = Anchors(30, 2).start(seed=0).from_table(table)
    assert layer.storage.num_nonzeros == 800 > layer.nnz
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(layer.embeddings), table, atol=1e-4
    )
