"""Layers of codes that hold the same codebooks."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc

SHAPE = 8, 4, 8
FIRST = np.arange(40).reshape(8, 5).astype("int32")
SECOND = FIRST % 25


def layers(composition="sum", **kwargs):
    rng = np.random.default_rng(0)
    shared = kc.Codebooks(*SHAPE, composition)
    shared.build()
    shared.values.assign(rng.normal(size=shared.values.shape))
    return [
        kc.CodeEmbedding(
            rows,
            *SHAPE,
            composition,
            codes=rng.integers(8, size=(rows, 4)),
            codebooks=shared,
            name=name,
            **kwargs,
        )
        for name, rows in (("first", 40), ("second", 25))
    ]


def functional(composition="sum"):
    first, second = layers(composition)
    inputs = [keras.Input((5,), dtype="int32") for _ in range(2)]
    vectors = keras.layers.Add()([first(inputs[0]), second(inputs[1])])
    pooled = keras.layers.GlobalAveragePooling1D()(vectors)
    return keras.Model(inputs, keras.layers.Dense(2)(pooled))


def nested(composition="sum"):
    towers = [
        keras.Sequential([keras.Input((5,), dtype="int32"), layer])
        for layer in layers(composition)
    ]
    inputs = [keras.Input((5,), dtype="int32") for _ in range(2)]
    vectors = [tower(each) for tower, each in zip(towers, inputs, strict=True)]
    return keras.Model(inputs, keras.layers.Add()(vectors))


def values_of(model):
    """The only codebooks in a model."""
    tables = [layer for tower in model.layers for layer in parts(tower)]
    assert len(tables) == 2
    assert tables[0].codebooks is tables[1].codebooks
    return tables[0].codebooks


def parts(layer):
    layers = getattr(layer, "layers", [layer])
    return [each for each in layers if isinstance(each, kc.CodeEmbedding)]


def test_vectors_and_gradients():
    """One variable, whose gradient is the sum of those of both layers."""
    first, second = layers()
    apart = [
        kc.CodeEmbedding(
            layer.input_dim,
            *SHAPE,
            codes=layer.codes,
            codebooks=first.codebooks,
        )
        for layer in (first, second)
    ]
    weight = np.random.default_rng(1).normal(size=(8, 5, 8))
    with tf.GradientTape(persistent=True) as tape:
        both = first(FIRST) * weight + second(SECOND) ** 2
        each = apart[0](FIRST) * weight + apart[1](SECOND) ** 2
    np.testing.assert_array_equal(both, each)
    gradient = tape.gradient(both, first.codebooks.value)
    expected = [tape.gradient(each, x.codebooks.value) for x in apart]
    # Sums of 80 float32 numbers of size about 1.
    np.testing.assert_allclose(gradient, sum(expected), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        first.shared_codebooks(first.codes[:3]),
        first.embeddings[:3],
        atol=1e-6,
    )


@pytest.mark.parametrize(
    ("make", "composition"), [(functional, "sum"), (nested, "linear")]
)
def test_copies_share_as_the_model_does(make, composition, tmp_path):
    model = make(composition)
    expected = model([FIRST, SECOND])
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = [keras.saving.load_model(path) for _ in range(2)]
    config = json.dumps(model.get_config())
    made = [
        keras.Model.from_config(json.loads(config)),
        keras.models.clone_model(model),
    ]
    model.save_weights(tmp_path / "model.weights.h5")
    for same in made:
        same.load_weights(tmp_path / "model.weights.h5")
    for same in (*loaded, *made):
        assert len(same.weights) == len(model.weights)
        np.testing.assert_array_equal(same([FIRST, SECOND]), expected)
    # No copy shares with another one.
    assert len({id(values_of(x)) for x in (model, *loaded, *made)}) == 5


def test_models_made_while_a_model_is_made_stay_apart(tmp_path):
    functional().save(tmp_path / "model.keras")

    class Ensemble(keras.Model):
        def __init__(self, base):
            super().__init__()
            loaded = keras.saving.load_model(tmp_path / "model.keras")
            self.models = [base, keras.models.clone_model(base), loaded]

        @classmethod
        def from_config(cls, config):
            return cls(keras.Model.from_config(config))

    models = Ensemble.from_config(functional().get_config()).models
    assert len({id(values_of(model)) for model in models}) == 3


def test_training():
    """Freezing one freezes all; the optimizer has codebooks once."""
    model = functional()
    first, second = model.get_layer("first"), model.get_layer("second")
    first.trainable = False
    assert not second.trainable_weights
    first.trainable = True
    model.compile("adam", "mse", run_eagerly=True)
    start = first.codebooks.numpy()
    model.fit([FIRST, SECOND], np.ones((8, 2)), verbose=0)
    # Codebooks, kernel, bias: two slots each, and two numbers.
    assert len(model.optimizer.variables) == 2 + 2 * 3
    assert first.codebooks is second.codebooks
    assert not np.array_equal(first.codebooks, start)
    report = kc.reports.size_report(model)
    assert report.embedding_bytes == (40 + 25) * 2 + 4 * 4 * 8 * 8


def test_following_codes_are_frozen():
    first, second = layers(learn_codes="follow")
    first.learn_codes.latents.assign_add(np.ones((40, 8)))
    assert first.recode()
    first.freeze_codes()
    assert first.learn_codes is None and second.learn_codes is not None
    assert first.codebooks is second.codebooks


def test_both_tables_of_a_reversible_layer():
    shared = kc.Codebooks(*SHAPE)
    layer = kc.ReversibleCodeEmbedding(
        40, *SHAPE, codebooks=shared, tie_weights=False
    )
    layer.build()
    assert layer.reverse_embedding.codebooks is layer.codebooks
    assert len(layer.weights) == 3


@pytest.mark.parametrize(
    ("quantize", "size"), [(None, 4), ("int8_codebooks", 1)]
)
def test_files_hold_codebooks_once(quantize, size, tmp_path):
    rng = np.random.default_rng(0)
    shape = 64, 16, 16
    shared = kc.Codebooks(*shape, values=rng.normal(size=(16, 16, 64)))
    # Of sizes for which different graphs are the fastest alone.
    inputs, outputs = [], []
    for rows, length in ((3000, 5), (70, None)):
        inputs.append(keras.Input((length,), dtype="int32"))
        vectors = kc.CodeEmbedding(
            rows,
            *shape,
            codes=rng.integers(16, size=(rows, 16)),
            codebooks=shared,
        )(inputs[-1])
        if quantize is None:
            # It would be folded, if it were not for the other layer.
            vectors = keras.layers.Dense(60)(vectors)
        outputs.append(vectors)
    path = tmp_path / "model.tflite"
    kc.export.export_litert(
        keras.Model(inputs, outputs), path, quantize=quantize, verbose=0
    )
    constants = kc.export.inspect_litert(path).constants
    large = [x.bytes for x in constants if x.bytes >= size * 16 * 16 * 64]
    codes = [x for x in constants if x.shape == (3000, 8)]
    large = [x for x in large if x != codes[0].bytes]
    assert large == [size * 16 * 16 * 64]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("output_dim", 9),
        ("num_codebooks", 5),
        ("composition", "concat"),
        ("dtype", "float16"),
        ("codebooks_initializer", "zeros"),
        ("codebooks_regularizer", "l2"),
        ("codebooks_constraint", "non_neg"),
    ],
)
def test_bad_arguments(name, value):
    names = "output_dim", "num_codebooks", "codebook_size"
    arguments = dict(zip(names, SHAPE, strict=True)) | {name: value}
    with refused(None if name == "dtype" else name):
        kc.CodeEmbedding(10, **arguments, codebooks=kc.Codebooks(*SHAPE))


def test_bad_values_and_reset():
    with refused("values", (4, 8, 7)):
        kc.Codebooks(*SHAPE, values=np.zeros((4, 8, 7)))
    with refused("num_codebooks", 0):
        kc.Codebooks(8, 0)
    with refused("reset_codebooks"):
        layers()[0].reset_codebooks()
