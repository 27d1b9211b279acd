"""Layers that hold tables in ways of their own. `test_model_zoo` has more."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compressing import NeverTrained
from compressing import codes
from compressing import compress
from model_zoo import TiedDense
from model_zoo import pooled
from model_zoo import table

import keras_compembed as kc

register = keras.saving.register_keras_serializable(package="tests")


class Holds(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = table()

    def build(self, input_shape):
        self.table.build()

    def call(self, inputs):
        return self.table(inputs)


@register
class ReadsWeights(Holds):
    """Reads an attribute that only an Embedding has."""

    def call(self, inputs):
        return keras.ops.take(self.table.embeddings.value, inputs, axis=0)


@register
class Untracked(Holds):
    """Reads a table where Keras does not track it."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        words = self.table
        self.other = lambda ids: words(ids)

    def call(self, inputs):
        return self.other(inputs)


@pytest.mark.parametrize(
    "make, reason",
    [(ReadsWeights, "ReadsWeights"), (Untracked, "'host/")],
)
def test_hosts_that_cannot_be_copied_are_named(make, reason):
    model, _ = pooled(make(name="host"))
    with pytest.raises(ValueError, match=reason):
        compress(model, codes(learner=NeverTrained))


def test_anchors_of_a_table_that_a_layer_multiplies_with():
    words, ids = table(), keras.Input((3,), dtype="int32")
    logits = TiedDense(words, name="logits")(words(ids))
    model = keras.Model(ids, logits)
    small = compress(model, kc.methods.Anchors(20))
    (layer,) = [x for x in small.layers if isinstance(x, kc.ANTEmbedding)]
    # Both ways to the table are trained.
    with tf.GradientTape(persistent=True) as tape:
        graph = tf.function(lambda: tf.reduce_sum(layer.embeddings**2))()
        eager = tf.reduce_sum(layer.embeddings**2)
    for weight in layer.transform, layer.anchors:
        got, wanted = tape.gradient(graph, weight), tape.gradient(eager, weight)
        assert np.any(wanted)
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
