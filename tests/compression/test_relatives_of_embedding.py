"""`compress_model` on what is nearly a `keras.layers.Embedding`."""

import keras
import numpy as np
import pytest
from compressing import check_same
from compressing import codes
from compressing import compress
from compressing import run

import keras_compembed as kc
from keras_compembed.learners.code_learner import CodeLearner

layers = keras.layers
V, D, KEPT = 400, 16, 30
IDS = np.random.default_rng(0).integers(1, V, size=(24, 6)).astype("int32")
IDS[:, 4:] *= np.arange(24)[:, None] % 2


class FirstRows(CodeLearner):
    """Its codewords are the first rows of the table."""

    num_codebooks, codebook_size = 1, KEPT

    def train(self, table, sample_weight=None):
        codes = np.minimum(np.arange(len(table)), KEPT - 1)
        self.codes = codes[:, None].astype("uint8")
        self.codebooks = np.asarray(table, "float32")[None, :KEPT]
        return self

    def encode(self, table):
        raise NotImplementedError


def language_model(dtype=None, **kwargs):
    """Ids to logits of the ids that come next, by one layer called twice."""
    embedding = layers.ReversibleEmbedding(
        V,
        D,
        embeddings_initializer=keras.initializers.RandomNormal(seed=1),
        name="words",
        dtype=dtype,
        **kwargs,
    )
    ids = keras.Input((None,), dtype="int32")
    hidden = embedding(ids)
    # Attention that looks back, and uses the mask.
    attention = layers.MultiHeadAttention(2, D // 2, dtype=dtype)
    mixed = attention(hidden, hidden, use_causal_mask=True)
    hidden = layers.Add(dtype=dtype)([hidden, mixed])
    hidden = layers.LayerNormalization(dtype=dtype)(hidden)
    return keras.Model(ids, embedding(hidden, reverse=True))


def look_up(*embeddings):
    """A model that adds up what Embedding layers give."""
    ids = keras.Input((None,), dtype="int32")
    outputs = [layer(ids) for layer in embeddings]
    return keras.Model(ids, sum(outputs[1:], outputs[0]))


def test_language_model_in_half_precision(tmp_path, capsys):
    model = language_model(dtype="mixed_bfloat16", reverse_dtype="float32")
    small = compress(model, verbose=1)
    assert f"{V} x {D} table, " in capsys.readouterr().out
    layer = small.get_layer("words")
    assert isinstance(layer, kc.CodeEmbedding)
    model.get_layer("words").set_weights([np.asarray(layer.embeddings)])
    # Eight bits of a number, taken a few times.
    check_same(run(small, IDS), run(model, IDS), 2.0**-5)
    small.compile("sgd", "mse", run_eagerly=True)
    before = layer.get_weights()
    small.fit(IDS, np.ones((24, 6, V)), verbose=0)
    for weight, old in zip(layer.weights, before, strict=True):
        changed = not np.array_equal(weight.numpy(), old)
        assert changed == weight.trainable, weight.path
    kc.export_litert(small, tmp_path / "small.tflite", verbose=0, quantize=None)


def with_lora(layer):
    layer.enable_lora(2)
    rng = np.random.default_rng(2)
    for weight in (layer.lora_embeddings_a, layer.lora_embeddings_b):
        weight.assign(0.3 * rng.normal(size=weight.shape))


TIED = {"logit_soft_cap": 3.0}
UNTIED = {"logit_soft_cap": 0.5, "tie_weights": False}


@pytest.mark.parametrize(
    "change, kwargs",
    [("int8", None), ("lora", TIED), ("int4", UNTIED)],
)
def test_changed_by_keras(change, kwargs, capsys):
    """LoRA and numbers of few bits, in look-ups and in reverse calls."""
    if kwargs is None:
        model = look_up(layers.Embedding(V, D, name="words"))
    else:
        model = language_model(**kwargs)
    layer = model.get_layer("words")
    if change == "lora":
        with_lora(layer)
    else:
        layer.quantize(change)
    first = codes(1, KEPT, learner=lambda *shape: FirstRows())
    small = compress(model, first, verbose=1)
    coded = small.get_layer("words")
    said = "LoRA updates merged" if change == "lora" else f"{change} values"
    assert said in capsys.readouterr().out
    assert coded.dtype_policy == keras.DTypePolicy("float32")
    assert coded.trainable_weights
    rows = np.asarray(layer(np.arange(KEPT)))
    np.testing.assert_allclose(coded(np.arange(KEPT)), rows, atol=1e-6)
    if kwargs is None:
        return
    hidden = np.random.default_rng(3).normal(size=(9, D)).astype("float32")
    hidden *= 0.1
    other = coded if coded.reverse.tie_weights else coded.reverse_embedding
    sums = np.abs(other.embeddings).sum(axis=1).max()
    np.testing.assert_allclose(
        coded(hidden, reverse=True)[:, :KEPT],
        layer(hidden, reverse=True)[:, :KEPT],
        # Keras rounds the vectors to 8 bits as well.
        atol=1e-6 + np.abs(hidden).max() / 254 * sums,
    )


# Subclasses.


class Named(layers.Embedding):
    def norms(self):
        return keras.ops.norm(self.embeddings, axis=-1)


class Masked(layers.Embedding):
    """Adds masking and nothing else."""

    def compute_mask(self, inputs, mask=None):
        return keras.ops.not_equal(inputs, 0)


class Doubled(layers.Embedding):
    def call(self, inputs):
        return 2 * super().call(inputs)


def test_subclasses(capsys):
    model = look_up(
        Named(V, D, name="words"),
        Masked(V, D, name="masked"),
        Doubled(V, D, name="special"),
    )
    small = compress(model, verbose=1)
    assert type(small.get_layer("words")) is kc.CodeEmbedding
    assert small.get_layer("masked").mask_zero
    assert type(small.get_layer("special")) is Doubled
    said = capsys.readouterr().out
    assert "by a CodeEmbedding without methods `norms`" in said
    assert "class Doubled changes `call` of Embedding" in said
    with pytest.raises(ValueError, match="Doubled .* `call`"):
        compress(look_up(Doubled(V, D)))


@pytest.mark.parametrize(
    "method", [kc.methods.Codes(4, 8), kc.methods.Quantized(4)]
)
def test_tied_classes_are_scored_by_the_new_layer(method):
    table = keras.layers.Embedding(300, 8, name="words")
    ids = keras.Input((5,), dtype="int32")
    hidden = keras.layers.GlobalAveragePooling1D()(table(ids))
    head = kc.CANESoftmax(300, class_embedding=table)
    model = keras.Model(ids, head(hidden))
    model.compile("sgd", kc.CANELoss(), run_eagerly=True)
    small = kc.compress_model(model, method, ["words"], seed=0, verbose=0)
    x = np.random.default_rng(0).integers(300, size=(64, 5))
    vectors = np.asarray(small.get_layer("words").embeddings)
    scores = vectors[x].mean(axis=1) @ vectors.T
    np.testing.assert_array_equal(
        kc.top_k_model(small, 1).predict(x, verbose=0)["ids"][:, 0],
        scores.argmax(axis=1),
    )
    small.fit(x, x[:, 0], verbose=0)
