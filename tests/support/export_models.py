"""Small models and look-ups of what is in a file, for the tests of export."""

import dataclasses
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.litert.flatbuffer import read_model
from keras_compembed.litert.flatbuffer import schema

ROWS = 97
# What a file may be off by, of the largest number of an output.
BOUNDS = {None: 2e-6, "float16": 5e-3, "int8": 0.05, "int8_codebooks": 0.05}


def ids_input(length=None, dtype="int32", **kwargs):
    return keras.Input((length,), dtype=dtype, **kwargs)


def code_embedding(num_codebooks=5, codebook_size=16, width=6, **kwargs):
    shape = kwargs.setdefault("input_dim", ROWS), num_codebooks
    rng = np.random.default_rng(4)
    codes = rng.integers(codebook_size, size=shape, dtype="uint16")
    kwargs.setdefault("codes", codes)
    return kc.CodeEmbedding(
        output_dim=width,
        num_codebooks=num_codebooks,
        codebook_size=codebook_size,
        codebooks=keras.initializers.RandomNormal(seed=3),
        **kwargs,
    )


def anchor_embedding(
    num_anchors=20,
    width=6,
    density=0.1,
    input_dim=ROWS,
    storage="dense",
    mixture=None,
    **kwargs,
):
    keras.utils.set_random_seed(3)
    kwargs.setdefault("l1", kc.anchors.L1(non_negative=False))
    kwargs["transform"] = kc.anchors.Transform(storage, mixture)
    layer = kc.ANTEmbedding(input_dim, width, num_anchors, **kwargs)
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


def write(model, path, **options):
    """Same as `export_litert`, in silence, whatever there was at a path.

    Options may be fields of a `Target`.
    """
    usual = {"quantize": None, "min_runtime": None}
    options = {"verbose": 0, "overwrite": True, **usual, **options}
    fields = {field.name for field in dataclasses.fields(kc.export.Target)}
    target = {name: options.pop(name) for name in fields & set(options)}
    options["target"] = kc.export.Target(**target)
    return kc.export_litert(model, path, **options)


def towers(*towers, length=None):
    """A model of one input of ids that some rows of layers take."""
    ids = ids_input(length)
    outputs = {}
    for place, layers in enumerate(towers):
        tensor = ids
        for layer in layers:
            tensor = layer(tensor)
        outputs[f"tower_{place}"] = tensor
    return keras.Model(ids, outputs if len(outputs) > 1 else tensor)


def error_of(path, model, *inputs):
    """The largest difference of a file's outputs from those of its model.

    Over the largest number of each output; for inputs one after another.
    """
    litert, errors = kc.export.LiteRTModel(path), []
    for each in inputs or (random_ids(3, 7),):
        got, expected = litert(each), model(each)
        if isinstance(expected, dict):
            assert set(got) == set(expected)
            got = [got[name] for name in expected]
            expected = list(expected.values())
        elif isinstance(expected, list | tuple):
            got = list(got.values())
        else:
            got, expected = [got], [expected]
        for one, other in zip(got, map(np.asarray, expected), strict=True):
            assert one.shape == other.shape
            # What is NaN in both is no difference.
            np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
            size = np.nanmax(np.abs(other)) or 1.0
            errors.append(np.nanmax(np.abs(one - other)) / size)
    return np.max(errors)


def export(model, path, *inputs, bound=None, **options):
    """Exports a model, and holds the file to it on some inputs.

    The largest difference allowed is by `quantize`, unless it is given.
    """
    made = write(model, path, **options)
    bound = BOUNDS[options.get("quantize")] if bound is None else bound
    assert error_of(path, model, *inputs) <= bound
    return made


def compiled(path):
    """A file of one input and known shapes as a `CompiledModel` runs it.

    A function of an array, and of sizes and dtypes of outputs, which it gives
    as flat arrays, in the order of their names.
    """
    module = pytest.importorskip("ai_edge_litert.compiled_model")
    model = module.CompiledModel.from_file(str(path))
    inputs = model.create_input_buffers(0)
    outputs = model.create_output_buffers(0)
    names = list(model.get_signature_by_index(0)["outputs"])
    named = dict(zip(names, outputs, strict=True))

    def run(array, *sizes):
        inputs[0].write(np.ascontiguousarray(array).reshape(-1))
        model.run_by_index(0, inputs, outputs)
        return [
            named[name].read(size, dtype)
            for name, (size, dtype) in zip(sorted(named), sizes, strict=True)
        ]

    return run


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
