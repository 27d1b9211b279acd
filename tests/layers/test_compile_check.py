"""Losses and metrics that models over classes may be compiled with."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc

CLASSES, WIDTH, ROWS = 30, 4, 6
X = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype("float32")
# Labels that would do for scores of as many classes as features, too.
Y = np.arange(ROWS) % WIDTH
WRONG = "features, not scores of classes"
KERAS_LOSS = "sparse_categorical_crossentropy"


def make_head(name="classes"):
    return kc.CANESoftmax(
        CLASSES, sampling=kc.Sampling(num_candidates=4, num_noises=4), name=name
    )


def sequential(*layers):
    return keras.Sequential([keras.Input((WIDTH,)), *layers])


def functional(head):
    inputs = keras.Input((WIDTH,))
    return keras.Model(inputs, {"words": head(inputs)})


def nested(head):
    inputs = keras.Input((WIDTH,))
    return keras.Model(inputs, sequential(head)(inputs))


def compiled(model, loss=None, **kwargs):
    loss = loss or kc.CANELoss()
    model.compile("sgd", loss, run_eagerly=True, **kwargs)
    return model


# Of logits, Keras says first that they cannot be any.
@pytest.mark.filterwarnings("ignore:.*received `from_logits=True`")
@pytest.mark.parametrize("method", ["train_on_batch", "test_on_batch"])
@pytest.mark.parametrize(
    ("make", "loss"),
    [
        (functional, "crossentropy"),
        (
            nested,
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        ),
        (sequential, KERAS_LOSS),
    ],
)
def test_losses_of_keras(make, loss, method):
    model = compiled(make(make_head()), loss)
    with pytest.raises(ValueError, match=f"{WRONG}.*CANELoss"):
        getattr(model, method)(X, Y)


def test_fit_and_evaluate_in_graphs(strategy):
    head = make_head()
    model = sequential(head)
    model.compile("sgd", kc.CANELoss(), metrics=["accuracy"])
    for method in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="CANESoftmax.*ClassAccuracy"):
            method(X, Y, verbose=0)
    # Features are what they are, and `predict` says so, once.
    with pytest.warns(UserWarning, match=f"{head.name}.*top_k_model"):
        np.testing.assert_array_equal(model.predict(X, verbose=0), X)
    np.testing.assert_array_equal(model.predict(X[:2], verbose=0), X[:2])
    model.compile("sgd", KERAS_LOSS)
    before = head.get_weights()
    with pytest.raises(ValueError, match=WRONG):
        model.fit(X, Y, verbose=0)
    for weight, right in zip(head.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, right)
    with strategy.scope():
        model = sequential(make_head())
        model.compile("sgd", kc.CANELoss(), metrics=["accuracy"])
    with pytest.raises(ValueError, match=WRONG):
        model.fit(X, Y, verbose=0)


def mean_feature(y_true, y_pred):
    return tf.reduce_mean(y_pred, axis=-1)


class Norms(keras.metrics.Mean):
    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(tf.norm(y_pred, axis=-1))


def test_what_knows_features():
    """Functions of users, and models that go on after the layer."""
    model = compiled(sequential(make_head()), metrics=[mean_feature, Norms()])
    logs = model.train_on_batch(X, Y, return_dict=True)
    np.testing.assert_allclose(logs["mean_feature"], X.mean(), rtol=1e-4)
    compiled(model, mean_feature).test_on_batch(X, Y)
    softmax = keras.layers.Dense(WIDTH, activation="softmax")
    further = keras.Sequential([model, softmax])
    compiled(further, KERAS_LOSS, metrics=["accuracy"]).test_on_batch(X, Y)


def with_parts(head, arrange):
    """Two outputs, of which one comes from a layer of classes."""
    inputs = keras.Input((WIDTH,))
    parts = keras.layers.Dense(3, activation="softmax", name="parts")(inputs)
    return keras.Model(inputs, arrange(head(inputs), parts))


class Subclassed(keras.Model):
    def __init__(self, head, arrange):
        super().__init__()
        self.head = head
        self.parts = keras.layers.Dense(3, activation="softmax")
        self.arrange = arrange

    def call(self, inputs, training=False):
        return self.arrange(self.head(inputs), self.parts(inputs))


def as_list(words, parts):
    return [words, parts]


def as_dict(words, parts):
    return {"words": words, "parts": parts}


def in_order_of_keys(words, parts):
    return [parts, words]


@pytest.mark.parametrize(
    ("make", "arrange", "given"),
    [
        (with_parts, as_list, as_list),
        # Keras takes lists too, in the order of sorted keys.
        (with_parts, as_dict, in_order_of_keys),
        (Subclassed, as_list, as_list),
        (Subclassed, as_dict, as_dict),
    ],
)
def test_several_outputs(make, arrange, given):
    model = make(make_head("words"), arrange)

    def train(words, parts, argument="metrics"):
        loss = arrange(kc.CANELoss(), KERAS_LOSS)
        compiled(model, loss, **{argument: given(words, parts)})
        return model.train_on_batch(X, arrange(Y, Y % 3), return_dict=True)

    logs = train([kc.ClassAccuracy()], ["accuracy"])
    assert sum("accuracy" in name for name in logs) == 2, logs
    train(None, ["accuracy"])
    for argument in ("metrics", "weighted_metrics"):
        named = f"`{argument}` must.*'words' is {WRONG}"
        with pytest.raises(ValueError, match=named):
            train(["accuracy"], ["accuracy"], argument)
    compiled(model, KERAS_LOSS)
    with pytest.raises(ValueError, match=f"'words' is:? {WRONG}"):
        model.train_on_batch(X, arrange(Y, Y % 3))


def test_own_loops():
    outputs = make_head()(X, training=True)
    with pytest.raises(ValueError, match=WRONG):
        keras.losses.sparse_categorical_crossentropy(Y, outputs)


def test_casts_and_wrappers_lose_the_mark():
    cast = keras.layers.Lambda(lambda x: tf.cast(x, "float64"))
    with pytest.raises(ValueError, match="cast"):
        compiled(sequential(make_head(), cast)).train_on_batch(X, Y)
    steps = keras.layers.RepeatVector(1)
    model = sequential(steps, keras.layers.TimeDistributed(make_head()))
    with pytest.raises(ValueError, match="TimeDistributed"):
        compiled(model).train_on_batch(X, Y[:, None])
    with pytest.raises(ValueError, match=WRONG):
        compiled(model, KERAS_LOSS).train_on_batch(X, Y[:, None])
