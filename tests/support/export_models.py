"""Small models and look-ups of what is in a file, for the tests of export."""

import tempfile

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.export.flatbuffer import read_model
from keras_compembed.export.flatbuffer import schema
from keras_compembed.layers.ant_embedding import ANTEmbedding
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.transforms import L1

ROWS = 97


def ids_input(length=None, dtype="int32", **kwargs):
    return keras.Input((length,), dtype=dtype, **kwargs)


def code_embedding(num_codebooks=5, codebook_size=16, width=6, **kwargs):
    kwargs.setdefault("input_dim", ROWS)
    kwargs.setdefault("seed", 4)
    return CodeEmbedding(
        output_dim=width,
        num_codebooks=num_codebooks,
        codebook_size=codebook_size,
        codebooks_initializer=keras.initializers.RandomNormal(seed=3),
        **kwargs,
    )


def anchor_embedding(
    num_anchors=20, width=6, density=0.1, input_dim=ROWS, **kwargs
):
    kwargs.setdefault("storage", "dense")
    kwargs.setdefault("l1", L1(non_negative=False))
    layer = ANTEmbedding(input_dim, width, num_anchors, seed=3, **kwargs)
    layer.build()
    rng = np.random.default_rng(3)
    transform = rng.normal(size=(input_dim, num_anchors))
    transform[rng.random(transform.shape) > density] = 0
    transform[[0, ROWS - 1]] = 0
    layer.anchors.assign(rng.normal(size=(num_anchors, width)))
    layer.assign_transform(transform)
    return layer


def random_ids(*shape, high=ROWS):
    return np.random.default_rng(5).integers(high, size=shape, dtype="int32")


def read_tensors(path):
    """Type name, shape and bytes of each constant in a LiteRT file."""
    names = {
        code: name
        for name, code in vars(schema.TensorType).items()
        if isinstance(code, int)
    }
    # TensorFlow before 2.21 has no name for it.
    names.setdefault(19, "INT2")
    with open(path, "rb") as file:
        model = read_model(file.read())
    return [
        (names[tensor.type], tuple(tensor.shape), bytes(data))
        for graph in model.subgraphs
        for tensor in graph.tensors
        if tensor.shape is not None
        and (data := model.buffers[tensor.buffer].data) is not None
    ]


def convert(function, num_ids=None, dtype="int32"):
    """A LiteRT file of a function of one rank-1 tensor of ids, as bytes."""
    module = tf.Module()
    module.function = tf.function(
        function, input_signature=[tf.TensorSpec((num_ids,), dtype)]
    )
    concrete = module.function.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [concrete], module
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    return converter.convert()


def two_signatures():
    """A LiteRT file of two functions, `less` and `more`, as bytes."""
    module = tf.Module()
    scalar = tf.TensorSpec((), "int32")
    module.less = tf.function(lambda x: {"out": x - 1}, [scalar])
    module.more = tf.function(
        lambda y, x: {"out": x + y},
        [tf.TensorSpec((), "int32", "y"), tf.TensorSpec((), "int32", "x")],
    )
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(
            module, folder, {"less": module.less, "more": module.more}
        )
        converter = tf.lite.TFLiteConverter.from_saved_model(
            folder, ["less", "more"]
        )
        return converter.convert()
