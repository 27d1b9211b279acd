"""Losses and metrics that models over classes may be compiled with."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.baselines import AdaptiveSoftmax
from keras_compembed.baselines import FullSoftmaxLoss

CLASSES, WIDTH, ROWS = 30, 4, 6
WRONG = "features, not scores of classes"


def make_head(name="classes"):
    return kc.CANESoftmax(CLASSES, num_candidates=4, num_noises=4, name=name)


def sequential(head):
    return keras.Sequential([keras.Input((WIDTH,)), head])


def functional(head):
    inputs = keras.Input((WIDTH,))
    return keras.Model(inputs, {"words": head(inputs)})


def nested(head):
    inputs = keras.Input((WIDTH,))
    return keras.Model(inputs, sequential(head)(inputs))


class Subclassed(keras.Model):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def call(self, inputs, training=False):
        return self.head(inputs)


ARRANGED = {
    "list": lambda words, parts: [words, parts],
    "dict": lambda words, parts: {"words": words, "parts": parts},
    "nested": lambda words, parts: {"all": {"words": words, "parts": parts}},
}


class WithParts(keras.Model):
    """Two outputs, of which one comes from a layer of classes."""

    def __init__(self, head, arrange):
        super().__init__()
        self.head = head
        self.parts = keras.layers.Dense(3, activation="softmax")
        self.arrange = arrange

    def call(self, inputs, training=False):
        return self.arrange(self.head(inputs), self.parts(inputs))


def functional_with_parts(head, arrange):
    inputs = keras.Input((WIDTH,))
    parts = keras.layers.Dense(3, activation="softmax", name="parts")(inputs)
    return keras.Model(inputs, arrange(head(inputs), parts))


def wrapped(head):
    inputs = keras.Input((WIDTH,))
    steps = keras.layers.RepeatVector(1)(inputs)
    return keras.Model(inputs, keras.layers.TimeDistributed(head)(steps))


def half(head):
    return keras.Sequential(
        [
            keras.Input((WIDTH,)),
            keras.layers.Dense(WIDTH, dtype="float16"),
            head,
        ]
    )


def data():
    x = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype("float32")
    # Also labels that would do for scores of as many classes as features.
    return x, np.arange(ROWS) % WIDTH


def mean_feature(y_true, y_pred):
    return tf.reduce_mean(y_pred, axis=-1)


class Norms(keras.metrics.Mean):
    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(tf.norm(y_pred, axis=-1))


CROSSENTROPIES = [
    "sparse_categorical_crossentropy",
    "crossentropy",
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
]


# Of logits, Keras says first that they cannot be any.
@pytest.mark.filterwarnings("ignore:.*received `from_logits=True`")
@pytest.mark.parametrize("method", ["train_on_batch", "test_on_batch"])
@pytest.mark.parametrize("loss", CROSSENTROPIES)
@pytest.mark.parametrize(
    "make", [sequential, functional, nested, Subclassed, half]
)
def test_losses_of_keras(make, loss, method):
    model = make(make_head())
    model.compile("sgd", loss, run_eagerly=True)
    with pytest.raises(ValueError, match=f"{WRONG}.*CANELoss"):
        getattr(model, method)(*data())


@pytest.mark.parametrize(
    "metric",
    [
        "accuracy",
        "acc",
        "sparse_top_k_categorical_accuracy",
        keras.metrics.SparseCategoricalAccuracy(name="mine"),
        keras.metrics.sparse_categorical_accuracy,
    ],
)
@pytest.mark.parametrize("argument", ["metrics", "weighted_metrics"])
@pytest.mark.parametrize("make", [sequential, functional, nested, Subclassed])
def test_metrics_of_keras(make, argument, metric):
    model = make(make_head())
    parts = {argument: [kc.ClassAccuracy(), metric]}
    model.compile("sgd", kc.CANELoss(), run_eagerly=True, **parts)
    for method in (model.train_on_batch, model.test_on_batch):
        with pytest.raises(ValueError, match=f"`{argument}` must.*{WRONG}"):
            method(*data())


def test_fit_and_evaluate_in_graphs():
    x, y = data()
    head = AdaptiveSoftmax(CLASSES, [5])
    model = sequential(head)
    model.compile("sgd", FullSoftmaxLoss(), metrics=["accuracy"])
    for method in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="AdaptiveSoftmax.*ClassAccuracy"):
            method(x, y, verbose=0)
    # Features are what they are.
    np.testing.assert_array_equal(model.predict(x, verbose=0), x)
    model.compile("sgd", "sparse_categorical_crossentropy")
    before = head.get_weights()
    with pytest.raises(ValueError, match=WRONG):
        model.fit(x, y, verbose=0)
    for weight, right in zip(head.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, right)
    model.compile("sgd", FullSoftmaxLoss(), metrics=[kc.ClassAccuracy()])
    model.fit(x, y, verbose=0)


def test_two_devices(strategy):
    with strategy.scope():
        model = sequential(make_head())
        model.compile("sgd", kc.CANELoss(), metrics=["accuracy"])
    with pytest.raises(ValueError, match=WRONG):
        model.fit(*data(), verbose=0)


def test_own_loops():
    x, y = data()
    outputs = make_head()(x, training=True)
    for function in (
        keras.losses.sparse_categorical_crossentropy,
        keras.losses.SparseCategoricalCrossentropy(),
    ):
        with pytest.raises(ValueError, match=WRONG):
            function(y, outputs)


def test_what_knows_features():
    """Functions of users, and models that go on after the layer."""
    x, y = data()
    model = sequential(make_head())
    model.compile(
        "sgd",
        kc.CANELoss(),
        metrics=[mean_feature, Norms()],
        run_eagerly=True,
    )
    logs = model.train_on_batch(x, y, return_dict=True)
    np.testing.assert_allclose(logs["mean_feature"], x.mean(), rtol=1e-4)
    model.compile("sgd", mean_feature, run_eagerly=True)
    model.test_on_batch(x, y)
    further = keras.Sequential(
        [model, keras.layers.Dense(WIDTH, activation="softmax")]
    )
    further.compile(
        "sgd",
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        run_eagerly=True,
    )
    further.test_on_batch(x, y)


@pytest.mark.parametrize("make", [functional_with_parts, WithParts])
@pytest.mark.parametrize("arrange", ARRANGED.values(), ids=ARRANGED.keys())
def test_several_outputs(arrange, make):
    x, y = data()
    theirs = "sparse_categorical_crossentropy"
    model = make(make_head("words"), arrange)

    def train(words, parts, argument="metrics", arrange_parts=arrange):
        model.compile(
            "sgd",
            arrange(kc.CANELoss(), theirs),
            run_eagerly=True,
            **{argument: arrange_parts(words, parts)},
        )
        return model.train_on_batch(x, arrange(y, y % 3), return_dict=True)

    logs = train([kc.ClassAccuracy()], ["accuracy"])
    assert sum("accuracy" in name for name in logs) == 2, logs
    train(None, ["accuracy"])
    for argument in ("metrics", "weighted_metrics"):
        named = f"`{argument}` must.*'words' is: {WRONG}"
        with pytest.raises(ValueError, match=named):
            train(["accuracy"], ["accuracy"], argument)
    if arrange is ARRANGED["list"]:
        model.compile("sgd", theirs, run_eagerly=True)
        with pytest.raises(ValueError, match=f"'words' is:? {WRONG}"):
            model.train_on_batch(x, [y, y % 3])
        if make is functional_with_parts:
            with pytest.raises(ValueError, match=f"`metrics` must.*{WRONG}"):
                train(["accuracy"], None, arrange_parts=ARRANGED["dict"])
    if arrange is ARRANGED["dict"]:
        # Keras takes lists too, in the order of sorted keys.
        def in_order(words, parts):
            return [parts, words]

        train([kc.ClassAccuracy()], ["accuracy"], arrange_parts=in_order)
        with pytest.raises(ValueError, match=f"`metrics` must.*{WRONG}"):
            train(["accuracy"], None, arrange_parts=in_order)


def test_casts_lose_the_mark():
    cast = keras.layers.Lambda(lambda x: tf.cast(x, "float64"))
    model = keras.Sequential([keras.Input((WIDTH,)), make_head(), cast])
    model.compile("sgd", kc.CANELoss(), run_eagerly=True)
    with pytest.raises(ValueError, match="without a cast"):
        model.train_on_batch(*data())


def test_time_distributed():
    x, y = data()
    model = wrapped(make_head())
    model.compile("sgd", kc.CANELoss(), run_eagerly=True)
    with pytest.raises(ValueError, match="such as `TimeDistributed` .it takes"):
        model.train_on_batch(x, y[:, None])
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    with pytest.raises(ValueError, match=WRONG):
        model.train_on_batch(x, y[:, None])
