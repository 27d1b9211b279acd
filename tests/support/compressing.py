"""`compress_model` as its tests call it, and what its copies must give."""

from unittest import mock

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.baselines import RandomCodeLearner


class NeverTrained(RandomCodeLearner):
    """A learner that no error may come after."""

    def train(self, table, sample_weight=None):
        raise AssertionError("codes are learned before all is checked")


def codes(num_codebooks=4, codebook_size=8, *args, **kwargs):
    """Random codes, unless another learner is given."""
    kwargs.setdefault("learner", RandomCodeLearner)
    return kc.methods.Codes(num_codebooks, codebook_size, *args, **kwargs)


def compress(model, how=None, layers=None, smallest=1000, **kwargs):
    """Replaces tables of 1000 bytes, by random codes unless told otherwise."""
    place = "keras_compembed.compression.tables.SMALLEST_BYTES"
    options = {"verbose": 0, **kwargs}
    how = codes() if how is None else how
    with mock.patch(place, smallest):
        return kc.compress_model(model, how, layers, **options)


def layers_of(model, cls=kc.CodeEmbedding):
    return [x for x in model._flatten_layers() if isinstance(x, cls)]


def run(model, inputs):
    """List of the outputs, arrays."""
    outputs = keras.tree.flatten(model(inputs, training=False))
    return [keras.ops.convert_to_numpy(output) for output in outputs]


def check_same(got, expected, tolerance=1e-5):
    """The same ops on the same numbers; threads may add in another order."""
    assert len(got) == len(expected)
    for array, wanted in zip(got, expected, strict=True):
        assert array.shape == wanted.shape and array.dtype == wanted.dtype
        scale = np.nanmax(np.abs(wanted), initial=0)
        np.testing.assert_allclose(array, wanted, 0, tolerance * scale)


def check_rows(model, small, inputs, tolerance=1e-5):
    """A copy gives what the model gives with the copy's vectors in it."""
    coded = {layer.name: layer for layer in layers_of(small)}
    tables = {}
    for layer in layers_of(model, keras.layers.Embedding):
        if layer.name in coded:
            tables[layer] = layer.get_weights()
            layer.set_weights([coded[layer.name].embeddings])
    assert len(tables) == len(coded)
    expected = run(model, inputs)
    for layer, weights in tables.items():
        layer.set_weights(weights)
    check_same(run(small, inputs), expected, tolerance)
