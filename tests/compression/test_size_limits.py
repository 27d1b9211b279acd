"""`compress_model` with a limit in place of settings."""

import re
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc
from keras_compembed.compression import BudgetSearch
from keras_compembed.compression import find_frontier
from keras_compembed.methods import Anchors
from keras_compembed.methods import Codes
from keras_compembed.methods import Fit
from keras_compembed.methods import Rounded

layers = keras.layers
METHODS = [Codes(2, 8), Rounded(2, rank=4), Rounded(2), Rounded(4)]
IDS = np.random.default_rng(1).integers(0, 400, size=(128, 6), dtype="int32")


def make_model():
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
    model.compile(
        keras.optimizers.SGD(0.1),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        run_eagerly=True,
    )
    rng = np.random.default_rng(0)
    model.layers[0].embeddings.assign(
        rng.normal(size=(400, 16)) * 1.4 ** -np.arange(16.0)
    )
    return model


@pytest.fixture(scope="module")
def model():
    return make_model()


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
    return kc.export.export_litert(
        model,
        tmp_path / "model.tflite",
        quantize=quantize,
        overwrite=True,
        verbose=0,
    ).file_bytes


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
    errors = [x.error for x in sorted(sizes.values(), key=lambda x: x.error)]
    assert sizes["int4"].error == errors[0] < 0.02
    assert sizes["codes 2x8"].error == errors[-1]
    small = compress(model, method=Rounded(2))
    assert sizes["int2"].error == pytest.approx(error_of(model, small), 1e-3)
    assert sizes["int2"].is_exported
    assert sizes["int2"].file_bytes == file_bytes(small, tmp_path)


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
    message = str(caught.value)
    assert f"{smallest.file_bytes:,} bytes" in message
    assert re.search(smallest.name + r", .*\d+%", message)
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


def two_tables():
    ids = keras.Input((6,), dtype="int32")
    rows = [layers.Embedding(400, 8, name=name) for name in ("large", "still")]
    outputs = [keras.ops.tanh(layer(ids)) for layer in rows]
    rng = np.random.default_rng(0)
    for layer, scale in zip(rows, (1, 0.01), strict=True):
        layer.embeddings.assign(scale * rng.normal(size=(400, 8)))
    return keras.Model(ids, keras.ops.add(*outputs))


def test_tables_share_bytes(tmp_path):
    model = two_tables()
    methods = [Rounded(2), Rounded(8)]
    settings = {
        "large": {"method": methods[1]},
        "still": {"method": methods[0]},
    }
    small = compress(model, layer_settings=settings)
    # Less than what more bits of a row take.
    limit = file_bytes(small, tmp_path) + 700
    for importance, best in (
        ({}, {"large": "int8", "still": "int2"}),
        ({"still": 1e6}, {"large": "int2", "still": "int8"}),
    ):
        search = make_search(methods=methods, importance=importance)
        small = compress(model, search, max_bytes=limit)
        assert search.frontier.chosen.methods == best
        assert file_bytes(small, tmp_path) <= limit
    with refused("importance", "other"):
        compress(model, make_search(importance={"other": 2}), max_bytes=limit)


def test_no_time_and_no_room_for_more_than_the_smallest(model, sizes):
    search = make_search(max_time=1e-6)
    compress(model, search, max_bytes=sizes["int4"].file_bytes)
    assert len(search.frontier) == 1 and search.frontier.chosen.error > 0
    # Files of two tables are not the sums of what was foretold.
    two = two_tables()
    search = make_search(methods=[Rounded(2), Codes(2, 8), Rounded(4)])
    found = find_frontier(two, search, min_bytes=0, verbose=0)
    assert found.points[0].error is not None
    compress(two, search, max_bytes=found.points[0].file_bytes)
    assert search.frontier.chosen.methods == found.points[0].methods


# With data.


def test_best_after_tuning_is_taken(model, sizes, data):
    search = make_search(
        methods=[Rounded(2), Rounded(2, rank=4)],
        train_data=data,
        validation_data=data,
        epochs=2,
        num_tuned=2,
        fit_options={"batch_size": 64},
    )
    small = compress(model, search, max_bytes=sizes["int4"].file_bytes)
    tuned = [x for x in search.frontier if x.score is not None]
    assert len(tuned) == 2
    chosen = search.frontier.chosen
    assert chosen.score == max(point.score for point in tuned)
    _, score = small.evaluate(*data, verbose=0)
    assert score == pytest.approx(chosen.score)
    assert search.frontier.metric == "accuracy"
    assert search.frontier.original_score == 1
    # What only training needs is gone.
    layer = small.get_layer("words")
    assert not getattr(layer, "learn_rows", False)


def test_training_is_one_fit(model, sizes, data):
    """Schedules, and data without an end, go on from epoch to epoch."""
    begun, seen = [], []

    class Seen(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            begun.append([])

        def on_epoch_begin(self, epoch, logs=None):
            begun[-1].append(epoch)

    def batches():
        for start in range(0, 10**6, 8):
            seen.append(start)
            yield tuple(part[:8] for part in data)

    signature = tuple(
        tf.TensorSpec((8, *part.shape[1:]), part.dtype) for part in data
    )
    search = make_search(
        methods=[Rounded(4)],
        train_data=tf.data.Dataset.from_generator(
            batches, output_signature=signature
        ).apply(tf.data.experimental.assert_cardinality(-1)),
        validation_data=data,
        epochs=4,
        num_tuned=1,
        fit_options={
            "steps_per_epoch": 3,
            "callbacks": [
                Seen(),
                keras.callbacks.LearningRateScheduler(
                    lambda epoch, rate: 0.1 * 0.5**epoch
                ),
            ],
        },
    )
    weights = {"words": {"sample_weight": np.ones(400)}}
    small = compress(
        model,
        search,
        # Trained rows may take more.
        max_bytes=sizes["int4"].file_bytes + 500,
        layer_settings=weights,
    )
    assert begun == [[0, 1, 2, 3]]
    assert seen[: 4 * 3] == list(range(0, 4 * 3 * 8, 8))
    assert float(small.optimizer.learning_rate) == pytest.approx(0.0125)


def test_smallest_within_a_loss(model, data):
    search = make_search(methods=METHODS[1:], num_tuned=1, validation_data=data)
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
    equal = [
        layers.Dense(64, "tanh", kernel_initializer=keras.initializers.Ones())
        for _ in range(2)
    ]
    x = layers.Concatenate()([layer(x) for layer in equal])
    model = keras.Model(ids, layers.Dense(2, "softmax")(x))
    model.compile(
        keras.optimizers.SGD(1.0),
        "sparse_categorical_crossentropy",
        run_eagerly=True,
    )
    limit = file_bytes(compress(model, method=Rounded(2, rank=4)), tmp_path)
    search = make_search(
        methods=[Rounded(2, rank=4)],
        train_data=data,
        validation_data=data,
        epochs=1,
    )
    small = compress(model, search, max_bytes=limit)
    chosen = search.frontier.chosen
    assert file_bytes(small, tmp_path) == chosen.file_bytes <= limit
    assert chosen.score is None and small.compiled
    assert model.get_weights()[-2].tolist() == small.get_weights()[-2].tolist()


@pytest.mark.parametrize("kind", ["dict", "dataset"])
def test_rows_count_by_how_often_they_are_trained_on(kind):
    ids = {x: keras.Input((2,), dtype="int32", name=x) for x in "ba"}
    table = layers.Embedding(40, 4, name="words")
    # In another order than a dict is flattened in.
    model = keras.Model(
        list(ids.values()),
        [table(ids["a"] + 1), layers.Embedding(9, 4)(ids["b"])],
    )
    model.compile("sgd", "mse", run_eagerly=True)
    x = {"a": np.full((3, 2), 7), "b": np.full((3, 2), 8)}
    data = x, np.zeros((3, 2, 4))
    if kind == "dataset":
        data = tf.data.Dataset.from_tensors(data)
    weight = np.ones(40)
    weight[8] = np.sqrt(1 + 6)

    def error(search, **settings):
        found = find_frontier(
            model, search, ["words"], {"words": settings}, verbose=0
        )
        return found.points[0].error

    methods = {"methods": [Rounded(2)]}
    search = BudgetSearch(**methods, train_data=data, validation_data=data)
    expected = error(BudgetSearch(**methods), sample_weight=weight)
    assert error(search) == pytest.approx(expected, 1e-6)
    plain = error(BudgetSearch(**methods))
    assert abs(plain - expected) > 1e-3 * expected


# Which values of a metric are better.


def my_accuracy(y, scores):
    return keras.ops.cast(keras.ops.abs(y - scores) < 1e-3, "float32")


def goodness(y, scores):
    return scores


@pytest.fixture(scope="module")
def measured():
    """A model whose labels are what it gives, with many metrics."""
    model = keras.Sequential(
        [
            keras.Input((3,), dtype="int32"),
            layers.Embedding(40, 8, embeddings_initializer="normal"),
            layers.Flatten(),
            layers.Dense(1, "sigmoid", name="head"),
        ]
    )
    far = keras.metrics.MeanAbsoluteError(name="far_accuracy")
    hits = keras.metrics.R2Score(name="hits_loss_of_none")
    model.compile(
        "sgd", "mse", metrics=[far, hits, my_accuracy, goodness],
        run_eagerly=True,
    )  # fmt: skip
    ids = np.arange(120).reshape(40, 3) % 40
    return model, (ids, np.asarray(model(ids)))


@pytest.mark.parametrize(
    "metric", ["loss", "far_accuracy", "hits_loss_of_none", "my_accuracy"]
)
def test_better_is_what_keras_says(metric, measured):
    model, data = measured
    search = BudgetSearch(
        methods=[Rounded(2), Rounded(8)],
        validation_data=data,
        num_tuned=2,
        metric=metric,
    )
    compress(model, search, max_bytes=10**6)
    assert search.frontier.chosen.name == "int8"
    scores = {point.name: point.score for point in search.frontier}
    assert scores["int8"] != scores["int2"]


def test_metrics_that_are_not_known(measured):
    model, data = measured
    search = BudgetSearch(validation_data=data, metric="goodness")
    with refused("mode", "metric='goodness'"):
        compress(model, search, max_bytes=9000)
    search = BudgetSearch(validation_data=data, metric="recall")
    with refused("metric", "recall"):
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
    methods = [Rounded(2), Rounded(2, rank=4), Pressed(4, [1])]
    search = make_search(methods=methods)
    compress(model, search, max_bytes=sizes["int4"].file_bytes, verbose=1)
    errors = {x.name: x.error for x in search.frontier if x.error is not None}
    assert set(errors) == {"int2", "int2 rank 4"}
    assert search.frontier.chosen.name == min(errors, key=errors.get)
    assert "Interrupted" in capsys.readouterr().out


def test_interrupt_before_anything_is_known(model, sizes, tmp_path):
    limit = sizes["int4"].file_bytes
    search = make_search(methods=[Pressed(4, range(99))])
    with pytest.raises(KeyboardInterrupt):
        compress(model, search, max_bytes=limit)
    # Once: what fits is fit all the same.
    search = make_search(methods=[Pressed(4, [1])])
    small = compress(model, search, max_bytes=limit)
    assert file_bytes(small, tmp_path) <= limit


def test_interrupt_while_the_best_are_fit_and_tuned(model, sizes, data):
    class Press(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                signal.raise_signal(signal.SIGINT)

    # The careful fit, which is made again.
    pressed = Pressed(4, [2])
    search = make_search(
        methods=[pressed],
        train_data=data,
        validation_data=data,
        fit_options={"callbacks": [Press()]},
        num_tuned=2,
    )
    limit = sizes["int4"].file_bytes + 500
    small = compress(model, search, max_bytes=limit)
    assert pressed.count == 3
    chosen = search.frontier.chosen
    _, score = small.evaluate(*data, verbose=0)
    assert score == pytest.approx(chosen.score)
    # Of two that are trained, the first ends it.
    search = make_search(
        methods=METHODS[1:3],
        train_data=data,
        validation_data=data,
        fit_options={"callbacks": [Press()]},
        num_tuned=2,
    )
    compress(model, search, max_bytes=limit)
    assert sum(point.score is not None for point in search.frontier) == 1


@pytest.mark.parametrize("has_data", [False, True])
def test_copies_that_were_not_trained_are_compiled_as_asked(
    has_data, model, sizes, data
):
    calls = []

    def compile(copy):
        calls.append(copy)
        # Before anything was evaluated.
        if has_data and len(calls) == 1:
            raise KeyboardInterrupt
        copy.compile("adam", "sparse_categorical_crossentropy")

    search = make_search(
        methods=METHODS[2:3],
        validation_data=data if has_data else None,
        compile=compile,
        mode="min",
    )
    limit = sizes["int2"].file_bytes
    copy = compress(model, search, max_bytes=limit)
    assert type(copy.optimizer) is keras.optimizers.Adam
    assert len(calls) == 1 + has_data


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_bytes": 10.5}, "max_bytes"),
        ({"ratio": 1}, "ratio"),
        ({"ratio": "x"}, "ratio"),
        ({"max_loss": -1}, "max_loss"),
        # It needs data.
        ({"max_loss": 0.1}, "max_loss"),
        ({"max_bytes": 9, "ratio": 2}, "ratio"),
        ({"search": BudgetSearch()}, "max_bytes"),
        ({"max_bytes": 9, "method": Rounded(4)}, "method"),
        ({"max_bytes": 9, "num_codebooks": 8}, "num_codebooks"),
        # Those by default are no less given.
        ({"max_bytes": 9, "codebook_size": 16}, "codebook_size"),
        ({"max_bytes": 9, "recode_every": 8}, "recode_every"),
    ],
)
def test_limits_are_checked_first(model, arguments, name):
    with refused(name):
        compress(model, **arguments)


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        ({"methods": []}, "[]"),
        ({"methods": [Codes(2, 8), Codes(2, 8, effort=2)]}, "codes 2x8"),
        (
            {"validation_data": tf.data.Dataset.from_tensors(1).repeat()},
            "without an end",
        ),
        ({"quantize": "int4"}, "int4"),
        ({"min_runtime": 2}, 2),
        ({"epochs": 0}, 0),
        ({"num_tuned": 0}, 0),
        ({"mode": "up"}, "up"),
        ({"max_time": 0}, 0),
        ({"compile": 3}, 3),
        ({"importance": {"a": -1}}, -1),
        ({"validation_data": [1]}, "list"),
        ({"validation_data": (IDS, IDS[1:])}, "[127, 128]"),
        ({"fit_options": {"epochs": 1}}, "epochs"),
    ],
)
def test_options_are_checked(arguments, received):
    (name,) = arguments
    with refused(None if name == "importance" else name, received):
        BudgetSearch(**arguments)


def test_other_objects_are_refused(model, data):
    with refused("validation_data", None):
        BudgetSearch(train_data=data)
    with refused("search", "int8", TypeError):
        compress(model, search="int8", max_bytes=1000)
    with refused("methods", "int8", TypeError):
        BudgetSearch(methods=["int8"])
    loose = keras.Sequential([keras.Input((2,)), layers.Embedding(9, 2)])
    with refused("model", "not compiled"):
        compress(loose, make_search(validation_data=data), max_loss=0.1)
    with pytest.raises(ValueError, match="no method"):
        search = make_search(methods=[Anchors(500, 2)])
        compress(model, search, max_bytes=9000)
