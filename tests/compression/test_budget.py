"""`compress_model` with a budget in place of a method."""

import re
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from errors import warned

import keras_compembed as kc
from keras_compembed.compression import TuningData
from keras_compembed.compression import find_frontier
from keras_compembed.methods import Anchors
from keras_compembed.methods import Codes
from keras_compembed.methods import Quantized
from keras_compembed.methods.method import Fit

layers = keras.layers
METHODS = [Codes(2, 8), Quantized(2, rank=4), Quantized(2), Quantized(4)]
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
    # Of zeros, they would count, and not be in a file.
    model.layers[-1].bias.assign([0.01] * model.layers[-1].units)
    return model


@pytest.fixture(scope="module")
def data(model):
    return IDS, np.argmax(model(IDS), axis=-1)


def make_budget(max_bytes=None, **kwargs):
    target = kc.export.Target(min_runtime=None)
    options = {"methods": METHODS, "target": target, **kwargs}
    return kc.Budget(max_bytes, **options)


def compress(model, how, **kwargs):
    names = [x.name for x in model.layers if isinstance(x, layers.Embedding)]
    return kc.compress_model(
        model, how, names, **{"seed": 0, "verbose": 0, **kwargs}
    )


def file_bytes(model, tmp_path, quantize="int8"):
    path = tmp_path / "model.tflite"
    options = {"quantize": quantize, "overwrite": True, "verbose": 0}
    options["target"] = kc.export.Target(min_runtime=None, max_bytes=None)
    return kc.export_litert(model, path, **options).file_bytes


def error_of(model, small):
    """Squares that rows lose, over those about their mean."""
    rows = np.asarray(small.get_layer("words").embeddings)
    table = model.get_layer("words").embeddings.numpy()
    lost = ((rows - table) ** 2).sum()
    return lost / ((table - table.mean(axis=0)) ** 2).sum()


@pytest.fixture(scope="module")
def sizes(model):
    """Points of the frontier by method."""
    found = find_frontier(model, make_budget(), ["words"], verbose=0)
    return {point.name: point for point in found}


def test_frontier_has_all_sizes(model, sizes, tmp_path):
    assert set(sizes) == {method.name for method in METHODS}
    ranked = sorted(sizes, key=lambda name: sizes[name].error)
    assert ranked[0] == "int4" and ranked[-1] == "codes 2x8"
    small, point = compress(model, Quantized(2)), sizes["int2"]
    assert point.error == pytest.approx(error_of(model, small), 1e-3)
    counted = {name for name in sizes if sizes[name].is_exported}
    assert counted
    for method in METHODS:
        if method.name in counted:
            size = file_bytes(compress(model, method), tmp_path)
            assert sizes[method.name].file_bytes == size


def test_best_within_a_limit_is_taken(model, sizes, tmp_path):
    limit = file_bytes(compress(model, METHODS[2]), tmp_path)
    budget = make_budget(limit)
    small = compress(model, budget)
    assert budget.frontier.limit_bytes == limit
    chosen = budget.frontier.chosen
    # As many bytes as allowed are not too many.
    assert file_bytes(small, tmp_path) == chosen.file_bytes <= limit
    assert chosen.is_exported and small.compiled
    within = [x for x in sizes.values() if x.file_bytes <= limit]
    assert chosen.name == min(within, key=lambda x: x.error).name
    # It is fit to the table, with care.
    assert chosen.error == pytest.approx(error_of(model, small), 1e-3)
    # No time for more than the smallest.
    budget = make_budget(limit, max_time=1e-6)
    compress(model, budget)
    assert len(budget.frontier) == 1 and budget.frontier.chosen.error > 0


def test_the_size_that_a_refusal_names_is_enough(model):
    methods = [Anchors(20, mean_nonzeros=2)]
    with refused("max_bytes", 500) as caught:
        compress(model, make_budget(500, methods=methods))
    (named,) = re.findall(r"at least ([\d,]+),", str(caught.value))
    named = int(named.replace(",", ""))
    budget = make_budget(named, methods=methods)
    compress(model, budget)
    assert budget.frontier.chosen.file_bytes <= named


def test_a_seed_gives_the_same(model, tmp_path):
    found = []
    for _ in range(2):
        budget = make_budget("20k", methods=METHODS[:1])
        small = compress(model, budget)
        found.append(budget.frontier)
    assert found[0] == found[1]
    # A bias of zeros counts, and is not in the file yet.
    more = found[0].original_bytes - file_bytes(model, tmp_path, None)
    assert 0 <= more < 300
    assert file_bytes(small, tmp_path) <= found[0].limit_bytes == 20_000


def test_tables_share_bytes(tmp_path):
    ids = keras.Input((6,), dtype="int32")
    rows = [layers.Embedding(800, 8, name=name) for name in ("large", "still")]
    model = keras.Model(ids, [keras.ops.tanh(layer(ids)) for layer in rows])
    rng = np.random.default_rng(0)
    for layer, scale in zip(rows, (1, 0.01), strict=True):
        layer.embeddings.assign(scale * rng.normal(size=(800, 8)))
    methods = [Quantized(2), Quantized(8)]
    both = {"large": methods[1], "still": methods[0]}
    small = kc.compress_model(model, both, verbose=0)
    # What ops of 2-bit rows take, and less than more bits of a row do.
    limit = file_bytes(small, tmp_path) + 1500
    budget = make_budget(limit, methods=methods)
    small = compress(model, budget)
    best = {"large": "int8", "still": "int2"}
    assert budget.frontier.chosen.methods == best
    assert file_bytes(small, tmp_path) <= limit


# With data.


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
    limit = sizes["int4"].file_bytes
    budget = make_budget(
        limit,
        data=TuningData(data, data, **options),
        methods=METHODS[1:3],
    )
    small = compress(model, budget)
    found = budget.frontier
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
    rates = keras.callbacks.LearningRateScheduler(lambda x, _: 0.1 / 2**x)
    note = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: begun.append("training"),
        on_epoch_begin=lambda epoch, logs: begun.append(epoch),
    )
    options = {"steps_per_epoch": 3, "callbacks": [rates, note]}
    endless = tf.data.Dataset.from_tensors(data).repeat()
    data = TuningData(endless, data, epochs=4, num_tuned=1, fit_options=options)
    # Trained rows may take more.
    limit = sizes["int4"].file_bytes + 500
    weight = {"words": np.ones(400)}
    methods = [Quantized(4)]
    budget = make_budget(
        limit, data=data, methods=methods, sample_weight=weight
    )
    small = compress(model, budget)
    assert float(small.optimizer.learning_rate) == pytest.approx(0.0125)
    assert begun == ["training", 0, 1, 2, 3]


def test_smallest_within_a_loss(model, data):
    data = TuningData(None, data, num_tuned=1)
    budget = make_budget(max_loss=0.1, data=data, methods=METHODS[2:])
    small = compress(model, budget)
    _, score = small.evaluate(*data.validation, verbose=0)
    chosen = budget.frontier.chosen
    assert score == pytest.approx(chosen.score) and score >= 0.9
    for point in budget.frontier:
        if point.score is not None and point.score >= 0.9:
            assert chosen.file_bytes <= 1.15 * point.file_bytes
    budget = make_budget(max_loss=0.001, data=data, methods=METHODS[:1])
    with refused("max_loss", "accuracy 1.0000"):
        compress(model, budget)


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

    def error(**options):
        budget = kc.Budget(methods=[Quantized(2)], **options)
        found = find_frontier(model, budget, ["words"], verbose=0)
        return found.points[0].error

    expected = error(sample_weight={"words": weight})
    for each in data, tf.data.Dataset.from_tensors(data):
        found = error(data=TuningData(each, each))
        assert found == pytest.approx(expected, 1e-6)
    assert abs(error() - expected) > 1e-3 * expected


# Which values of a metric are better.


def my_accuracy(y, scores):
    return keras.ops.cast(keras.ops.abs(y - scores) < 1e-3, "float32")


def test_better_is_what_keras_says():
    ids = keras.Input((3,), dtype="int32")
    words = layers.Embedding(40, 8, embeddings_initializer="normal")
    model = keras.Sequential([ids, words, layers.Flatten(), layers.Dense(1)])
    far = keras.metrics.MeanAbsoluteError(name="far_accuracy")
    ids = np.arange(120).reshape(40, 3) % 40
    # Its labels are what it gives.
    data = ids, np.asarray(model(ids))

    def compile(model):
        metrics = [far, my_accuracy]
        model.compile("sgd", "mse", metrics=metrics, run_eagerly=True)

    for metric in "far_accuracy", "my_accuracy":
        options = {"num_tuned": 2, "metric": metric, "compile": compile}
        both = TuningData(None, data, **options)
        methods = [Quantized(2), Quantized(8)]
        budget = kc.Budget("1MB", data=both, methods=methods, quantize=None)
        compress(model, budget)
        assert budget.frontier.chosen.name == "int8"
        scores = {point.name: point.score for point in budget.frontier}
        assert scores["int8"] != scores["int2"]


def test_callbacks_of_keras_know_metrics_of_classes():
    model = keras.Sequential([keras.Input((3,)), kc.CANESoftmax(5)])
    metrics = [kc.Perplexity(), kc.ClassAccuracy()]
    model.compile("sgd", kc.CANELoss(), metrics=metrics, run_eagerly=True)
    names = "val_perplexity", "val_accuracy"
    stops = [keras.callbacks.EarlyStopping(name) for name in names]
    data = np.ones((4, 3)), np.ones(4)
    model.fit(*data, validation_data=data, callbacks=stops, verbose=0)
    assert [bool(x.monitor_op(1, 2)) for x in stops] == [True, False]


# Ctrl-C.


class Pressed(Quantized):
    """Ctrl-C is pressed in some of its fits, by number."""

    def __init__(self, bits, fits):
        super().__init__(bits)
        # Copies share the list.
        self.fits, self.begun = fits, []

    def start(self, seed=None, verbose=0):
        fit = super().start(seed, verbose)

        def from_table(*args, **kwargs):
            self.begun.append(args)
            if len(self.begun) in self.fits:
                signal.raise_signal(signal.SIGINT)
            return fit.from_table(*args, **kwargs)

        return Fit(fit.options, from_table)


def test_interrupt_keeps_the_best_so_far(model, sizes, capsys):
    methods = [*METHODS[1:3], Pressed(4, [1])]
    budget = make_budget(sizes["int4"].file_bytes, methods=methods)
    with warned("interrupted"):
        compress(model, budget, verbose=1)
    errors = {x.name: x.error for x in budget.frontier if x.error is not None}
    assert set(errors) == {"int2", "int2 rank 4"}
    assert budget.frontier.chosen.name == min(errors, key=errors.get)
    assert "Interrupted" in capsys.readouterr().out


def test_interrupt_before_anything_is_known(model, sizes):
    """What fits is fit all the same, also what is fit with care."""
    limit = sizes["int4"].file_bytes
    pressed = Pressed(4, [2])
    budget = make_budget(limit, methods=[pressed])
    with warned("interrupted"):
        compress(model, budget)
    assert budget.frontier.chosen.file_bytes <= limit
    assert len(pressed.begun) == 3


def test_interrupt_ends_training(model, sizes, data):
    def press(epoch, logs):
        if epoch == 1:
            signal.raise_signal(signal.SIGINT)

    press = keras.callbacks.LambdaCallback(on_epoch_end=press)
    options = {"num_tuned": 2, "fit_options": {"callbacks": [press]}}
    both = TuningData(data, data, **options)
    limit = sizes["int4"].file_bytes
    budget = make_budget(limit, data=both, methods=METHODS[1:3])
    with warned("interrupted"):
        small = compress(model, budget)
    # The second is not trained.
    (chosen,) = (x for x in budget.frontier if x.score is not None)
    assert chosen == budget.frontier.chosen
    _, score = small.evaluate(*data, verbose=0)
    assert score == pytest.approx(chosen.score)


# What is refused.


def test_options_are_checked(data):
    endless = tf.data.Dataset.from_tensors(1).repeat()
    for name, value in (
        ("validation", endless),
        ("validation", (IDS, IDS[1:])),
        ("train", endless),
        ("epochs", 0),
        ("mode", "up"),
        ("fit_options", {"epochs": 1}),
    ):
        with refused(name, ""):
            TuningData(**{"train": data, "validation": data, name: value})
    for name, value in (
        ("sample_weight", [1.0]),
        ("methods", METHODS[:1] * 2),
        ("methods", [Codes(2, 8, recode_every=4)]),
        ("max_bytes", "a few"),
        # For a loss there must be data.
        ("max_loss", 0.1),
        ("data", (data, data)),
        ("quantize", "int4"),
        ("max_time", 0),
    ):
        with refused(name, ""):
            kc.Budget(**{name: value})
    with refused("max_bytes", 9):
        kc.Budget(9, 0.1, TuningData(data, data), quantize=None)
    with refused("methods", "int8", TypeError):
        kc.Budget(methods=["int8"], quantize=None)


def test_budgets_that_do_not_fit_a_model(model, data):
    with refused("budget", "int8", TypeError):
        find_frontier(model, "int8")
    with refused("layers", "'word'"):
        find_frontier(model, layers=["word"])
    with refused("metric", "recall"):
        unknown = TuningData(None, data, metric="recall")
        compress(model, kc.Budget(9000, data=unknown, quantize=None))
    with refused("max_bytes", "None"):
        compress(model, kc.Budget(quantize=None))
    with refused("sample_weight", "'word'"):
        compress(
            model, kc.Budget(9000, sample_weight={"word": [1]}, quantize=None)
        )
    with pytest.raises(ValueError, match="no method"):
        compress(model, make_budget(9000, methods=[Anchors(500, 2)]))


def test_metrics_of_no_known_direction():
    def goodness(y, scores):
        return scores[:, 0]

    ids = np.arange(40)[:, None]
    words = layers.Embedding(40, 8), layers.Flatten(), layers.Dense(1)
    model = keras.Sequential([keras.Input((1,), dtype="int32"), *words])
    model.compile("sgd", "mse", metrics=[goodness], run_eagerly=True)
    data = TuningData(None, (ids, ids), metric="goodness")
    with refused("mode", "goodness"):
        compress(model, kc.Budget(9000, data=data, quantize=None))


def test_coarse_scales_give_no_advice():
    """As an error does, in tests, a warning would end the search."""
    table = np.random.default_rng(0).normal(size=(1500, 16))
    table[:750] *= 0.01
    layer = keras.layers.Embedding(1500, 16, name="words")
    model = keras.Sequential([keras.Input((4,), dtype="int32"), layer])
    layer.set_weights([table])
    budget = kc.Budget("20k", methods=[kc.methods.Quantized(4, rank=8)])
    small = kc.compress_model(model, budget, verbose=0)
    assert small.get_layer("words").rank == 8
