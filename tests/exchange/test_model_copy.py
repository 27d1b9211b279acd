"""Copies of models."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compressing import check_same
from compressing import compress
from compressing import run
from model_zoo import CASES

import keras_compembed as kc
from keras_compembed.exchange.model_copy import copy_model
from keras_compembed.exchange.model_copy import layer_pairs

NAMES = "bidirectional in_collections makes_all sequential_subclass task"


@pytest.mark.parametrize(
    "case",
    [x for x in CASES if x.name in NAMES.split()],
    ids=lambda case: case.name,
)
def test_zoo(case):
    keras.utils.set_random_seed(0)
    model, inputs = case.make()
    copy = copy_model(model)
    assert type(copy) is type(model)
    pairs = zip(*layer_pairs(model, copy), strict=True)
    for each, found in zip((model, copy), pairs, strict=True):
        layers = [x for x in each._flatten_layers() if x.variables]
        assert set(map(id, found)).issuperset(map(id, layers))
    check_same(run(copy, inputs), run(model, inputs))


def test_lambdas_read_what_they_read():
    def times(factor):
        return keras.layers.Lambda(lambda x: tf.reduce_mean(x, 1) * factor)

    layers = times(2.0), times(np.arange(3.0))
    dense = keras.layers.Dense(3, activation=lambda x: tf.sin(x))
    inputs = keras.Input((2, 3))
    model = keras.Model(inputs, [dense(layer(inputs)) for layer in layers])
    check_same(
        run(copy_model(model), np.ones((1, 2, 3))),
        run(model, np.ones((1, 2, 3))),
    )


class Texts(keras.Model):
    """Not registered with Keras, and without further arguments."""

    def __init__(self):
        super().__init__()
        self.words = keras.layers.Embedding(300, 64)

    def call(self, ids):
        return keras.ops.mean(self.words(ids), axis=1)


def test_copies_of_copies_can_be_saved_by_tensorflow(tmp_path):
    model, ids = Texts(), np.arange(6).reshape(2, 3)
    model(ids)
    small = compress(model)
    again = kc.strip(small)
    assert type(again) is type(small) and isinstance(again, Texts)
    check_same(run(again, ids), run(small, ids))
    rows = keras.Sequential([keras.Input((3,)), model.words])
    for each in (again, compress(rows)):
        tf.saved_model.save(each, tmp_path / each.name)
