"""Checks that every layer of the package passes."""

import json

import keras
import numpy as np
import tensorflow as tf

BITS = (8, 16, 32, 64)


def check_layer(
    layer_class,
    init_kwargs,
    inputs,
    expected_output_shape,
    expected_trainable_weights,
    expected_non_trainable_weights,
    tmp_path,
    statistics=(),
):
    """Runs a layer through everything Keras asks of one.

    Args:
        layer_class: The class.
        init_kwargs: Dict of constructor arguments, JSON-serializable.
        inputs: Array with a batch axis.
        expected_output_shape: Tuple, of the output for `inputs`.
        expected_trainable_weights: Integer.
        expected_non_trainable_weights: Integer.
        tmp_path: Folder for files.
        statistics: Names of weights that training changes, though they have
            no gradients.

    Returns:
        The trained model that holds the layer.
    """
    layer = layer_class(**init_kwargs)
    check_config(layer)
    outputs = layer(inputs)
    assert outputs.shape == expected_output_shape
    assert outputs.dtype == layer.compute_dtype
    assert len(layer.trainable_weights) == expected_trainable_weights
    assert len(layer.non_trainable_weights) == expected_non_trainable_weights
    assert layer.compute_output_shape(inputs.shape) == expected_output_shape

    spec = keras.KerasTensor((None, *inputs.shape[1:]), dtype=inputs.dtype.name)
    symbolic = layer(spec)
    assert symbolic.shape == (None, *expected_output_shape[1:])
    assert symbolic.dtype == layer.compute_dtype

    check_functions(layer, inputs)
    check_dtype_policies(layer_class, init_kwargs, inputs)
    for style in (_sequential, _functional, Subclassed):
        model = style(layer_class(**init_kwargs), inputs)
        check_training(model, inputs, statistics)
        if style is not Subclassed:
            check_files(model, inputs, tmp_path)
    return model


def check_config(layer):
    """The configuration survives JSON and makes the same layer."""
    config = layer.get_config()
    again = type(layer).from_config(json.loads(json.dumps(config)))
    assert again.get_config() == config
    restored = keras.saving.deserialize_keras_object(
        json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    )
    assert type(restored) is type(layer)


def check_functions(layer, inputs):
    """Graphs, compiled by XLA or not, give what eager calls give."""
    eager = np.asarray(layer(inputs), dtype="float32")
    for jit_compile in (False, True):
        function = tf.function(layer, jit_compile=jit_compile)
        graph = np.asarray(function(tf.constant(inputs)), dtype="float32")
        np.testing.assert_allclose(graph, eager, rtol=1e-5, atol=1e-6)


def check_dtype_policies(layer_class, init_kwargs, inputs):
    """Half precision computes what float32 does, rounded."""
    exact = layer_class(**init_kwargs)
    exact(inputs)
    for policy in ("float32", "mixed_float16", "mixed_bfloat16"):
        layer = layer_class(**{**init_kwargs, "dtype": policy})
        outputs = layer(inputs)
        assert outputs.dtype == keras.DTypePolicy(policy).compute_dtype
        layer.set_weights(exact.get_weights())
        epsilon = 2.0**-8 if policy == "mixed_bfloat16" else 2.0**-11
        np.testing.assert_allclose(
            np.asarray(layer(inputs), dtype="float32"),
            np.asarray(exact(inputs)),
            rtol=epsilon,
            atol=1e-6,
        )


def check_training(model, inputs, statistics=()):
    """`fit` changes every trainable weight, statistics, and no other."""
    model.compile("adam", "mse")
    targets = np.ones(model(inputs).shape, dtype="float32")
    before = [w.numpy() for w in model.weights]
    model.fit(inputs, targets, verbose=0)
    for weight, old in zip(model.weights, before, strict=True):
        changed = not np.array_equal(weight.numpy(), old)
        expected = weight.trainable or weight.name in statistics
        assert changed == expected, weight.path


def check_files(model, inputs, tmp_path):
    """`.keras`, `.weights.h5` and SavedModel files give the same outputs."""
    outputs = np.asarray(model(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(np.asarray(loaded(inputs)), outputs)
    for weight, same in zip(model.weights, loaded.weights, strict=True):
        assert weight.dtype == same.dtype
        np.testing.assert_array_equal(weight.numpy(), same.numpy())

    model.save_weights(tmp_path / "model.weights.h5")
    again = model.from_config(model.get_config())
    again(inputs)
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(np.asarray(again(inputs)), outputs)

    model.export(tmp_path / "saved_model", verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "saved_model"))
    np.testing.assert_allclose(
        exported.serve(inputs), outputs, rtol=1e-5, atol=1e-6
    )


def check_id_types(layer):
    """A look-up takes what `keras.layers.Embedding` takes.

    Args:
        layer: A layer with `input_dim` above 6 that turns ids into vectors.
    """
    ids = np.array([[1, 0, 3], [6, 5, 3]])
    expected = np.asarray(layer(ids), dtype="float32")

    def check(inputs, rows=expected):
        outputs = layer(inputs)
        assert outputs.shape == rows.shape
        assert outputs.dtype == layer.compute_dtype
        np.testing.assert_allclose(
            np.asarray(outputs, "float32"), rows, rtol=1e-5, atol=1e-6
        )

    integers = [f"{sign}int{bits}" for sign in ("", "u") for bits in BITS]
    for dtype in [*integers, "float16", "float32", "float64"]:
        check(tf.constant(ids, dtype))
    check(tf.constant(3), expected[0, 2])
    for shape in ((0, 7), (3, 0), (2, 0, 3)):
        check(np.zeros(shape, "int32"), np.zeros((*shape, layer.output_dim)))
    check(tf.sparse.from_dense(ids))

    unknown = tf.function(layer, input_signature=[tf.TensorSpec(None, "uint8")])
    np.testing.assert_allclose(
        np.asarray(unknown(tf.constant(ids, "uint8")), "float32"),
        expected,
        rtol=1e-5,
        atol=1e-6,
    )

    ragged = tf.RaggedTensor.from_row_lengths(ids.ravel(), [2, 0, 4])
    for inputs in (ragged, tf.cast(ragged, tf.uint8)):
        for call in (layer, tf.function(layer)):
            outputs = call(inputs)
            assert outputs.shape == (3, None, layer.output_dim)
            np.testing.assert_array_equal(outputs.row_splits, [0, 2, 2, 6])
            np.testing.assert_allclose(
                np.asarray(outputs.flat_values, "float32"),
                expected.reshape(6, -1),
                rtol=1e-5,
                atol=1e-6,
            )
    spec = keras.KerasTensor((None, None), dtype="int32", ragged=True)
    assert layer(spec).ragged and layer(spec).shape[-1] == layer.output_dim


def check_ragged_training(layer):
    """Ragged and sparse ids can be trained on.

    Args:
        layer: As for `check_id_types`.
    """
    ids = np.array([[1, 0, 3], [6, 5, 3]])
    ragged = tf.RaggedTensor.from_row_lengths(ids.ravel(), [2, 1, 3])
    model = Pooled(layer)
    model.compile("sgd", "mse", run_eagerly=True)
    for inputs in (ragged, tf.sparse.from_dense(ids)):
        targets = np.ones((inputs.shape[0], layer.output_dim))
        history = model.fit(inputs, targets, epochs=2, verbose=0)
        assert np.isfinite(history.history["loss"]).all()


def check_policy(layer, inputs, tmp_path):
    """A layer of any dtype policy is called, trained, saved and loaded.

    Args:
        layer: The layer, not in use.
        inputs: Array with a batch axis.
        tmp_path: Folder for files.
    """
    model = _sequential(layer, inputs)
    # In half precision, Keras's defaults are 0 and 1.
    adam = keras.optimizers.Adam(0.02, beta_2=0.9, epsilon=1e-3)
    model.compile(adam, "mse", run_eagerly=True)
    targets = np.ones(model(inputs).shape, dtype="float32")
    before = [w.numpy() for w in layer.trainable_weights]
    history = model.fit(inputs, targets, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    for weight, old in zip(layer.trainable_weights, before, strict=True):
        assert not np.array_equal(weight.numpy(), old), weight.path
    outputs = model(inputs)
    assert outputs.dtype == layer.compute_dtype
    model.save(tmp_path / "policy.keras")
    loaded = keras.saving.load_model(tmp_path / "policy.keras")
    assert loaded.layers[0].dtype_policy == layer.dtype_policy
    for weight, same in zip(model.weights, loaded.weights, strict=True):
        assert weight.dtype == same.dtype
    np.testing.assert_array_equal(
        np.asarray(loaded(inputs), "float64"), np.asarray(outputs, "float64")
    )
    loaded.fit(inputs, targets, verbose=0)
    return model


def check_frozen(layer, train):
    """Training leaves a layer with `trainable=False` as it is.

    Args:
        layer: A built layer.
        train: Function without arguments that trains what holds it.
    """
    assert not layer.trainable_weights
    before = [weight.numpy() for weight in layer.weights]
    train()
    layer(np.zeros((2, 3), "int32"), training=True)
    for weight, old in zip(layer.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), old, weight.path)


def _sequential(layer, inputs):
    spec = keras.Input(inputs.shape[1:], dtype=inputs.dtype.name)
    return keras.Sequential([spec, layer])


def _functional(layer, inputs):
    spec = keras.Input(inputs.shape[1:], dtype=inputs.dtype.name)
    return keras.Model(spec, layer(spec))


class Subclassed(keras.Model):
    def __init__(self, layer, inputs):
        super().__init__()
        self.layer = layer

    def call(self, inputs, training=False):
        return self.layer(inputs)


class Pooled(keras.Model):
    """Means of vectors, ragged ones too."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, inputs, training=False):
        return tf.reduce_mean(self.layer(inputs, training=training), axis=1)
