"""Checks that every layer of the package passes."""

import json

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc

BITS = (8, 16, 32, 64)


def random_codes(num_codebooks, codebook_size, rows=50, width=6, **kwargs):
    """A layer, its codes, and its table, equation 1 of Shu & Nakayama."""
    rng = np.random.default_rng(0)
    shape = num_codebooks, codebook_size
    codes = rng.integers(codebook_size, size=(rows, num_codebooks))
    books = rng.normal(size=(*shape, width))
    layer = kc.CodeEmbedding(
        rows, width, *shape, codes=codes, codebooks=books, **kwargs
    )
    return layer, codes, books[np.arange(num_codebooks), codes].sum(axis=1)


def check_config(layer):
    """The configuration survives JSON and makes the same layer."""
    config = layer.get_config()
    again = type(layer).from_config(json.loads(json.dumps(config)))
    assert again.get_config() == config
    restored = keras.saving.deserialize_keras_object(
        json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    )
    assert type(restored) is type(layer)


def check_id_types(layer):
    """A look-up of ids up to 6 takes what `keras.layers.Embedding` takes."""
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
    """Ragged and sparse ids can be trained on."""
    ids = np.array([[1, 0, 3], [6, 5, 3]])
    ragged = tf.RaggedTensor.from_row_lengths(ids.ravel(), [2, 1, 3])
    model = Pooled(layer)
    model.compile("sgd", "mse", run_eagerly=True)
    for inputs in (ragged, tf.sparse.from_dense(ids)):
        targets = np.ones((inputs.shape[0], layer.output_dim))
        history = model.fit(inputs, targets, epochs=2, verbose=0)
        assert np.isfinite(history.history["loss"]).all()


def check_policy(layer, inputs, tmp_path):
    """A new layer of any dtype policy is called, trained, saved and loaded."""
    spec = keras.Input(inputs.shape[1:], dtype=inputs.dtype.name)
    model = keras.Sequential([spec, layer])
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


def largest_tensor(function, *signature):
    """Numbers in the largest tensor of a graph, but for what is stored."""
    graph = tf.function(function).get_concrete_function(*signature).graph
    return max(
        tensor.shape.num_elements() or 0
        for op in graph.get_operations()
        for tensor in op.outputs
        if tensor.dtype != tf.resource and op.type != "ReadVariableOp"
    )


class Pooled(keras.Model):
    """Means of vectors, ragged ones too."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, inputs, training=False):
        return tf.reduce_mean(self.layer(inputs, training=training), axis=1)


def settled_weights(model):
    """Weights as files hold them: rows that owe shrinkage have paid it."""
    for layer in model.layers:
        layer.save_own_variables({})
    return model.get_weights()


def assert_weights(model, expected, rtol=1e-5, atol=1e-6):
    for weight, value, same in zip(
        model.weights, settled_weights(model), expected, strict=True
    ):
        if str(value.dtype) == "bfloat16":
            # NumPy 1 does not compare them.
            value, same = value.astype("float32"), same.astype("float32")
        np.testing.assert_allclose(value, same, rtol, atol, err_msg=weight.path)


def check_any_converter(model, inputs, folder):
    """TensorFlow's converter takes a model, with built-in ops alone.

    Where there are several inputs, their dtypes differ.
    """
    model.export(folder / "saved_model", verbose=False)
    converter = tf.lite.TFLiteConverter.from_saved_model(
        str(folder / "saved_model")
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    path = folder / "any.tflite"
    path.write_bytes(converter.convert())
    check_file(path, model, inputs)


def check_file(path, model, inputs):
    """A LiteRT file of built-in ops gives what its model gives."""
    inspected = kc.export.inspect_litert(path)
    assert not any(name.startswith("CUSTOM ") for name in inspected.ops)
    (signature,) = inspected.signatures
    file = kc.export.LiteRTModel(path)
    # Several batches: the batch is open.
    for rows in (3, 1):
        arrays = [each[:rows] for each in tf.nest.flatten(inputs)]
        outputs = file(
            {
                each.name: next(x for x in arrays if x.dtype == each.dtype)
                for each in signature.inputs
            }
        )
        got = {each.dtype.name: each for each in tf.nest.flatten(outputs)}
        expected = model(arrays if len(arrays) > 1 else arrays[0])
        for each in tf.nest.flatten(expected):
            np.testing.assert_allclose(
                got[each.dtype.name], each, rtol=1e-5, atol=1e-6
            )
