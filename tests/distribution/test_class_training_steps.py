"""Training steps of one's own give what `fit` gives, with layers of classes."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_compembed import CANELoss
from keras_compembed import CANESoftmax
from keras_compembed import ClassAccuracy
from keras_compembed import Coverage
from keras_compembed.baselines import FullSoftmaxLoss
from keras_compembed.baselines import HierarchicalSoftmax
from keras_compembed.candidates import BeamTree
from keras_compembed.candidates import FrequentClasses
from keras_compembed.noises import LearnedNoise
from keras_compembed.trees import ClassTree

CLASSES, WIDTH, BATCH_SIZE, STEPS = 60, 8, 16, 4
COUNTS = 1 + 600 // np.arange(1, CLASSES + 1)


def examples():
    rng = np.random.default_rng(1)
    rows = STEPS * BATCH_SIZE
    x = rng.normal(size=(rows, WIDTH)).astype("float32")
    return x, rng.choice(CLASSES, size=rows, p=COUNTS / COUNTS.sum())


def batches(size=BATCH_SIZE):
    return tf.data.Dataset.from_tensor_slices(examples()).batch(size)


def tree():
    return ClassTree.random(CLASSES, 4, seed=0)


def normal():
    return keras.initializers.RandomNormal(seed=0)


def searched():
    return CANESoftmax(
        CLASSES,
        BeamTree(tree(), max_frontier=4),
        num_candidates=6,
        num_noises=4,
        kernel_initializer=normal(),
        seed=0,
    )


def learned_noise():
    return CANESoftmax(
        CLASSES,
        FrequentClasses(COUNTS),
        num_candidates=6,
        num_noises=4,
        noise=LearnedNoise(refresh_every=2),
        share_noises=True,
        kernel_initializer=normal(),
        seed=0,
    )


def hierarchical():
    return HierarchicalSoftmax(tree(), kernel_initializer=normal())


LOSSES = {
    searched: CANELoss,
    learned_noise: CANELoss,
    hierarchical: FullSoftmaxLoss,
}
HEADS = pytest.mark.parametrize("make_head", LOSSES)


def make_model(make_head, model_class=keras.Model):
    inputs = keras.Input((WIDTH,))
    encoder = keras.layers.Dense(
        WIDTH, kernel_initializer=keras.initializers.GlorotUniform(0)
    )
    return model_class(inputs, make_head()(encoder(inputs)))


def adam(**kwargs):
    return keras.optimizers.Adam(0.02, **kwargs)


def fitted(make_head, model_class=keras.Model, optimizer=None, size=BATCH_SIZE):
    model = make_model(make_head, model_class)
    metrics = [ClassAccuracy()]
    if make_head is not hierarchical:
        metrics.append(Coverage())
    model.compile(
        optimizer or adam(),
        LOSSES[make_head](),
        metrics=metrics,
        jit_compile=False,
    )
    history = model.fit(batches(size), shuffle=False, verbose=0).history
    return model, history


@functools.cache
def reference(make_head):
    """What `fit` comes to, and what it shows."""
    return fitted(make_head)


def check_same(model, right, atol=1e-6):
    for weight, expected in zip(model.weights, right.weights, strict=True):
        np.testing.assert_allclose(
            weight.numpy(),
            expected.numpy(),
            rtol=1e-5,
            atol=atol,
            err_msg=weight.path,
        )


class OwnStep(keras.Model):
    """As in Keras's guide on `train_step`, with all that it names."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply(gradients, variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}


@HEADS
def test_train_step(make_head):
    right, history = reference(make_head)
    model, own_history = fitted(make_head, OwnStep)
    check_same(model, right)
    for name, values in history.items():
        np.testing.assert_allclose(
            own_history[name], values, rtol=1e-5, err_msg=name
        )


def gradients_of(model, loss_fn, x, y):
    with tf.GradientTape() as tape:
        loss = loss_fn(y, model(x, training=True))
    return tape.gradient(loss, model.trainable_variables)


@HEADS
@pytest.mark.parametrize("way", ["eager", "graph", "gradients in a graph"])
def test_loops(make_head, way):
    right, _ = reference(make_head)
    model, optimizer = make_model(make_head), adam()
    loss_fn, variables = LOSSES[make_head](), model.trainable_variables
    optimizer.build(variables)

    def gradients(x, y):
        return gradients_of(model, loss_fn, x, y)

    if way == "gradients in a graph":
        gradients = tf.function(gradients)

    def step(x, y):
        optimizer.apply(gradients(x, y), variables)

    if way == "graph":
        step = tf.function(step)
    for batch in batches():
        step(*batch)
    check_same(model, right)


@HEADS
def test_gradient_accumulation(make_head):
    """That of Keras, and by hand."""
    right, _ = fitted(
        make_head,
        optimizer=adam(gradient_accumulation_steps=2),
        size=BATCH_SIZE // 2,
    )
    model, optimizer = make_model(make_head), adam()
    loss_fn, variables = LOSSES[make_head](), model.trainable_variables
    optimizer.build(variables)
    kept = [tf.Variable(tf.zeros(variable.shape)) for variable in variables]

    @tf.function
    def add(x, y):
        gradients = gradients_of(model, loss_fn, x, y)
        for total, gradient in zip(kept, gradients, strict=True):
            total.assign_add(tf.convert_to_tensor(gradient) / 2)

    @tf.function
    def apply():
        optimizer.apply([total.value() for total in kept], variables)
        for total in kept:
            total.assign(tf.zeros_like(total))

    for number, batch in enumerate(batches(BATCH_SIZE // 2), 1):
        add(*batch)
        if number % 2 == 0:
            apply()
    check_same(model, right)


@HEADS
def test_loop_of_a_strategy(strategy, make_head):
    right, _ = reference(make_head)
    with strategy.scope():
        model, optimizer = make_model(make_head), adam()
        loss_fn, variables = LOSSES[make_head](), model.trainable_variables
        optimizer.build(variables)

    def step(x, y):
        optimizer.apply(gradients_of(model, loss_fn, x, y), variables)

    @tf.function
    def run(batch):
        strategy.run(step, args=batch)

    for batch in strategy.experimental_distribute_dataset(batches()):
        run(batch)
    check_same(model, right, atol=1e-4)
