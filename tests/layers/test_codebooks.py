"""Layers of codes that hold the same codebooks."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.compression.model_copy import copy_model

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


@keras.saving.register_keras_serializable(package="test_codebooks")
class Pair(keras.Model):
    def __init__(self, first, second, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second = first, second

    def call(self, inputs):
        return self.first(inputs[0]) + self.second(inputs[1])

    def get_config(self):
        return {
            name: keras.saving.serialize_keras_object(getattr(self, name))
            for name in ("first", "second")
        }

    @classmethod
    def from_config(cls, config):
        return cls(
            **{
                name: keras.saving.deserialize_keras_object(layer)
                for name, layer in config.items()
            }
        )


def subclassed(composition="sum"):
    model = Pair(*layers(composition))
    model([FIRST, SECOND])
    return model


MODELS = pytest.mark.parametrize("make", [functional, nested, subclassed])


def values_of(model):
    """The different codebooks in a model."""
    found = {
        id(layer.codebooks): layer.codebooks
        for layer in model._flatten_layers()
        if isinstance(layer, kc.CodeEmbedding)
    }
    return list(found.values())


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
    subcodes = first.codes[:3]
    np.testing.assert_allclose(
        first.shared_codebooks(subcodes), first.embeddings[:3], atol=1e-6
    )


@MODELS
@pytest.mark.parametrize("composition", ["sum", "linear"])
def test_copies_share_as_the_model_does(make, composition, tmp_path):
    model = make(composition)
    expected = model([FIRST, SECOND])
    number = len(model.weights)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    copy, _ = copy_model(model, {})
    for same in (loaded, copy):
        assert len(values_of(same)) == 1 and len(same.weights) == number
        np.testing.assert_array_equal(same([FIRST, SECOND]), expected)
    config = json.dumps(model.get_config())
    made = [type(model).from_config(json.loads(config)) for _ in range(2)]
    if make is not subclassed:
        made += [keras.models.clone_model(model) for _ in range(2)]
    model.save_weights(tmp_path / "model.weights.h5")
    for same in made:
        same([FIRST, SECOND])
        assert len(values_of(same)) == 1 and len(same.weights) == number
        same.load_weights(tmp_path / "model.weights.h5")
        np.testing.assert_array_equal(same([FIRST, SECOND]), expected)
    # No copy shares with another one.
    variables = [values_of(x)[0] for x in (model, loaded, copy, *made)]
    assert len({id(variable) for variable in variables}) == len(variables)


def test_files_loaded_together_stay_apart(tmp_path):
    model = functional()
    model.save(tmp_path / "model.keras")

    class Ensemble(keras.layers.Layer):
        @classmethod
        def from_config(cls, config):
            return [keras.saving.load_model(path) for path in config]

    one, other = Ensemble.from_config([tmp_path / "model.keras"] * 2)
    assert values_of(one)[0] is not values_of(other)[0]


def test_a_layer_alone_has_codebooks_of_its_own():
    first, _ = layers("linear")
    again = kc.CodeEmbedding.from_config(first.get_config())
    again.build()
    assert again.codebooks is not first.codebooks
    assert again.composition is not first.composition


def test_training_and_optimizer(strategy):
    model = functional()
    model.compile("adam", "mse")
    start = model.get_weights()
    with strategy.scope():
        mirrored = functional()
        mirrored.compile("adam", "mse")
    mirrored.set_weights(start)
    targets = np.random.default_rng(0).normal(size=(8, 2))
    for each in (model, mirrored):
        each.fit(
            [FIRST, SECOND],
            targets,
            batch_size=4,
            epochs=2,
            shuffle=False,
            verbose=0,
        )
    for weight, same in zip(model.weights, mirrored.weights, strict=True):
        np.testing.assert_allclose(weight, same, 1e-4, 1e-5, weight.path)
    # Codebooks, kernel, bias: two slots each, and two numbers.
    assert len(model.optimizer.variables) == 2 + 2 * 3
    first, second = model.get_layer("first"), model.get_layer("second")
    assert first.codebooks is second.codebooks
    assert not np.array_equal(first.codebooks, start[1])


def test_freezing_one_freezes_all():
    first, second = layers()
    first.trainable = False
    assert not second.trainable_weights
    first.trainable = True
    assert first.trainable_weights and second.trainable_weights


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


def test_report_counts_codebooks_once():
    report = kc.reports.size_report(functional())
    assert report.embedding_bytes == (40 + 25) * 2 + 4 * 4 * 8 * 8


@pytest.mark.parametrize(
    "quantize, size",
    [(None, 4), ("float16", 2), ("int8", 1), ("int8_codebooks", 1)],
)
@pytest.mark.parametrize("pooled", [False, True])
def test_files_hold_codebooks_once(quantize, size, pooled, tmp_path):
    rng = np.random.default_rng(0)
    shape = 64, 16, 16
    shared = kc.Codebooks(*shape, values=rng.normal(size=(16, 16, 64)))
    # Of sizes for which different graphs are the fastest alone.
    inputs, outputs = [], []
    for rows, length in ((3000, 5), (70, None)):
        ids = keras.Input((length,), dtype="int32")
        vectors = kc.CodeEmbedding(
            rows,
            *shape,
            codes=rng.integers(16, size=(rows, 16)),
            codebooks=shared,
        )(ids)
        if pooled:
            vectors = keras.layers.GlobalAveragePooling1D()(vectors)
        if quantize is None:
            # It would be folded, if it were not for the other layer.
            vectors = keras.layers.Dense(60)(vectors)
        outputs.append(vectors)
        inputs.append(ids)
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
    "arguments, message",
    [
        ({"output_dim": 9}, "`codebooks` must have the layer's `output_dim`"),
        ({"num_codebooks": 5}, "`num_codebooks` and `codebook_size`"),
        ({"composition": "concat"}, "`composition` must be that of"),
        ({"dtype": "float16"}, "variable dtype"),
        ({"codebooks_initializer": "zeros"}, "`codebooks_initializer` must"),
        ({"codebooks_regularizer": "l2"}, "`codebooks_regularizer` must"),
        ({"codebooks_constraint": "non_neg"}, "`codebooks_constraint` must"),
    ],
)
def test_bad_arguments(arguments, message):
    names = "output_dim", "num_codebooks", "codebook_size"
    arguments = dict(zip(names, SHAPE, strict=True)) | arguments
    with pytest.raises(ValueError, match=message):
        kc.CodeEmbedding(10, **arguments, codebooks=kc.Codebooks(*SHAPE))


def test_bad_values_and_reset():
    with pytest.raises(ValueError, match="`values` must have shape"):
        kc.Codebooks(*SHAPE, values=np.zeros((4, 8, 7)))
    with pytest.raises(ValueError, match="`num_codebooks` must be"):
        kc.Codebooks(8, 0)
    with pytest.raises(ValueError, match="`reset_codebooks` must be called"):
        layers()[0].reset_codebooks()


def test_models_that_copy_models_while_they_are_made():
    class Twins(keras.Model):
        def __init__(self, base):
            super().__init__()
            self.models = [base, *map(keras.models.clone_model, [base] * 2)]

        @classmethod
        def from_config(cls, config):
            return cls(keras.Model.from_config(config))

    models = Twins.from_config(functional().get_config()).models
    first, *others = [values_of(model) for model in models]
    assert len(first) == 1
    assert all(len(one) == 1 and one[0] is not first[0] for one in others)
    assert others[0][0] is not others[1][0]
