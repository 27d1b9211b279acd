"""Which tensors and variables the outputs of a function need."""

import keras
import tensorflow as tf

from keras_compembed.export.live_ops import LiveOps


def test_what_outputs_need_is_live():
    read, unread = keras.Variable(2.0), keras.Variable(3.0)
    found = {}

    @tf.function(
        input_signature=[tf.TensorSpec((2,), "float32")], autograph=False
    )
    def function(inputs):
        found["needed"] = inputs * read.value
        found["lost"] = inputs + 3.0
        return found["needed"] + 1.0

    live = LiveOps(function.get_concrete_function().graph)
    assert live.holds(found["needed"])
    assert not live.holds(found["lost"])
    assert not live.holds(None)
    assert live.reads(read)
    assert not live.reads(unread)
