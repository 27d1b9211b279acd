"""Training steps of one's own learn what `fit` learns.

`layers/test_every_layer.py` has gradients that are taken in a function and
applied outside of it.
"""

import functools
import types

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
# One of each way, and of each way that a layer trains.
STEPS = [
    ("codes-teacher", "devices"),
    ("codes-softmax", "train step"),
    ("codes-follow", "accumulated"),
    ("anchors-lazy", "devices"),
    ("anchors-dense", "apart"),
    ("anchors-sparse", "graph"),
    ("classes-subsets", "eager"),
    ("classes-tree", "train step"),
]


def adam(**kwargs):
    return keras.optimizers.Adam(0.02, **kwargs)


def rows():
    return kc.optimizers.SparseRowOptimizer(adam())


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


def build(case, model_class=None):
    """A model, its layer, and the loss of a batch of it."""
    layer = case.make()
    model = case.task.wrap(layer)
    if model_class is not None:
        model = model_class(model.inputs[0], model.outputs[0])
    return types.SimpleNamespace(
        model=model, layer=layer, loss=case.task.loss(layer)
    )


def fit(case, optimizer, model_class=None, batch_size=BATCH_SIZE):
    made = build(case, model_class)
    metrics = []
    if isinstance(made.layer, kc.CANESoftmax):
        metrics = [kc.ClassAccuracy(), kc.Coverage()]
    made.model.compile(
        optimizer,
        made.loss,
        metrics=metrics,
        jit_compile=False,
        run_eagerly=model_class is None,
    )
    made.history = made.model.fit(
        *case.task.examples(4 * BATCH_SIZE),
        batch_size=batch_size,
        shuffle=False,
        verbose=0,
    ).history
    return made


@functools.cache
def fitted(case, sparse):
    """What `fit` comes to, and what it shows."""
    return fit(case, rows() if sparse else adam())


def batches_of(case, size=BATCH_SIZE):
    data = case.task.examples(4 * BATCH_SIZE)
    return tf.data.Dataset.from_tensor_slices(data).batch(size)


def gradients_of(made, share, x, y):
    with tf.GradientTape() as tape:
        loss = made.loss(y, made.model(x, training=True))
        loss += share * sum(made.model.losses)
    return tape.gradient(loss, made.model.trainable_variables)


def loop(case, way, strategy):
    """Steps by hand, as `rows` takes them."""
    if way != "devices":
        strategy = tf.distribute.get_strategy()
    with strategy.scope():
        made, optimizer = build(case), rows()
        variables = made.model.trainable_variables
        optimizer.build(variables)
    # Other losses are means over all devices, and once.
    share = 1 / strategy.num_replicas_in_sync
    gradients = functools.partial(gradients_of, made, share)

    def apply(gradients):
        optimizer.apply(gradients, variables)

    if way == "apart":
        gradients, apply = tf.function(gradients), tf.function(apply)

    def step(x, y):
        apply(gradients(x, y))

    def step_of_all(batch):
        strategy.run(step, args=batch)

    if way in ("graph", "devices"):
        step_of_all = tf.function(step_of_all)
    for batch in strategy.experimental_distribute_dataset(batches_of(case)):
        step_of_all(batch)
    return made


def accumulate(case):
    """Gradients of two batches, by hand, as of two halves."""
    made, optimizer = build(case), adam()
    variables = made.model.trainable_variables
    optimizer.build(variables)
    take = tf.function(functools.partial(gradients_of, made, 1))
    kept = []
    for batch in batches_of(case, BATCH_SIZE // 2):
        kept.append(map(tf.convert_to_tensor, take(*batch)))
        if len(kept) == 2:
            sums = [sum(parts) / 2 for parts in zip(*kept, strict=True)]
            optimizer.apply(sums, variables)
            kept = []
    return made


@pytest.mark.parametrize(("name", "way"), STEPS)
def test_steps_learn_what_fit_learns(name, way, strategy):
    case = CASES[name]
    if way == "train step":
        right, made = fitted(case, False), fit(case, adam(), OwnStep)
        for key, values in right.history.items():
            np.testing.assert_allclose(
                made.history[key], values, rtol=1e-4, err_msg=key
            )
    elif way == "accumulated":
        right = fit(
            case,
            adam(gradient_accumulation_steps=2),
            batch_size=BATCH_SIZE // 2,
        )
        made = accumulate(case)
    else:
        right, made = fitted(case, True), loop(case, way, strategy)
    # Sums of devices in another order, by whose size Adam divides.
    atol = 1e-4 if way == "devices" else 1e-5
    assert_weights(made.model, settled_weights(right.model), atol=atol)
