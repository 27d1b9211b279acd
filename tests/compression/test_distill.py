"""Compressed tables learn the outputs of another model, without labels."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compressing import codes
from errors import refused

import keras_compembed as kc

layers = keras.layers
distill = kc.compression.distill
RNG = np.random.default_rng(0)
# A few ids of 60 are most of the text.
X, NEW = np.split(np.minimum(RNG.geometric(0.1, size=(420, 5)), 59), [320])


def make_model(activation=None, how=None):
    """A model and a small copy, the same each time."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5,), dtype="int32")
    normal = keras.initializers.RandomNormal(stddev=1.0)
    table = layers.Embedding(60, 8, embeddings_initializer=normal, name="words")
    mean = layers.GlobalAveragePooling1D(name="mean")(table(inputs))
    outputs = layers.Dense(6, activation=activation)(layers.Dropout(0.5)(mean))
    model = keras.Model(inputs, outputs)
    small = kc.compress_model(
        model, how or codes(), layers=["words"], seed=0, verbose=0
    )
    return model, small


def train(small, model, inputs=X, **kwargs):
    options = {"epochs": 4, "seed": 0, "verbose": 0, **kwargs}
    optimizer = options.pop("optimizer", None) or keras.optimizers.Adam(0.01)
    return distill(small, model, inputs, optimizer=optimizer, **options)


def apart(small, model, inputs=NEW):
    """Mean squared error of the outputs, relative to their mean square."""
    given, found = (x.predict(inputs, verbose=0) for x in (model, small))
    return np.square(given - found).mean() / np.square(given).mean()


@pytest.mark.parametrize(
    "activation, how, most",
    [
        (None, codes(), 0.6),
        ("softmax", codes(), 0.6),
        (None, kc.methods.Anchors(4, 2), 0.9),
        ("softmax", kc.methods.Quantized(2, rank=2), 1),
        (None, kc.methods.Quantized(2, learn_rows=True), 0.8),
    ],
)
def test_outputs_get_nearer(activation, how, most):
    model, small = make_model(activation, how)
    before, flags = apart(small, model), [x.trainable for x in small.weights]
    start = small.get_weights()
    history = train(small, model)
    assert len(history.history["val_loss"]) == 4
    assert apart(small, model) < most * before
    table = {x.path for x in small.get_layer("words").weights}
    for weight, value in zip(small.weights, start, strict=True):
        if weight.path not in table:
            np.testing.assert_array_equal(weight, value, err_msg=weight.path)
    assert flags == [x.trainable for x in small.weights]
    assert not small.compiled


def test_named_layers_several_outputs_and_all_weights():
    model, small = make_model()
    both = [
        keras.Model(
            x.input, {"mean": x.get_layer("mean").output, "out": x.output}
        )
        for x in (small, model)
    ]
    before = apart(small, model)
    train(*both)
    assert apart(small, model) < 0.9 * before
    model, small = make_model()
    kept = small.layers[-1].get_weights()
    history = train(small, model, layer="mean").history["val_loss"]
    np.testing.assert_array_equal(small.layers[-1].kernel, kept[0])
    assert history[-1] < history[0]
    train(small, model, train_all=True)
    assert np.any(small.layers[-1].kernel != kept[0])


@pytest.mark.parametrize(
    "loss",
    # By its name, Keras 3.15 compares logits as if they were probabilities.
    [
        None,
        keras.distillation.LogitsDistillation(1.0, keras.losses.KLDivergence()),
    ],
)
def test_logits_are_compared_by_their_divergence(loss):
    model, small = make_model()
    if loss is None:
        crossentropy = keras.losses.SparseCategoricalCrossentropy
        model.compile(loss=crossentropy(from_logits=True))
    options = {"loss": loss, "validation_inputs": NEW}
    losses = train(small, model, **options).history["val_loss"]
    given, found = (
        keras.ops.softmax(x.predict(NEW, verbose=0)) for x in (model, small)
    )
    divergence = np.sum(given * np.log(given / found), axis=-1).mean()
    np.testing.assert_allclose(min(losses), divergence, rtol=1e-4)
    assert min(losses) < losses[0]


def test_rows_of_classes():
    """Features alone, the outputs of the model, would train nothing."""
    vectors = RNG.normal(size=(420, 8)).astype("float32")
    normal = keras.initializers.RandomNormal(stddev=1.0, seed=0)
    rows = layers.Embedding(60, 8, embeddings_initializer=normal, name="rows")
    head = kc.CANESoftmax(60, class_embedding=rows)
    model = keras.Sequential([keras.Input((8,)), head])
    small = kc.compress_model(model, codes(), ["rows"], seed=0, verbose=0)
    pair = [kc.top_k_model(each, k=None) for each in (small, model)]
    pair = [keras.Model(x.input, x.output["probabilities"]) for x in pair]
    before = apart(*pair, vectors[320:])
    train(small, model, vectors[:320])
    assert apart(*pair, vectors[320:]) < 0.8 * before
    # Losses get the probabilities, not a dict of them.
    loss = keras.distillation.LogitsDistillation()
    assert train(small, model, vectors, loss=loss, epochs=1).epoch == [0]


@pytest.mark.parametrize("held", [None, tf.data.Dataset.from_tensors(NEW)])
def test_datasets(held):
    model, small = make_model()
    before = apart(small, model)
    data = tf.data.Dataset.from_tensor_slices((X, X[:, 0])).batch(32)
    history = train(small, model, data, validation_inputs=held)
    assert ("val_loss" in history.history) == (held is not None)
    assert apart(small, model) < 0.9 * before


@pytest.mark.parametrize("length", [5, None])
def test_texts(tmp_path, length):
    """Without a length, the outputs depend on the longest text of a batch."""
    model, _ = make_model()
    text = keras.Input((), dtype="string")
    words = [f"word{number}" for number in range(58)]
    ids = layers.TextVectorization(
        vocabulary=words, output_sequence_length=length
    )(text)
    rows = model.get_layer("words")(ids)
    mean = model.layers[-1](model.get_layer("mean")(rows))
    model = keras.Model(text, [mean, layers.Dense(2)(rows)])
    how = kc.methods.Quantized(8, learn_rows=True)
    small = kc.compress_model(model, how, ["words"], seed=0, verbose=0)
    texts = [
        " ".join(f"word{number}" for number in row[: RNG.integers(1, 6)])
        for row in X
    ]
    path = tmp_path / "model.keras"
    history = train(
        small,
        model,
        texts,
        optimizer=keras.optimizers.Adam(1e-4),
        batch_size=4,
        callbacks=[keras.callbacks.ModelCheckpoint(path)],
    ).history
    # 8 bits are nearly as good as the table.
    assert max(history["loss"] + history["val_loss"]) < 1e-3
    saved = keras.saving.load_model(path)
    one, same = (x(tf.constant(texts[:3]))[0] for x in (small, saved))
    np.testing.assert_allclose(one, same, atol=0.01)


def test_texts_and_numbers():
    text, numbers = (
        keras.Input((), dtype="string", name="text"),
        keras.Input((3,)),
    )
    ids = layers.TextVectorization(vocabulary=["a", "b"])(text)
    rows = layers.Embedding(60, 8, name="words", mask_zero=True)(ids)
    mean = layers.GlobalAveragePooling1D()(rows)
    outputs = layers.Dense(6)(layers.Concatenate()([mean, numbers]))
    model = keras.Model([text, numbers], outputs)
    inputs = [["a b a", "b"] * 10, RNG.normal(size=(20, 3))]
    small = kc.compress_model(
        model, codes(), ["words"], sample_inputs=inputs, verbose=0
    )
    assert len(train(small, model, inputs).epoch) == 4


def test_two_devices(strategy):
    _, one = make_model()
    model, _ = make_model()
    with strategy.scope():
        two = kc.compress_model(
            model, codes(), layers=["words"], seed=0, verbose=0
        )
        for variable, same in zip(two.variables, one.variables, strict=True):
            variable.assign(same)
    options = {"shuffle": False, "batch_size": 16, "verbose": 0}
    losses = [
        distill(small, model, X, **options).history["loss"]
        for small in (one, two)
    ]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    np.testing.assert_allclose(
        one.get_layer("words").embeddings,
        two.get_layer("words").embeddings,
        atol=1e-5,
    )


def test_half_precision():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model, small = make_model()
    finally:
        keras.config.set_dtype_policy("float32")
    before = apart(small, model)
    train(small, model)
    assert apart(small, model) < 0.9 * before


def test_repeats_with_a_seed():
    losses = [train(*make_model()[::-1]).history["loss"] for _ in range(2)]
    assert losses[0] == losses[1]


def test_no_epoch_is_better():
    model, small = make_model()
    before = small.get_weights()
    train(small, model, optimizer=keras.optimizers.SGD(1e6))
    for weight, value in zip(small.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


class Stop(keras.callbacks.Callback):
    """Ctrl-C in the second epoch."""

    def on_train_batch_begin(self, batch, logs=None):
        if self.model.optimizer.iterations > 12:
            raise KeyboardInterrupt


def test_interrupts():
    model, small = make_model()
    before = apart(small, model)
    history = train(small, model, callbacks=[Stop()])
    assert len(history.history["loss"]) == 1
    assert apart(small, model) < before


def test_budget():
    model, _ = make_model()
    ways = [codes(), kc.methods.Quantized(2, rank=3), kc.methods.Anchors(4, 2)]
    found = []
    for inputs in (None, np.tile(X, (8, 1))):
        budget = kc.Budget("9k", methods=ways, quantize=None, inputs=inputs)
        small = kc.compress_model(
            model, budget, ["words"], seed=0, sample_inputs=X, verbose=0
        )
        found.append(apart(small, model))
    assert found[1] < 0.9 * found[0]
    scores = [x.score for x in budget.frontier.points if x.score is not None]
    assert len(scores) > 1 and budget.frontier.chosen.score == min(scores)
    assert not any(x.name == "latent_rows" for x in small.weights)


@pytest.mark.parametrize(
    "options, argument",
    [
        ({"data": kc.compression.TuningData(None, (X, X))}, "inputs"),
        ({"inputs": tf.data.Dataset.from_tensors(X)}, "inputs"),
        ({"inputs": X[:9]}, "inputs"),
    ],
)
def test_budget_refuses(options, argument):
    with refused(argument):
        kc.Budget("9k", **{"inputs": X, **options})


def nan_model():
    model, small = make_model()
    model.layers[-1].bias.assign(np.full(6, np.nan))
    return small, model


def other_width():
    small = make_model()[1]
    return small, keras.Sequential([keras.Input((5,)), layers.Dense(7)])


@pytest.mark.parametrize(
    "make, options, argument, received",
    [
        (None, {"inputs": X[:0]}, "inputs", "lengths=[0]"),
        (None, {"inputs": None}, "inputs", "lengths=[0]"),
        (None, {"inputs": X, "validation_inputs": X[:0]}, "inputs", "[0]"),
        (None, {"inputs": X[:, :3]}, "inputs", None),
        (None, {"layer": "words2"}, "layer", "words2"),
        (None, {"loss": "mse"}, "loss", "mse"),
        (
            None,
            {"loss": keras.distillation.FeatureDistillation("mse", "mean")},
            "loss",
            None,
        ),
        (None, {"epochs": 0}, "epochs", "0"),
        (None, {"validation_split": 0.1}, "distill", "validation_split"),
        (nan_model, {}, "model", "NaN"),
        (other_width, {}, "small", "(32, 6)"),
        (lambda: (make_model()[0],) * 2, {}, "small", None),
        (
            lambda: make_model(how=kc.methods.Quantized(4))[::-1],
            {},
            "small",
            None,
        ),
    ],
)
def test_refuses(make, options, argument, received):
    small, model = make() if make else make_model()[::-1]
    with refused(argument, received):
        train(small, model, **options)
