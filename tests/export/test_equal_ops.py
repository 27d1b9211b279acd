"""Ops that LiteRT lacks are written as others that give the same."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import export

import keras_compembed as kc

ops = keras.ops
L = keras.layers


def whole(x):
    return ops.cast(10 * x, "int32")


SLICES = {
    "last": lambda x: x[..., None],
    "middle": lambda x: x[:, None],
    "both_ends": lambda x: x[None, ..., None, None],
    "and_part": lambda x: x[:, None, 1:],
    "and_last": lambda x: x[..., None, -1, None],
    "steps": lambda x: x[None, :, ::2, None, ...],
    "backwards": lambda x: x[None, :, None, ..., ::-1],
    "computed": lambda x: x[:, None, : ops.shape(x)[1] - 1],
    "pairs": lambda x: x[:, :, None] * x[:, None],
    # None is added here.
    "plain": lambda x: x[..., 1:],
}
OTHERS = {
    "argmax": lambda x: ops.argmax(x, axis=-1),
    "argmin": ops.argmin,
    "argmax_of_zeros": lambda x: ops.argmax(-0.0 * ops.abs(x), axis=0),
    "abs": lambda x: ops.abs(whole(x)),
    "abs_of_int64": lambda x: ops.abs(ops.cast(whole(x), "int64")),
    "sign": lambda x: ops.sign(whole(x)),
    "counts": lambda x: tf.math.bincount(
        tf.abs(whole(x)), minlength=9, maxlength=9, axis=-1
    ),
    "weights": lambda x: tf.math.bincount(
        tf.abs(whole(x)), x, 9, 9, dtype=tf.float32, axis=-1
    ),
    "outer": lambda x: ops.einsum("ab,cd->dacb", x, x),
    "scaled": lambda x: ops.einsum("ab,b->ab", x, x[0]),
    "transposed": lambda x: ops.einsum("ab,ab->ba", x, x),
    # Sums stay as they were.
    "product": lambda x: ops.einsum("ab,cb->ac", x, x),
    "floats": lambda x: ops.abs(x) * ops.sign(x),
}


FUNCTIONS = {"axes": SLICES, "others": OTHERS}


class All(keras.Model):
    def __init__(self, kind, **kwargs):
        super().__init__(**kwargs)
        self.kind = kind

    def get_config(self):
        return {"name": self.name, "kind": self.kind}

    def call(self, x):
        return {name: each(x) for name, each in FUNCTIONS[self.kind].items()}


@pytest.mark.parametrize("shape", [(None, None), (2, 7)])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_ops(kind, shape, path):
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(2, 7)).astype("float32")]
    if shape[1] is None:
        inputs.append(rng.normal(size=(3, 4)).astype("float32"))
    signature = tf.TensorSpec(shape, "float32")
    model = All(kind)
    model(inputs[0])
    export(model, path, *inputs, input_signature=signature)
    made = kc.export.inspect_litert(path)
    assert not [x for x in made.to_dict()["ops"] if "CUSTOM" in x]


def test_loops(path):
    """Functions that a function calls are rewritten as well."""

    class Loop(L.Layer):
        def call(self, x):
            def step(i, x):
                return i + 1, tf.reduce_max(x[:, None] + x[..., None], axis=1)

            return tf.while_loop(lambda i, x: i < 3, step, (0, x))[1]

    inputs = keras.Input((None,))
    model = keras.Model(inputs, Loop()(inputs))
    # Sums of numbers of one shape.
    x = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    export(model, path, x, sample_inputs=x)
