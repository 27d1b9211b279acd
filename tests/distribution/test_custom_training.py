"""Training steps that users write learn what `fit` learns."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc

ROWS, WIDTH, BATCH_SIZE = 30, 8, 8
# Steps from one `recode` to the next, for codes that follow.
EVERY = 2

LAYERS = {
    "softmax": {"learn_codes": "softmax", "mask_zero": True},
    "nearest": {
        "learn_codes": kc.learners.NearestCodes(
            teacher=np.random.default_rng(3).normal(size=(ROWS, WIDTH))
        ),
    },
    "concat": {"learn_codes": "nearest", "composition": "concat"},
    "follow": {"learn_codes": "follow"},
}
OPTIMIZERS = {
    "sgd": functools.partial(keras.optimizers.SGD, 0.2, momentum=0.9),
    "adam": functools.partial(keras.optimizers.Adam, 0.01),
    "rows": lambda: kc.optimizers.SparseRowOptimizer(
        keras.optimizers.Adam(0.01)
    ),
}


def batches():
    rng = np.random.default_rng(1)
    ids = rng.integers(ROWS, size=(6 * BATCH_SIZE, 5)).astype("int32")
    return ids, (ids[:, 0] % 3).astype("int32")


class OwnStep(keras.Model):
    """A model with a training step of its own, as Keras's guides have it."""

    def train_step(self, data):
        ids, labels = data
        with tf.GradientTape() as tape:
            outputs = self(ids, training=True)
            loss = self.compute_loss(y=labels, y_pred=outputs)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


def make_model(settings, model_class=keras.Model):
    keras.utils.set_random_seed(0)
    ids = keras.Input((5,), dtype="int32")
    layer = kc.CodeEmbedding(ROWS, WIDTH, 4, 8, seed=0, **settings)
    vectors = keras.layers.GlobalAveragePooling1D()(layer(ids))
    outputs = keras.layers.Dense(3, kernel_regularizer="l2")(vectors)
    return model_class(ids, outputs), layer


def follows(layer):
    return isinstance(layer.learn_codes, kc.learners.FollowingCodes)


def loss_of_labels(**kwargs):
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, **kwargs
    )


def fit(settings, optimizer, model_class=keras.Model):
    model, layer = make_model(settings, model_class)
    model.compile(optimizer, loss_of_labels(), jit_compile=False)
    callbacks = []
    if follows(layer):
        callbacks.append(kc.compression.RecodeEmbeddings(every=EVERY))
    ids, labels = batches()
    model.fit(
        ids,
        labels,
        batch_size=BATCH_SIZE,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )
    return model


@functools.cache
def fitted(name, optimizer):
    model = fit(LAYERS[name], OPTIMIZERS[optimizer]())
    if name == "follow":
        _, untrained = make_model(LAYERS[name])
        assert (model.layers[1].codes != untrained.codes).any()
    return model


def gradients(model, ids, labels):
    with tf.GradientTape() as tape:
        outputs = model(ids, training=True)
        loss = loss_of_labels()(labels, outputs) + sum(model.losses)
    return tape.gradient(loss, model.trainable_variables)


def run_loop(layer, step):
    ids, labels = batches()
    starts = range(0, len(ids), BATCH_SIZE)
    for number, start in enumerate(starts, 1):
        part = slice(start, start + BATCH_SIZE)
        step(tf.constant(ids[part]), tf.constant(labels[part]))
        if follows(layer) and number % EVERY == 0:
            layer.recode()


# Adam makes much of small gradients, and so of how they are rounded.
def check(model, expected, atol=1e-5):
    for a, b in zip(model.weights, expected.weights, strict=True):
        name = a.path
        np.testing.assert_allclose(
            a.numpy(), b.numpy(), rtol=1e-5, atol=atol, err_msg=name
        )


@pytest.mark.parametrize("name", LAYERS)
def test_own_train_step(name):
    optimizer = OPTIMIZERS["adam"]()
    check(fit(LAYERS[name], optimizer, OwnStep), fitted(name, "adam"))


@pytest.mark.parametrize("name", LAYERS)
def test_eager_loop(name):
    model, layer = make_model(LAYERS[name])
    optimizer = OPTIMIZERS["adam"]()

    def step(ids, labels):
        optimizer.apply(
            gradients(model, ids, labels), model.trainable_variables
        )

    run_loop(layer, step)
    check(model, fitted(name, "adam"))


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_applied_elsewhere(name):
    """Taken in one function, and applied in another."""
    optimizer = OPTIMIZERS["rows"]()
    model, layer = make_model(LAYERS[name])
    optimizer.build(model.trainable_variables)
    take = tf.function(functools.partial(gradients, model))

    @tf.function
    def apply(grads):
        optimizer.apply(grads, model.trainable_variables)

    run_loop(layer, lambda ids, labels: apply(take(ids, labels)))
    check(model, fitted(name, "rows"))


@pytest.mark.parametrize("name", LAYERS)
def test_accumulated_gradients(name):
    """Of two batches, by hand: as `gradient_accumulation_steps` has it."""
    settings = LAYERS[name]
    optimizer = OPTIMIZERS["sgd"](gradient_accumulation_steps=2)
    expected, _ = make_model(settings)
    expected.compile(optimizer, loss_of_labels(), jit_compile=False)
    ids, labels = batches()
    expected.fit(ids, labels, batch_size=4, shuffle=False, verbose=0)

    model, layer = make_model(settings)
    optimizer = OPTIMIZERS["sgd"]()
    variables = model.trainable_variables
    take = tf.function(functools.partial(gradients, model))
    for start in range(0, len(ids), 8):
        sums = [tf.zeros(variable.shape) for variable in variables]
        for part in (start, start + 4):
            taken = take(
                tf.constant(ids[part : part + 4]),
                tf.constant(labels[part : part + 4]),
            )
            sums = [a + b for a, b in zip(sums, taken, strict=True)]
        optimizer.apply([total / 2 for total in sums], variables)
    check(model, expected)


@pytest.mark.parametrize("name", LAYERS)
def test_strategy_run(strategy, name):
    with strategy.scope():
        model, layer = make_model(LAYERS[name])
        optimizer = OPTIMIZERS["sgd"]()
        optimizer.build(model.trainable_variables)
    loss_of_rows = loss_of_labels(reduction="sum")

    def replica_step(ids, labels):
        with tf.GradientTape() as tape:
            outputs = model(ids, training=True)
            loss = loss_of_rows(labels, outputs) / BATCH_SIZE
            # Other losses are means over all devices, and once.
            loss += sum(model.losses) / strategy.num_replicas_in_sync
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)

    @tf.function
    def step(ids, labels):
        strategy.run(replica_step, args=(ids, labels))

    ids, labels = batches()
    data = tf.data.Dataset.from_tensor_slices((ids, labels)).batch(BATCH_SIZE)
    data = strategy.experimental_distribute_dataset(data)
    for number, batch in enumerate(data, 1):
        step(*batch)
        if follows(layer) and number % EVERY == 0:
            layer.recode()
    # Sums in another order.
    check(model, fitted(name, "sgd"))
