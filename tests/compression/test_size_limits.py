"""`compress_model` with a limit in place of settings."""

import contextlib
import re
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from errors import warned

import keras_compembed as kc
from keras_compembed.compression import BudgetSearch
from keras_compembed.compression import find_frontier
from keras_compembed.methods import Anchors
from keras_compembed.methods import Codes
from keras_compembed.methods import Rounded
from keras_compembed.methods.method import Fit

layers = keras.layers
METHODS = [Codes(2, 8), Rounded(2, rank=4), Rounded(2), Rounded(4)]
IDS = np.random.default_rng(1).integers(0, 400, size=(128, 6), dtype="int32")


@pytest.fixture(scope="module")
def model():
    """Its rows have a few large axes; its own classes are the labels."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(400, 16, name="words"),
            # What is behind it is not folded.
            layers.Activation("tanh"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(2, activation="softmax"),
        ]
    )
    loss, metrics = "sparse_categorical_crossentropy", ["accuracy"]
    sgd = keras.optimizers.SGD(0.1)
    model.compile(sgd, loss, metrics=metrics, run_eagerly=True)
    rows = np.random.default_rng(0).normal(size=(400, 16))
    model.layers[0].embeddings.assign(rows * 1.4 ** -np.arange(16.0))
    return model


@pytest.fixture(scope="module")
def data(model):
    return IDS, np.argmax(model(IDS), axis=-1)


def make_search(**kwargs):
    return BudgetSearch(**{"methods": METHODS, "quantize": "int8", **kwargs})


def compress(model, search=None, **kwargs):
    return kc.compression.compress_model(
        model,
        search=search,
        **{"seed": 0, "verbose": 0, "min_bytes": 0} | kwargs,
    )


def file_bytes(model, tmp_path, quantize="int8"):
    path = tmp_path / "model.tflite"
    options = {"quantize": quantize, "overwrite": True, "verbose": 0}
    return kc.export.export_litert(model, path, **options).file_bytes


def error_of(model, small):
    """Squares that rows lose, over those about their mean."""
    rows = np.asarray(small.get_layer("words").embeddings)
    table = model.get_layer("words").embeddings.numpy()
    lost = ((rows - table) ** 2).sum()
    return lost / ((table - table.mean(axis=0)) ** 2).sum()


@pytest.fixture(scope="module")
def sizes(model):
    """Points of the frontier by method."""
    found = find_frontier(model, make_search(), min_bytes=0, verbose=0)
    return {point.name: point for point in found}


def test_frontier_has_all_sizes(model, sizes, tmp_path):
    assert set(sizes) == {method.name for method in METHODS}
    ranked = sorted(sizes, key=lambda name: sizes[name].error)
    assert ranked[0] == "int4" and ranked[-1] == "codes 2x8"
    small, point = compress(model, method=Rounded(2)), sizes["int2"]
    assert point.error == pytest.approx(error_of(model, small), 1e-3)
    assert point.is_exported
    assert point.file_bytes == file_bytes(small, tmp_path)


def test_best_within_a_limit_is_taken(model, sizes, tmp_path):
    limit = sizes["int2"].file_bytes
    search = make_search()
    small = compress(model, search, max_bytes=limit)
    assert search.frontier.limit_bytes == limit
    chosen = search.frontier.chosen
    # As many bytes as allowed are not too many.
    assert file_bytes(small, tmp_path) == chosen.file_bytes <= limit
    assert chosen.is_exported and small.compiled
    within = [x for x in sizes.values() if x.file_bytes <= limit]
    assert chosen.name == min(within, key=lambda x: x.error).name
    # It is fit to the table, with care.
    assert chosen.error == pytest.approx(error_of(model, small), 1e-3)
    # No time for more than the smallest.
    search = make_search(max_time=1e-6)
    compress(model, search, max_bytes=limit)
    assert len(search.frontier) == 1 and search.frontier.chosen.error > 0


def test_settings_by_default_come_near_to_the_limit(model, sizes, tmp_path):
    limit = sizes["int2"].file_bytes
    search = BudgetSearch(quantize="int8")
    small = compress(model, search, max_bytes=limit)
    assert 0.97 * limit <= file_bytes(small, tmp_path) <= limit
    # No worse than what one would think of first.
    assert search.frontier.chosen.error <= sizes["int2"].error


def test_nothing_fits(model, sizes):
    methods = [METHODS[2], METHODS[0]]
    smallest = min(
        (sizes[method.name] for method in methods), key=lambda x: x.file_bytes
    )
    with refused("max_bytes", 500) as caught:
        compress(model, make_search(methods=methods), max_bytes=500)
    expected = rf"{smallest.file_bytes:,} bytes.* {smallest.name}, .* \d+%"
    assert re.search(expected, str(caught.value))
    with refused("ratio", "1000"):
        compress(model, make_search(methods=methods[1:]), ratio=1000)


def test_ratio_is_of_files_and_a_seed_gives_the_same(model, tmp_path):
    original = file_bytes(model, tmp_path, None)
    found = []
    for _ in range(2):
        search = make_search(methods=METHODS[:1])
        small = compress(model, search, ratio=2)
        found.append(search.frontier)
    assert found[0] == found[1]
    assert found[0].original_bytes == original
    assert found[0].limit_bytes == original // 2
    assert file_bytes(small, tmp_path) <= original / 2


def test_tables_share_bytes(tmp_path):
    ids = keras.Input((6,), dtype="int32")
    rows = [layers.Embedding(400, 8, name=name) for name in ("large", "still")]
    model = keras.Model(ids, [keras.ops.tanh(layer(ids)) for layer in rows])
    rng = np.random.default_rng(0)
    for layer, scale in zip(rows, (1, 0.01), strict=True):
        layer.embeddings.assign(scale * rng.normal(size=(400, 8)))
    methods = [Rounded(2), Rounded(8)]
    settings = {
        "large": {"method": methods[1]},
        "still": {"method": methods[0]},
    }
    # Less than what more bits of a row take.
    small = compress(model, layer_settings=settings)
    limit = file_bytes(small, tmp_path) + 700
    search = make_search(methods=methods)
    small = compress(model, search, max_bytes=limit)
    best = {"large": "int8", "still": "int2"}
    assert search.frontier.chosen.methods == best
    assert file_bytes(small, tmp_path) <= limit
    # No room for more than the smallest of each.
    smallest = min(search.frontier, key=lambda x: x.file_bytes)
    compress(model, search, max_bytes=smallest.file_bytes + 300)
    assert search.frontier.chosen.methods == dict.fromkeys(best, "int2")
    limit = smallest.file_bytes - 1
    with refused("max_bytes", limit):
        compress(model, search, max_bytes=limit)


# With data.


def tuning(data, **kwargs):
    return make_search(train_data=data, validation_data=data, **kwargs)


def test_best_after_tuning_is_taken(model, sizes, data):
    # Rows are trained meanwhile.
    trained = []
    callback = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: trained.append(
            callback.model.get_layer("words").learn_rows
        )
    )
    fit_options = {"batch_size": 64, "callbacks": [callback]}
    options = {"epochs": 2, "num_tuned": 2, "fit_options": fit_options}
    search = tuning(data, methods=METHODS[1:3], **options)
    small = compress(model, search, max_bytes=sizes["int4"].file_bytes)
    found = search.frontier
    tuned = [x.score for x in found if x.score is not None]
    assert len(tuned) == 2 and found.chosen.score == max(tuned)
    _, score = small.evaluate(*data, verbose=0)
    assert score == pytest.approx(found.chosen.score)
    assert found.metric == "accuracy" and found.original_score == 1
    assert trained and all(trained)
    # What only training needs is gone.
    assert not getattr(small.get_layer("words"), "learn_rows", False)


def test_training_is_one_fit(model, sizes, data):
    """Schedules, and data without an end, go on from epoch to epoch."""
    begun = []
    callbacks = [
        keras.callbacks.LearningRateScheduler(lambda epoch, _: 0.1 / 2**epoch),
        keras.callbacks.LambdaCallback(
            on_train_begin=lambda logs: begun.append("training"),
            on_epoch_begin=lambda epoch, logs: begun.append(epoch),
        ),
    ]
    search = make_search(
        methods=[Rounded(4)],
        train_data=tf.data.Dataset.from_tensors(data).repeat(),
        validation_data=data,
        epochs=4,
        num_tuned=1,
        fit_options={"steps_per_epoch": 3, "callbacks": callbacks},
    )
    small = compress(
        model,
        search,
        # Trained rows may take more.
        max_bytes=sizes["int4"].file_bytes + 500,
        layer_settings={"words": {"sample_weight": np.ones(400)}},
    )
    assert begun == ["training", 0, 1, 2, 3]
    assert float(small.optimizer.learning_rate) == pytest.approx(0.0125)


def test_smallest_within_a_loss(model, data):
    search = make_search(methods=METHODS[2:], num_tuned=1, validation_data=data)
    small = compress(model, search, max_loss=0.1)
    _, score = small.evaluate(*data, verbose=0)
    chosen = search.frontier.chosen
    assert score == pytest.approx(chosen.score) and score >= 0.9
    for point in search.frontier:
        if point.score is not None and point.score >= 0.9:
            assert chosen.file_bytes <= 1.15 * point.file_bytes
    search = make_search(methods=METHODS[:1], validation_data=data)
    with refused("max_loss", "accuracy is 1.0000"):
        compress(model, search, max_loss=0.001)


def test_file_is_counted_after_tuning(data, tmp_path):
    """Equal constants, which files hold once, come to differ."""
    ids = keras.Input((6,), dtype="int32")
    x = keras.ops.tanh(layers.Embedding(400, 16, name="words")(ids))
    x = layers.GlobalAveragePooling1D()(x)
    equal = [layers.Dense(64, "tanh", kernel_initializer="ones") for _ in "ab"]
    x = layers.Concatenate()([layer(x) for layer in equal])
    model = keras.Model(ids, layers.Dense(2, "softmax")(x))
    loss = "sparse_categorical_crossentropy"
    model.compile("sgd", loss, run_eagerly=True)
    limit = file_bytes(compress(model, method=METHODS[1]), tmp_path)
    search = tuning(data, methods=METHODS[1:2], epochs=1)
    small = compress(model, search, max_bytes=limit)
    chosen = search.frontier.chosen
    assert file_bytes(small, tmp_path) == chosen.file_bytes <= limit
    assert chosen.score is None and small.compiled


def test_rows_count_by_how_often_they_are_trained_on():
    ids = {x: keras.Input((2,), dtype="int32", name=x) for x in "ba"}
    words = layers.Embedding(40, 4, name="words")(ids["a"] + 1)
    # In another order than a dict is flattened in.
    outputs = [words, layers.Embedding(9, 4)(ids["b"])]
    model = keras.Model(list(ids.values()), outputs)
    model.compile("sgd", "mse", run_eagerly=True)
    x = {"a": np.full((3, 2), 7), "b": np.full((3, 2), 8)}
    data = x, np.zeros((3, 2, 4))
    weight = np.ones(40)
    weight[8] = np.sqrt(1 + 6)

    def error(data=None, **settings):
        both = {"train_data": data, "validation_data": data}
        search = BudgetSearch([Rounded(2)], **both)
        found = find_frontier(
            model, search, ["words"], {"words": settings}, verbose=0
        )
        return found.points[0].error

    expected = error(sample_weight=weight)
    for each in data, tf.data.Dataset.from_tensors(data):
        assert error(each) == pytest.approx(expected, 1e-6)
    assert abs(error() - expected) > 1e-3 * expected


# Which values of a metric are better.


def my_accuracy(y, scores):
    return keras.ops.cast(keras.ops.abs(y - scores) < 1e-3, "float32")


def goodness(y, scores):
    return scores


@pytest.fixture(scope="module")
def measured():
    """A model whose labels are what it gives, with many metrics."""
    ids = keras.Input((3,), dtype="int32")
    words = layers.Embedding(40, 8, embeddings_initializer="normal")
    head = layers.Dense(1, "sigmoid", name="head")
    model = keras.Sequential([ids, words, layers.Flatten(), head])
    far = keras.metrics.MeanAbsoluteError(name="far_accuracy")
    hits = keras.metrics.R2Score(name="hits_loss_of_none")
    metrics = [far, hits, my_accuracy, goodness]
    model.compile("sgd", "mse", metrics=metrics, run_eagerly=True)
    ids = np.arange(120).reshape(40, 3) % 40
    return model, (ids, np.asarray(model(ids)))


@pytest.mark.parametrize(
    "metric", ["loss", "far_accuracy", "hits_loss_of_none", "my_accuracy"]
)
def test_better_is_what_keras_says(metric, measured):
    model, data = measured
    methods = [Rounded(2), Rounded(8)]
    options = {"validation_data": data, "num_tuned": 2, "metric": metric}
    search = BudgetSearch(methods, **options)
    compress(model, search, max_bytes=10**6)
    assert search.frontier.chosen.name == "int8"
    scores = {point.name: point.score for point in search.frontier}
    assert scores["int8"] != scores["int2"]


def test_metrics_that_are_not_known(measured):
    model, data = measured
    for metric, argument in (("goodness", "mode"), ("recall", "metric")):
        search = BudgetSearch(validation_data=data, metric=metric)
        with refused(argument, metric):
            compress(model, search, max_bytes=9000)


def test_callbacks_of_keras_know_metrics_of_classes():
    model = keras.Sequential([keras.Input((3,)), kc.CANESoftmax(5)])
    metrics = [kc.Perplexity(), kc.ClassAccuracy(), kc.ClassAccuracy(k=2)]
    model.compile("sgd", kc.CANELoss(), metrics=metrics, run_eagerly=True)
    stops = [
        keras.callbacks.EarlyStopping(f"val_{name}")
        for name in ("perplexity", "accuracy", "top_2_accuracy")
    ]
    data = np.ones((4, 3)), np.ones(4)
    model.fit(*data, validation_data=data, callbacks=stops, verbose=0)
    is_less = [bool(stop.monitor_op(1, 2)) for stop in stops]
    assert is_less == [True, False, False]


# Ctrl-C.


class Pressed(Rounded):
    """Ctrl-C is pressed in some of its fits, by number."""

    def __init__(self, bits, fits):
        super().__init__(bits)
        self.fits, self.count = fits, 0

    def start(self, seed=None, verbose=0):
        fit = super().start(seed, verbose)

        def from_table(*args, **kwargs):
            self.count += 1
            if self.count in self.fits:
                signal.raise_signal(signal.SIGINT)
            return fit.from_table(*args, **kwargs)

        return Fit(fit.options, from_table)


def test_interrupt_keeps_the_best_so_far(model, sizes, capsys):
    search = make_search(methods=[*METHODS[1:3], Pressed(4, [1])])
    with warned("interrupted"):
        compress(model, search, max_bytes=sizes["int4"].file_bytes, verbose=1)
    errors = {x.name: x.error for x in search.frontier if x.error is not None}
    assert set(errors) == {"int2", "int2 rank 4"}
    assert search.frontier.chosen.name == min(errors, key=errors.get)
    assert "Interrupted" in capsys.readouterr().out


def test_interrupt_before_anything_is_known(model, sizes, tmp_path):
    limit = sizes["int4"].file_bytes
    with pytest.raises(KeyboardInterrupt):
        search = make_search(methods=[Pressed(4, range(99))])
        compress(model, search, max_bytes=limit)
    # Once: what fits is fit all the same, also what is fit with care.
    pressed = Pressed(4, [1])
    with warned("interrupted"):
        small = compress(model, make_search(methods=[pressed]), max_bytes=limit)
    assert file_bytes(small, tmp_path) <= limit
    pressed = Pressed(4, [2])
    with warned("interrupted"):
        compress(model, make_search(methods=[pressed]), max_bytes=limit)
    assert pressed.count == 3


def test_interrupt_ends_training(model, sizes, data):
    def press(epoch, logs):
        if epoch == 1:
            signal.raise_signal(signal.SIGINT)

    press = keras.callbacks.LambdaCallback(on_epoch_end=press)
    options = {"num_tuned": 2, "fit_options": {"callbacks": [press]}}
    search = tuning(data, methods=METHODS[1:3], **options)
    with warned("interrupted"):
        small = compress(model, search, max_bytes=sizes["int4"].file_bytes)
    # The second is not trained.
    (chosen,) = (x for x in search.frontier if x.score is not None)
    assert chosen == search.frontier.chosen
    _, score = small.evaluate(*data, verbose=0)
    assert score == pytest.approx(chosen.score)


def test_copies_that_were_not_trained_are_compiled_as_asked(model, sizes, data):
    calls = []

    def compile(copy):
        calls.append(copy)
        # Before anything was evaluated.
        if len(calls) == 2:
            raise KeyboardInterrupt
        copy.compile("adam", "sparse_categorical_crossentropy")

    for given in ({}, {"validation_data": data, "mode": "min"}):
        search = make_search(methods=METHODS[2:3], compile=compile, **given)
        limit = sizes["int2"].file_bytes
        with warned("interrupted") if given else contextlib.nullcontext():
            copy = compress(model, search, max_bytes=limit)
        assert type(copy.optimizer) is keras.optimizers.Adam
    assert len(calls) == 3


# What is refused.


def test_limits_are_checked_first(model):
    # For a loss there must be data.
    bad = {"max_bytes": (0, 10.5), "ratio": (1, "x"), "max_loss": (-1, 0.1)}
    for name, values in bad.items():
        for value in values:
            with refused(name, value):
                compress(model, **{name: value})
    with refused("max_bytes", "none"):
        compress(model, search=BudgetSearch())


def test_limits_come_alone(model):
    others = {"ratio": 2, "method": Rounded(4), "num_codebooks": 8}
    # Those by default are no less given.
    others |= {"codebook_size": 16, "recode_every": 8}
    for name, value in others.items():
        with refused(name):
            compress(model, max_bytes=9, **{name: value})


def test_options_are_checked():
    endless = tf.data.Dataset.from_tensors(1).repeat()
    bad = {
        "methods": ([], [Codes(2, 8), Codes(2, 8, effort=2)]),
        "validation_data": (endless, [1], (IDS, IDS[1:]), (IDS[:0], IDS[:0])),
        "quantize": ("int4",),
        "min_runtime": (2,),
        "epochs": (0,),
        "num_tuned": (0,),
        "mode": ("up",),
        "max_time": (0,),
        "compile": (3,),
        "fit_options": ({"epochs": 1},),
    }
    for name, values in bad.items():
        for value in values:
            with refused(name, ""):
                BudgetSearch(**{name: value})


def test_other_objects_are_refused(model, data):
    with refused("validation_data", None):
        BudgetSearch(train_data=data)
    with refused("methods", "int8", TypeError):
        BudgetSearch(methods=["int8"])
    with refused("search", "int8", TypeError):
        compress(model, search="int8", max_bytes=1000)
    loose = keras.Sequential([keras.Input((2,)), layers.Embedding(9, 2)])
    with refused("model", "not compiled"):
        compress(loose, make_search(validation_data=data), max_loss=0.1)
    with pytest.raises(ValueError, match="no method"):
        search = make_search(methods=[Anchors(500, 2)])
        compress(model, search, max_bytes=9000)
