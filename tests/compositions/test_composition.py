import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc
from keras_compembed.compositions import Composition
from keras_compembed.compositions.composition import LinearComposition
from keras_compembed.compositions.composition import LSTMComposition
from keras_compembed.compositions.composition import ScaledComposition

M, K, WIDTH = 5, 6, 7


@keras.saving.register_keras_serializable(package="test")
class MaxComposition(Composition):
    """The largest of the codewords, column by column, times a weight."""

    def build(self, input_shape):
        self.gain = self.add_weight(
            shape=(self.output_dim,), initializer="ones", name="gain"
        )

    def call(self, codewords):
        return keras.ops.max(codewords, axis=1) * self.gain


def composition_of(identifier, num_codebooks=M, width=WIDTH):
    """The composition of a layer, with weights of its own."""
    return kc.CodeEmbedding(
        9, width, num_codebooks, K, composition=identifier
    ).composition


def make(identifier, *shape):
    """A composition with random weights, codebooks for it, and codes."""
    composition = composition_of(identifier, *shape)
    rng = np.random.default_rng(0)
    composition.set_weights(
        [rng.normal(size=w.shape) for w in composition.weights]
    )
    codebooks = rng.normal(size=composition.codebooks_shape)
    codes = rng.integers(K, size=(11, composition.num_codebooks))
    return composition, codebooks, codes


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference(name, codebooks, codes, weights):
    """Vectors of codes, id by id, in float64."""
    rows = []
    for code in codes:
        if name == "concat":
            # The first parts are one wider than the rest.
            columns = np.array_split(np.arange(codebooks.shape[1]), len(code))
            parts = zip(code, columns, strict=True)
            rows.append(np.concatenate([codebooks[k, own] for k, own in parts]))
            continue
        codewords = [codebooks[m, subcode] for m, subcode in enumerate(code)]
        if name == "lstm":
            rows.append(reference_lstm(codewords, *weights))
            continue
        if name == "product":
            rows.append(np.prod(codewords, axis=0))
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


CASES = {
    "sum": ("sum",),
    "product": ("product",),
    # As wide as there are parts, a whole number of times, and one column more.
    "concat-5": ("concat", 5, 5),
    "concat-8": ("concat", 4, 8),
    "concat-9": ("concat", 4, 9),
    "linear-narrow": (LinearComposition(code_dim=3),),
    "lstm": ("lstm",),
    "lstm-narrow": (LSTMComposition(code_dim=3),),
}
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.mark.parametrize("case", CASES)
def test_vectors_and_gradients_equal_the_reference(case):
    composition, codebooks, codes = make(*CASES[case])
    name = case.partition("-")[0]
    weights = composition.get_weights()
    expected = reference(name, codebooks, codes, weights)
    tensor = tf.constant(codebooks, "float32")
    subcodes = tf.constant(codes, "int32")
    upstream = np.random.default_rng(1).normal(size=expected.shape)
    generic = Composition.compose_codes(composition, tensor, subcodes)
    # Some tens of float32 operations on numbers of size up to 10.
    np.testing.assert_allclose(generic, expected, **CLOSE)
    codewords = composition.codewords(tensor)
    assert codewords.shape[:2] == (composition.num_codebooks, K)
    decoded = composition.decode(codes, codebooks)
    assert decoded.dtype == np.float32
    np.testing.assert_allclose(decoded, expected, **CLOSE)
    num_codebooks, width = composition.num_codebooks, composition.output_dim
    layer = kc.CodeEmbedding(
        11, width, num_codebooks, K, CASES[case][0], codes=codes
    )
    layer.build()
    layer.codebooks.assign(codebooks)
    layer.composition.set_weights(weights)
    np.testing.assert_allclose(layer.embeddings, expected, **CLOSE)
    gradients = []
    for compose, chosen in (
        (composition.compose_codes, subcodes),
        (composition.compose_picks, tf.one_hot(subcodes, K)),
    ):
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            vectors = compose(tensor, chosen)
            loss = tf.reduce_sum(vectors * upstream)
        np.testing.assert_allclose(vectors, expected, **CLOSE)
        sources = [tensor, *[w.value for w in composition.weights]]
        gradients.append(
            [tf.convert_to_tensor(g) for g in tape.gradient(loss, sources)]
        )
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, **CLOSE)
    if name in ("lstm", "product"):
        assert composition.fold(tensor) is None
        return
    # Of a linear one, codebooks of a plain sum, and any weights of codewords.
    folded = composition.fold(tensor).numpy()
    assert folded.shape == (composition.num_codebooks, K, expected.shape[1])
    np.testing.assert_allclose(
        reference("sum", folded, codes, ()), expected, **CLOSE
    )
    other = np.roll(codes, 1, axis=0)
    mixed = 0.25 * tf.one_hot(codes, K) + 0.75 * tf.one_hot(other, K)
    np.testing.assert_allclose(
        composition.compose_picks(tensor, mixed),
        0.25 * expected + 0.75 * np.roll(expected, 1, axis=0),
        **CLOSE,
    )


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


def test_each_layer_has_a_composition_of_its_own():
    template = LSTMComposition(code_dim=3)
    one, two = (composition_of(template, M, width) for width in (4, 6))
    assert one is not two
    assert one.output_dim == 4
    assert two.projection.shape == (3, 6)
    assert template.output_dim is None


def test_scaled_composition():
    inner, codebooks, codes = make("linear")
    composition = composition_of(ScaledComposition("linear"))
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
    # Offsets count as often as codewords of the first codebook.
    counts = tf.reduce_sum(tf.one_hot(codes, K), axis=0, keepdims=True)
    np.testing.assert_allclose(
        composition.sum_counts(codebooks, counts),
        expected.sum(axis=0, keepdims=True),
        **close,
    )
    folded = composition.fold(codebooks).numpy()
    np.testing.assert_allclose(
        reference("sum", folded, codes, ()), expected, **close
    )
    assert composition.is_linear and not ScaledComposition("lstm").is_linear
    again = ScaledComposition.from_config(composition.get_config())
    assert again.get_config() == composition.get_config()


@keras.saving.register_keras_serializable(package="test")
class WrongComposition(Composition):
    def call(self, codewords):
        return codewords[:, 0, :-1]


def test_vectors_of_a_wrong_shape():
    with refused("call", "(2, 6)"):
        composition_of(WrongComposition())


def test_bad_arguments():
    for identifier in ("mean", keras.layers.Dense(3)):
        with refused("composition", identifier):
            composition_of(identifier)
    with refused("code_dim", 0):
        LinearComposition(code_dim=0)
    with refused("num_codebooks", 8):
        composition_of("concat", 8)
    learner = kc.learners.KDCodeLearner(2, 3, "linear", verbose=0)
    with refused("composition"):
        kc.CodeEmbedding.from_table(
            np.ones((9, WIDTH)), 2, 3, composition="sum", learner=learner
        )
    assert learner.codes is None
