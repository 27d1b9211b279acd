"""`compress_model` on what is nearly a `keras.layers.Embedding`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.compression.replaced_table import read_tables

layers = keras.layers
V, D = 400, 16
IDS = np.random.default_rng(0).integers(1, V, size=(24, 6)).astype("int32")
IDS[:, 4:] *= np.arange(24)[:, None] % 2


class Block(layers.Layer):
    """Attention that looks back, as in a language model; it uses the mask."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.attention = layers.MultiHeadAttention(2, D // 2, dtype=policy)
        self.norm = layers.LayerNormalization(dtype=policy)
        self.supports_masking = True

    def build(self, shape):
        self.attention.build(shape, shape)
        self.norm.build(shape)

    def call(self, inputs):
        mixed = self.attention(inputs, inputs, use_causal_mask=True)
        return self.norm(inputs + mixed)


def language_model(cls=layers.ReversibleEmbedding, dtype=None, **kwargs):
    """Ids to logits of the ids that come next, by one layer called twice."""
    embedding = cls(
        V,
        D,
        embeddings_initializer=keras.initializers.RandomNormal(seed=1),
        name="words",
        dtype=dtype,
        **kwargs,
    )
    ids = keras.Input((None,), dtype="int32")
    hidden = Block(dtype=dtype)(embedding(ids))
    return keras.Model(ids, embedding(hidden, reverse=True))


def compress(model, **kwargs):
    return kc.compression.compress_model(
        model,
        num_codebooks=4,
        codebook_size=8,
        **{"min_bytes": 1000, "seed": 0, "verbose": 0, **kwargs},
    )


def put_back(model, small):
    """The original's answer with the tables of the small model in it."""
    words, coded = model.get_layer("words"), small.get_layer("words")
    tables = [np.asarray(coded.embeddings)]
    if not coded.tie_weights:
        tables.append(np.asarray(coded.reverse_embedding.embeddings).T)
    before = words.get_weights()
    words.set_weights(tables)
    outputs = model(IDS)
    words.set_weights(before)
    return outputs


@pytest.mark.parametrize(
    "kwargs",
    [
        {"mask_zero": True},
        {"tie_weights": False, "logit_soft_cap": 2.0, "mask_zero": True},
        {"dtype": "mixed_bfloat16", "reverse_dtype": "float32"},
        {"dtype": "mixed_bfloat16", "tie_weights": False},
    ],
    ids=str,
)
def test_language_model(kwargs, tmp_path, capsys):
    model = language_model(**kwargs)
    small = compress(model, verbose=1)
    said = capsys.readouterr().out
    layer = small.get_layer("words")
    assert isinstance(layer, kc.ReversibleCodeEmbedding)
    expected = put_back(model, small)
    got = small(IDS)
    assert got.dtype == expected.dtype
    # Eight bits of a number, taken a few times.
    half = "dtype" in kwargs
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(
        np.asarray(got, "float32"),
        np.asarray(expected, "float32"),
        atol=(2.0**-5 if half else 1e-5) * scale,
    )
    report = kc.reports.size_report(small)
    tables = 1 if layer.tie_weights else 2
    assert len(report.embeddings) == tables
    assert report.table_bytes == tables * 4 * V * D
    assert report.embedding_bytes == sum(
        weight.numpy().nbytes for weight in layer.weights
    )
    assert f"{V} x {D} {'table' if tables == 1 else 'tables, two'}, " in said

    small.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    before = layer.get_weights()
    small.fit(IDS[:, :-1], IDS[:, 1:], verbose=0)
    for weight, old in zip(layer.weights, before, strict=True):
        changed = not np.array_equal(weight.numpy(), old)
        assert changed == weight.trainable, weight.path
    small.save(tmp_path / "small.keras")
    loaded = keras.saving.load_model(
        tmp_path / "small.keras", custom_objects={"Block": Block}
    )
    np.testing.assert_array_equal(
        np.asarray(loaded(IDS), "float32"), np.asarray(small(IDS), "float32")
    )
    kc.export.export_litert(
        small,
        tmp_path / "small.tflite",
        # Attention in half precision is written down for known sizes only.
        input_signature=tf.TensorSpec((2, 6), "int32"),
        verbose=0,
    )


def with_lora(model):
    layer = model.get_layer("words")
    layer.enable_lora(2)
    rng = np.random.default_rng(2)
    for weight in (layer.lora_embeddings_a, layer.lora_embeddings_b):
        weight.assign(0.3 * rng.normal(size=weight.shape))


def in_numbers_of(*args, **kwargs):
    return lambda model: model.get_layer("words").quantize(*args, **kwargs)


def has_blocks():
    return hasattr(keras.quantizers, "Int4QuantizationConfig")


def in_blocks_of_int4(model):
    config = keras.quantizers.Int4QuantizationConfig(block_size=4)
    model.get_layer("words").quantize("int4", config=config)


CHANGES = {
    "lora": (with_lora, "updates of LoRA merged"),
    "int8": (in_numbers_of("int8"), "int8 numbers turned back"),
    "int4": (in_numbers_of("int4"), "int4 numbers turned back"),
    "blocks": (in_blocks_of_int4, "int4 numbers turned back"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "kwargs",
    [
        None,
        {"logit_soft_cap": 3.0},
        {"logit_soft_cap": 0.5, "tie_weights": False},
    ],
    ids=str,
)
def test_changed_by_keras(change, kwargs, capsys):
    """LoRA and numbers of few bits, in look-ups and in reverse calls."""
    change, said = CHANGES[change]
    if change is in_blocks_of_int4 and not has_blocks():
        pytest.skip("this Keras has no Int4QuantizationConfig")
    if kwargs is None:
        embedding = layers.Embedding(V, D, name="words")
        model = keras.Sequential(
            [keras.Input((None,), dtype="int32"), embedding]
        )
    else:
        model = language_model(**kwargs)
    change(model)
    layer = model.get_layer("words")
    first, *second = read_tables(layer)
    np.testing.assert_allclose(layer(np.arange(V)), first, atol=1e-6)
    if kwargs is not None:
        hidden = 0.1 * np.random.default_rng(3).normal(size=(9, D))
        products = hidden @ (second or [first])[0].T
        cap = layer.logit_soft_cap
        # Keras rounds the vectors to 8 bits as well.
        np.testing.assert_allclose(
            layer(hidden.astype("float32"), reverse=True),
            cap * np.tanh(products / cap),
            atol=np.abs(hidden).max() / 254 * np.abs(first).sum(1).max(),
        )
    small = compress(model, verbose=1)
    coded = small.get_layer("words")
    assert f"words: {said}" in capsys.readouterr().out
    assert coded.dtype_policy == keras.DTypePolicy("float32")
    tables = [first, *second]
    parts = [coded, getattr(coded, "reverse_embedding", None)]
    for table, part in zip(tables, parts, strict=False):
        error = np.square(part.embeddings - table).sum()
        assert error < 0.8 * np.square(table - table.mean(0)).sum()


class Embedding(layers.Embedding):
    """Adds a method, and an argument."""

    def __init__(self, input_dim=V, output_dim=D, unit=1.0, **kwargs):
        super().__init__(input_dim, output_dim, **kwargs)
        self.unit = unit

    def __repr__(self):
        return f"<Embedding in {self.unit}>"

    def longest(self):
        return keras.ops.max(keras.ops.norm(self.embeddings, axis=1))

    def get_config(self):
        return {**super().get_config(), "unit": self.unit}


class Reversible(layers.ReversibleEmbedding):
    """Nothing else, as that of keras-hub."""


class Scaled(layers.Embedding):
    def call(self, inputs):
        return 2.0 * super().call(inputs)


class ScaledCodes(kc.CodeEmbedding):
    def call(self, inputs, **kwargs):
        return 2.0 * super().call(inputs, **kwargs)


class MasksOdd(layers.ReversibleEmbedding):
    def compute_mask(self, inputs, mask=None):
        return keras.ops.equal(inputs % 2, 0)


def test_subclass_that_adds_methods(capsys):
    model = keras.Sequential(
        [keras.Input((None,), dtype="int32"), Embedding(name="words")]
    )
    small = compress(model, verbose=1)
    assert type(small.get_layer("words")) is kc.CodeEmbedding
    said = "words: a CodeEmbedding without `longest` of the class Embedding\n"
    assert said in capsys.readouterr().out


def test_plain_subclass_of_reversible_embedding(capsys):
    small = compress(language_model(Reversible), verbose=1)
    assert type(small.get_layer("words")) is kc.ReversibleCodeEmbedding
    assert "without" not in capsys.readouterr().out


def test_subclasses_that_compute_something_else():
    inputs = keras.Input((None,), dtype="int32")
    scaled = Scaled(V, D, name="words")
    model = keras.Model(inputs, scaled(inputs))
    message = "Scaled does more than an Embedding, by `call`: write the same"
    with pytest.raises(ValueError, match=message):
        compress(model)
    with pytest.raises(
        ValueError, match="MasksOdd does more .* `compute_mask`"
    ):
        compress(language_model(MasksOdd))

    # What the message says.
    layer = ScaledCodes.from_table(
        scaled.embeddings, num_codebooks=8, verbose=0, name="words"
    )
    small = keras.Model(inputs, layer(inputs))
    rows = np.asarray(model(IDS))
    error = np.square(small(IDS) - rows).sum()
    assert error < 0.3 * np.square(rows).sum()


def test_reversible_embedding_of_keras_hub():
    keras_hub = pytest.importorskip("keras_hub")
    model = language_model(keras_hub.layers.ReversibleEmbedding, mask_zero=True)
    layer = compress(model).get_layer("words")
    assert type(layer) is kc.ReversibleCodeEmbedding and layer.mask_zero
