import keras
import numpy as np
import tensorflow as tf

from keras_compembed.optimizers.stepped_variable import SteppedVariable


def test_calls_once_a_step_with_the_optimizer():
    seen = []
    variable = SteppedVariable(
        "ones", shape=(3, 2), name="rows", after_step=seen.append
    )
    other = keras.Variable(np.ones(2, "float32"))
    optimizer = keras.optimizers.SGD(0.5)
    optimizer.build([variable, other])
    optimizer.apply([tf.ones((3, 2)), tf.ones(2)], [variable, other])
    assert seen == [optimizer]
    optimizer.apply([tf.ones((3, 2))], [variable])
    assert seen == [optimizer] * 2
    optimizer.apply([tf.ones(2)], [other])
    assert seen == [optimizer] * 2
    np.testing.assert_array_equal(variable, np.zeros((3, 2)))
    variable.assign(np.full((3, 2), 4.0))
    np.testing.assert_array_equal(variable, np.full((3, 2), 4))
    assert len(seen) == 2


def test_a_step_reads_and_writes_no_copy_of_it():
    variable = SteppedVariable(
        "ones", shape=(3, 2), name="rows", after_step=lambda optimizer: None
    )
    optimizer = keras.optimizers.SGD(0.5)
    optimizer.build([variable])

    @tf.function
    def step(values):
        gradient = tf.IndexedSlices(values, [0], variable.shape)
        optimizer.apply([gradient], [variable])

    graph = step.get_concrete_function(tf.TensorSpec((1, 2))).graph
    read = [op.outputs[0] for op in graph.get_operations() if op.outputs]
    assert not [tensor for tensor in read if tensor.shape == (3, 2)]
