"""Training steps of one's own learn what `fit` learns.

`layers/test_every_layer.py` has gradients of every layer that are taken in a
function and applied outside of it.
"""

import keras
import layer_cases
import numpy as np
import pytest
import tensorflow as tf
from layer_cases import BATCH_SIZE
from layer_checks import assert_weights
from layer_checks import settled_weights

import keras_compembed as kc
from keras_compembed.learners.task_codes import NearestCodes

TEACHER = np.random.default_rng(3).normal(size=(layer_cases.IDS, 8))
TEACHER_CASE = layer_cases.LayerCase(
    "codes-teacher",
    layer_cases.codes(codes=NearestCodes(teacher=TEACHER), mask_zero=True),
    layer_cases.LookUp(),
)
CASES = {case.name: case for case in [*layer_cases.CASES, TEACHER_CASE]}


def rows():
    return kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam(0.02))


class OwnStep(keras.Model):
    """As in Keras's guide on `train_step`, with all that it names."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}


def build(case, model_class=keras.Model):
    """A model, and the loss of a batch of it."""
    layer = case.make()
    model = case.task.wrap(layer)
    model = model_class(model.inputs[0], model.outputs[0])
    return model, case.task.loss(layer)


def fit(case, model_class=keras.Model, metrics=()):
    model, loss = build(case, model_class)
    model.compile(
        rows(),
        loss,
        metrics=[metric() for metric in metrics],
        jit_compile=False,
        run_eagerly=model_class is keras.Model,
    )
    data = case.task.examples(4 * BATCH_SIZE)
    history = model.fit(*data, batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    return model, history.history


def test_a_train_step_of_ones_own():
    metrics = kc.ClassAccuracy, kc.Coverage
    right, expected = fit(CASES["classes-tree"], metrics=metrics)
    model, found = fit(CASES["classes-tree"], OwnStep, metrics)
    for key, values in expected.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-4, err_msg=key)
    assert_weights(model, settled_weights(right), atol=1e-5)


@pytest.mark.parametrize("name", ["codes-teacher", "anchors-lazy"])
def test_a_loop_over_two_devices(name, strategy):
    case = CASES[name]
    with strategy.scope():
        (model, loss_of), optimizer = build(case), rows()
        variables = model.trainable_variables
        optimizer.build(variables)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
            # Other losses are means over all devices, and once.
            loss += sum(model.losses) / strategy.num_replicas_in_sync
        optimizer.apply(tape.gradient(loss, variables), variables)

    @tf.function
    def step_of_all(batch):
        strategy.run(step, args=batch)

    data = case.task.examples(4 * BATCH_SIZE)
    batches = tf.data.Dataset.from_tensor_slices(data).batch(BATCH_SIZE)
    for batch in strategy.experimental_distribute_dataset(batches):
        step_of_all(batch)
    right, _ = fit(case)
    # Sums of devices in another order, by whose size Adam divides.
    assert_weights(model, settled_weights(right), atol=1e-4)


def test_gradients_added_up_over_batches():
    """By hand, as the optimizer does it."""
    case = CASES["codes-follow"]
    data = case.task.examples(4 * BATCH_SIZE)
    adam = keras.optimizers.Adam(0.02, gradient_accumulation_steps=2)
    right, loss_of = build(case)
    right.compile(adam, loss_of, run_eagerly=True)
    right.fit(*data, batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    (model, loss_of), adam = build(case), keras.optimizers.Adam(0.02)
    variables, kept = model.trainable_variables, []
    for x, y in tf.data.Dataset.from_tensor_slices(data).batch(BATCH_SIZE):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True)) + sum(model.losses)
        gradients = tape.gradient(loss, variables)
        kept.append([tf.convert_to_tensor(each) for each in gradients])
        if len(kept) == 2:
            sums = [sum(parts) / 2 for parts in zip(*kept, strict=True)]
            adam.apply(sums, variables)
            kept.clear()
    assert_weights(model, settled_weights(right), atol=1e-5)
