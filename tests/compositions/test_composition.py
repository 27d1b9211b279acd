import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.compositions.concat_composition import merge_columns
from keras_compembed.compositions.concat_composition import split_columns
from keras_compembed.compositions.registry import get_composition
from keras_compembed.compositions.registry import is_same_composition
from keras_compembed.compositions.scaled_composition import ScaledComposition

M, K, WIDTH = 5, 6, 7
NAMES = ["sum", "concat", "linear", "lstm"]


@keras.saving.register_keras_serializable(package="test")
class MaxComposition(kc.compositions.Composition):
    """The largest of the codewords, column by column, times a weight."""

    def build(self, input_shape):
        self.gain = self.add_weight(
            shape=(self.output_dim,), initializer="ones", name="gain"
        )

    def call(self, codewords):
        return keras.ops.max(codewords, axis=1) * self.gain


def make(identifier, seed=0):
    """A composition with random weights, codebooks for it, and codes."""
    composition = get_composition(identifier, M, K, WIDTH)
    rng = np.random.default_rng(seed)
    composition.set_weights(
        [rng.normal(size=w.shape) for w in composition.weights]
    )
    codebooks = rng.normal(size=composition.codebooks_shape)
    codes = rng.integers(K, size=(11, M))
    return composition, codebooks, codes


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference(name, codebooks, codes, weights):
    """Vectors of codes, id by id, in float64."""
    rows = []
    for code in codes:
        if name == "concat":
            # The first 7 - 5 parts are one wider than the rest.
            edges = np.array([0, 2, 4, 5, 6, 7])
            parts = [
                codebooks[subcode, edges[m] : edges[m + 1]]
                for m, subcode in enumerate(code)
            ]
            rows.append(np.concatenate(parts))
            continue
        codewords = [codebooks[m, subcode] for m, subcode in enumerate(code)]
        if name == "lstm":
            rows.append(reference_lstm(codewords, *weights))
            continue
        total = sum(codewords)
        rows.append(total @ weights[0] if name == "linear" else total)
    return np.array(rows)


def reference_lstm(codewords, kernel, recurrent_kernel, bias, projection=None):
    output = state = np.zeros(kernel.shape[0])
    total = 0
    for codeword in codewords:
        gates = codeword @ kernel + output @ recurrent_kernel + bias
        write, forget, cell, read = np.split(gates, 4)
        state = sigmoid(forget) * state + sigmoid(write) * np.tanh(cell)
        output = sigmoid(read) * np.tanh(state)
        total = total + output
    return total if projection is None else total @ projection


def identifiers():
    return [
        *NAMES,
        kc.compositions.LinearComposition(code_dim=3),
        kc.compositions.LSTMComposition(code_dim=3),
    ]


def name_of(identifier):
    if isinstance(identifier, str):
        return identifier
    kind = type(identifier).__name__.removesuffix("Composition").lower()
    return kind


@pytest.mark.parametrize("identifier", identifiers(), ids=name_of)
def test_vectors_equal_the_reference(identifier):
    composition, codebooks, codes = make(identifier)
    expected = reference(
        name_of(identifier), codebooks, codes, composition.get_weights()
    )
    tensor = tf.constant(codebooks, "float32")
    subcodes = tf.constant(codes, "int32")
    vectors = composition.compose_codes(tensor, subcodes)
    # Some tens of float32 operations on numbers of size up to 10.
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-4)
    picks = tf.one_hot(subcodes, K)
    picked = composition.compose_picks(tensor, picks)
    np.testing.assert_allclose(picked, expected, rtol=1e-4, atol=1e-4)
    codewords = composition.codewords(tensor)
    generic = kc.compositions.Composition.compose_codes(
        composition, tensor, subcodes
    )
    assert codewords.shape[:2] == (M, K)
    np.testing.assert_allclose(generic, expected, rtol=1e-4, atol=1e-4)
    decoded = composition.decode(codes, codebooks)
    assert decoded.dtype == np.float32
    np.testing.assert_allclose(decoded, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("identifier", identifiers(), ids=name_of)
def test_gradients_of_codes_and_of_picks_are_the_same(identifier):
    composition, codebooks, codes = make(identifier)
    codebooks = tf.constant(codebooks, "float32")
    # The same id twice counts twice.
    subcodes = tf.constant(np.concatenate([codes, codes[:3]]), "int32")
    upstream = np.random.default_rng(1).normal(size=(14, WIDTH))
    gradients = []
    for compose, chosen in (
        (composition.compose_codes, subcodes),
        (composition.compose_picks, tf.one_hot(subcodes, K)),
    ):
        with tf.GradientTape() as tape:
            tape.watch(codebooks)
            loss = tf.reduce_sum(compose(codebooks, chosen) * upstream)
        sources = [codebooks, *[w.value for w in composition.weights]]
        gradients.append(
            [tf.convert_to_tensor(g) for g in tape.gradient(loss, sources)]
        )
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("identifier", ["sum", "concat", "linear"])
def test_folded_codebooks_are_a_plain_sum(identifier):
    composition, codebooks, codes = make(identifier)
    folded = composition.fold(tf.constant(codebooks, "float32")).numpy()
    assert folded.shape == (M, K, WIDTH)
    expected = composition.decode(codes, codebooks)
    np.testing.assert_allclose(
        reference("sum", folded, codes, ()), expected, rtol=1e-4, atol=1e-4
    )


def test_lstm_does_not_fold():
    composition, codebooks, _ = make("lstm")
    assert composition.fold(codebooks) is None


def test_soft_picks_mix_codewords():
    for identifier in ("sum", "concat", "linear"):
        composition, codebooks, codes = make(identifier)
        codebooks = tf.constant(codebooks, "float32")
        other = np.roll(codes, 1, axis=0)
        mixed = 0.25 * tf.one_hot(codes, K) + 0.75 * tf.one_hot(other, K)
        expected = 0.25 * composition.decode(codes, codebooks)
        expected += 0.75 * composition.decode(other, codebooks)
        np.testing.assert_allclose(
            composition.compose_picks(codebooks, mixed), expected, atol=1e-4
        )


@pytest.mark.parametrize("width, parts", [(7, 5), (10, 5), (5, 5), (300, 32)])
def test_columns_are_split_as_evenly_as_can_be(width, parts):
    matrix = np.arange(3.0 * width).reshape(3, width)
    split = split_columns(tf.constant(matrix), parts)
    assert split.shape == (3, parts, -(-width // parts))
    np.testing.assert_array_equal(merge_columns(split, width), matrix)
    for part, expected in enumerate(np.array_split(matrix, parts, axis=1)):
        got = split[:, part, : expected.shape[1]]
        np.testing.assert_array_equal(got, expected)
        assert not np.any(split[:, part, expected.shape[1] :])


def test_parameters_of_the_paper():
    # Table 1: 2M numbers become 0.1M and 0.37M.
    sizes = {
        name: get_composition(name, 16, 16, 200).count_values()
        for name in ("linear", "lstm")
    }
    assert sizes == {"linear": 91_200, "lstm": 372_000}


def test_a_composition_of_ones_own(tmp_path):
    composition, codebooks, codes = make(MaxComposition())
    gain = composition.get_weights()[0]
    expected = [
        np.max([codebooks[m, k] for m, k in enumerate(code)], axis=0) * gain
        for code in codes
    ]
    np.testing.assert_allclose(
        composition.decode(codes, codebooks), expected, atol=1e-5
    )
    layer = kc.CodeEmbedding(
        11, WIDTH, M, K, composition=composition, codes=codes
    )
    layer.codebooks.assign(codebooks)
    layer.composition.set_weights([gain])
    model = keras.Sequential([keras.Input((2,), dtype="int32"), layer])
    np.testing.assert_allclose(layer.embeddings, expected, atol=1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.layers[0].embeddings, layer.embeddings)
    export = kc.export.export_litert(model, tmp_path / "m.tflite", verbose=0)
    assert export.max_error < 1e-5


def test_each_layer_has_a_composition_of_its_own():
    template = kc.compositions.LSTMComposition(code_dim=3)
    one, two = (
        kc.CodeEmbedding(10, width, M, K, composition=template)
        for width in (4, 6)
    )
    assert one.composition is not two.composition
    assert one.composition.output_dim == 4
    assert two.composition.projection.shape == (3, 6)
    assert template.output_dim is None


def test_same_composition():
    assert is_same_composition("lstm", kc.compositions.LSTMComposition())
    assert is_same_composition(MaxComposition(), MaxComposition())
    assert not is_same_composition("sum", "linear")
    assert not is_same_composition(
        "lstm", kc.compositions.LSTMComposition(code_dim=3)
    )
    assert not is_same_composition("sum", MaxComposition())


@pytest.mark.parametrize(
    "identifier, message",
    [
        ("mean", "`composition` must be 'sum', 'concat', 'linear', 'lstm'"),
        (None, "Received: composition=None"),
        (keras.layers.Dense(3), "or a `Composition`"),
    ],
)
def test_unknown_compositions(identifier, message):
    with pytest.raises(ValueError, match=message):
        get_composition(identifier, M, K, WIDTH)


@keras.saving.register_keras_serializable(package="test")
class WrongComposition(kc.compositions.Composition):
    def __init__(self, result, **kwargs):
        super().__init__(**kwargs)
        self.result = result

    def call(self, codewords):
        return {
            "codewords": codewords,
            "narrow": codewords[:, 0, :-1],
            "mixed": keras.ops.sum(codewords, axis=0),
            "number": 3.0,
        }[self.result]

    def get_config(self):
        return super().get_config() | {"result": self.result}


@pytest.mark.parametrize(
    "result, received",
    [
        ("codewords", r"\(2, 5, 7\)"),
        ("narrow", r"\(2, 6\)"),
        ("mixed", r"\(5, 7\)"),
        ("number", "float"),
    ],
)
def test_vectors_of_a_wrong_shape(result, received):
    composition = WrongComposition(result)
    message = f"output_dim.*Received: {received} from WrongComposition"
    with pytest.raises(ValueError, match=message):
        kc.CodeEmbedding(9, WIDTH, M, K, composition=composition)
    learner = kc.learners.KDCodeLearner(
        M, K, composition=composition, verbose=0
    )
    with pytest.raises(ValueError, match=message):
        learner.train(np.ones((9, WIDTH)))
    assert learner.codes is None


def test_scaled_composition():
    inner, codebooks, codes = make("linear")
    composition = get_composition(ScaledComposition("linear"), M, K, WIDTH)
    offset = np.arange(7.0)
    composition.composition.kernel.assign(inner.kernel)
    composition.offset.assign(offset)
    composition.scale.assign(20.0)
    expected = 20 * (inner.decode(codes, codebooks) + offset)
    np.testing.assert_allclose(
        composition.decode(codes, codebooks), expected, rtol=1e-5, atol=1e-3
    )
    codebooks = tf.constant(codebooks, "float32")
    close = {"rtol": 1e-4, "atol": 1e-2}
    picked = composition.compose_picks(codebooks, tf.one_hot(codes, K))
    np.testing.assert_allclose(picked, expected, **close)
    folded = composition.fold(codebooks).numpy()
    np.testing.assert_allclose(
        reference("sum", folded, codes, ()), expected, **close
    )
    assert composition.is_linear and not ScaledComposition("lstm").is_linear
    assert is_same_composition("linear", composition)
    assert not is_same_composition("lstm", composition)
    again = ScaledComposition.from_config(composition.get_config())
    assert again.get_config() == composition.get_config()


def test_bad_widths():
    with pytest.raises(ValueError, match="`code_dim` must be a positive"):
        kc.compositions.LinearComposition(code_dim=0)
    with pytest.raises(ValueError, match="`num_codebooks` must be at most"):
        get_composition("concat", 8, K, WIDTH)
