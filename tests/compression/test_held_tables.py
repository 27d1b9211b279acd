"""Layers that hold tables in ways of their own. `test_model_zoo` has more."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compressing import NeverTrained
from compressing import codes
from compressing import compress
from model_zoo import Given
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
class Traced(Holds):
    """Its call is a graph that TensorFlow keeps."""

    @tf.function
    def call(self, inputs):
        return self.table(inputs)


def test_graphs_that_are_kept_read_codes():
    model, ids = pooled(Traced(name="host"))
    host = compress(model, sample_inputs=ids).get_layer("host")
    np.testing.assert_allclose(host(ids), host.table(ids), rtol=1e-6)
    host.table.codebooks.assign(0 * host.table.codebooks)
    assert not np.any(host(ids))


@register
class Forgets(Holds):
    """Keras still tracks a table that nothing else holds."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        for number in range(2):
            self.table = table(f"table_{number}")
            self.table.build()


def test_tables_that_nothing_holds():
    model, _ = pooled(Forgets(name="host"))
    with pytest.raises(ValueError, match="'host/table_0'"):
        compress(model, codes(learner=NeverTrained), ["table_0", "table_1"])
    small = compress(model, layers=["table_1"])
    assert isinstance(small.get_layer("host").table, kc.CodeEmbedding)


@register
class ReadsWeights(Holds):
    """Reads an attribute that only an Embedding has."""

    def call(self, inputs):
        return keras.ops.take(self.table.embeddings.value, inputs, axis=0)


class Reader:
    """Holds a layer, and is none that Keras knows."""

    def __init__(self, table):
        self.table = table

    def read(self, ids):
        return self.table(ids)


@register
class Untracked(Holds):
    """Reads a table where Keras does not track it."""

    def __init__(self, how, **kwargs):
        super().__init__(**kwargs)
        words = self.table
        self.other = {
            "method": words.call,
            "function": lambda ids: words(ids),
            "object": Reader(words).read,
        }[how]

    def call(self, inputs):
        return self.other(inputs)


class NeedsTable(Given):
    """Its constructor takes a layer, and its config does not tell of it."""

    def __init__(self, embedding=None, **kwargs):
        super().__init__(embedding, **kwargs)

    def get_config(self):
        return {"name": self.name}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@pytest.mark.parametrize(
    "make, reason",
    [
        (ReadsWeights, "ReadsWeights"),
        (lambda name: Untracked("method", name=name), "'host/"),
        (lambda name: Untracked("function", name=name), "'host/"),
        (lambda name: Untracked("object", name=name), "'host/"),
        (lambda name: NeedsTable(table(), name=name), "NeedsTable"),
    ],
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
    given = np.arange(6).reshape(2, 3)
    (layer,) = [x for x in small.layers if isinstance(x, kc.ANTEmbedding)]
    vectors = layer(given)
    expected = vectors @ tf.transpose(layer.embeddings)
    np.testing.assert_allclose(small(given), expected, rtol=1e-4, atol=1e-5)
    # Both ways to the table are trained.
    with tf.GradientTape(persistent=True) as tape:
        graph = tf.function(lambda: tf.reduce_sum(layer.embeddings**2))()
        eager = tf.reduce_sum(layer.embeddings**2)
    for weight in layer.transform, layer.anchors:
        got, wanted = tape.gradient(graph, weight), tape.gradient(eager, weight)
        assert np.any(wanted)
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
