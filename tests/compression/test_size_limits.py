"""`compress_model` with a limit in place of settings."""

import dataclasses
import re
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.compression import find_size
from keras_compembed.compression import searched_table
from keras_compembed.compression import size_search
from keras_compembed.compression import tuned_copies
from keras_compembed.compression.budget_search import BudgetSearch
from keras_compembed.compression.find_frontier import find_frontier
from keras_compembed.compression.id_counts import weights_by_counts
from keras_compembed.compression.stop_request import StopRequest
from keras_compembed.methods import Anchors
from keras_compembed.methods import Codes
from keras_compembed.methods import Rounded

layers = keras.layers
METHODS = [Codes(2, 8), Rounded(2, rank=4), Rounded(2), Rounded(4)]
IDS = np.random.default_rng(1).integers(0, 400, size=(256, 6), dtype="int32")
LABELS = IDS[:, 0] % 2


def make_model():
    """Its rows have a few large axes, and what it tells is one of them."""
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
        "adam", "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    rng = np.random.default_rng(0)
    model.layers[0].embeddings.assign(
        rng.normal(size=(400, 16)) * 1.4 ** -np.arange(16.0)
    )
    return model


@pytest.fixture(scope="module")
def model():
    return make_model()


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


@pytest.fixture(scope="module")
def sizes(model):
    """Bytes of the file and errors by method."""
    found = find_frontier(model, make_search(), min_bytes=0, verbose=0)
    return {point.name: point for point in found}


def test_frontier_has_all_sizes(sizes):
    assert set(sizes) == {method.name for method in METHODS}
    errors = [x.error for x in sorted(sizes.values(), key=lambda x: x.error)]
    assert sizes["int4"].error == errors[0] < 0.02
    assert sizes["codes 2x8"].error == errors[-1]


@pytest.mark.parametrize("name", ["codes 2x8", "int2"])
def test_best_within_a_limit_is_taken(model, sizes, name, tmp_path):
    search = make_search()
    small = compress(model, search, max_bytes=sizes[name].file_bytes + 200)
    limit = search.frontier.limit_bytes
    counted = file_bytes(small, tmp_path)
    chosen = search.frontier.chosen
    assert counted == chosen.file_bytes <= limit and chosen.is_exported
    within = [x for x in sizes.values() if x.file_bytes <= limit]
    assert chosen.name == min(within, key=lambda x: x.error).name
    # It is fit to the table, with care.
    rows = np.asarray(small.get_layer("words").embeddings)
    table = model.get_layer("words").embeddings.numpy()
    lost = ((rows - table) ** 2).sum()
    lost /= ((table - table.mean(axis=0)) ** 2).sum()
    assert lost == pytest.approx(chosen.error, rel=1e-3)
    assert small.compiled


def test_settings_by_default_come_near_to_the_limit(model, sizes, tmp_path):
    limit = sizes["int2"].file_bytes
    search = BudgetSearch(quantize="int8")
    small = compress(model, search, max_bytes=limit)
    assert 0.97 * limit <= file_bytes(small, tmp_path) <= limit
    # No worse than what one would think of first.
    assert search.frontier.chosen.error <= sizes["int2"].error


def test_same_seed_same_result(model, sizes):
    limit = sizes["codes 2x8"].file_bytes
    found = []
    for _ in range(2):
        search = make_search(methods=[Codes(2, 8)])
        compress(model, search, max_bytes=limit)
        found.append(search.frontier)
    assert found[0] == found[1]


def test_nothing_fits(model, sizes):
    smallest = min(sizes.values(), key=lambda x: x.file_bytes)
    with pytest.raises(ValueError) as error:
        compress(model, make_search(), max_bytes=500)
    assert f"a file of {smallest.file_bytes:,} bytes" in str(error.value)
    assert re.search(smallest.name + r", which loses \d+%", str(error.value))
    with pytest.raises(ValueError, match=r"ratio=1000, which allows \d+ byt"):
        compress(model, make_search(methods=METHODS[:1]), ratio=1000)


def test_ratio_is_of_files(model, tmp_path):
    search = make_search(methods=METHODS[:2])
    original = file_bytes(model, tmp_path, None)
    small = compress(model, search, ratio=2)
    assert search.frontier.original_bytes == original
    assert search.frontier.limit_bytes == original // 2
    assert file_bytes(small, tmp_path) <= original / 2


def test_tables_share_bytes(tmp_path):
    ids = keras.Input((6,), dtype="int32")
    rows = {
        "large": layers.Embedding(400, 8, name="large"),
        "still": layers.Embedding(400, 8, name="still"),
    }
    outputs = [keras.ops.tanh(layer(ids)) for layer in rows.values()]
    model = keras.Model(ids, keras.ops.add(*outputs))
    rng = np.random.default_rng(0)
    rows["large"].embeddings.assign(rng.normal(size=(400, 8)))
    rows["still"].embeddings.assign(0.01 * rng.normal(size=(400, 8)))
    methods = [Rounded(2), Rounded(4), Rounded(8)]
    search = make_search(methods=methods)
    settings = {
        "large": {"method": methods[2]},
        "still": {"method": methods[0]},
    }
    limit = file_bytes(compress(model, layer_settings=settings), tmp_path)
    # Less than what two more bits of a row take.
    limit += 700
    small = compress(model, search, max_bytes=limit)
    assert search.frontier.chosen.methods == {"large": "int8", "still": "int2"}
    assert file_bytes(small, tmp_path) <= limit
    search = make_search(methods=methods, importance={"still": 1e6})
    compress(model, search, max_bytes=limit)
    assert search.frontier.chosen.methods == {"large": "int2", "still": "int8"}
    with pytest.raises(ValueError, match=r"`importance` must name.*'other'"):
        compress(model, make_search(importance={"other": 2}), max_bytes=limit)


def test_best_after_tuning_is_taken(model, sizes):
    search = make_search(
        methods=[Rounded(2), Rounded(2, rank=4)],
        train_data=(IDS, LABELS),
        validation_data=(IDS, LABELS),
        epochs=2,
        num_tuned=2,
        fit_options={"batch_size": 64},
    )
    small = compress(model, search, max_bytes=sizes["int4"].file_bytes)
    tuned = [x for x in search.frontier if x.score is not None]
    assert len(tuned) == 2
    chosen = search.frontier.chosen
    assert chosen.score == max(point.score for point in tuned)
    _, score = small.evaluate(IDS, LABELS, verbose=0)
    assert score == pytest.approx(chosen.score)
    assert search.frontier.metric == "accuracy"
    # What only training needs is gone.
    layer = small.get_layer("words")
    assert not getattr(layer, "learn_rows", False)


def test_training_is_one_fit(model, sizes):
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
            yield IDS[:8], LABELS[:8]

    signature = tuple(
        tf.TensorSpec((8, *part.shape[1:]), part.dtype)
        for part in (IDS, LABELS)
    )
    search = make_search(
        methods=[Rounded(4)],
        train_data=tf.data.Dataset.from_generator(
            batches, output_signature=signature
        ).apply(tf.data.experimental.assert_cardinality(-1)),
        validation_data=(IDS, LABELS),
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
        max_bytes=sizes["int4"].file_bytes,
        layer_settings=weights,
    )
    assert begun == [[0, 1, 2, 3]]
    assert seen[: 4 * 3] == list(range(0, 4 * 3 * 8, 8))
    assert float(small.optimizer.learning_rate) == pytest.approx(0.0125)


def test_smallest_within_a_loss(model, sizes):
    def score(model):
        """The share of the table that is kept."""
        rows = np.asarray(model.get_layer("words").embeddings)
        table = make_model().get_layer("words").embeddings.numpy()
        return 1 - ((rows - table) ** 2).sum() / (table**2).sum()

    class Scored(find_size.TunedCopies):
        def score(self, model):
            super().score(model)
            return score(model)

    search = make_search(
        methods=METHODS[1:], num_tuned=1, validation_data=(IDS, LABELS)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find_size, "TunedCopies", Scored)
        small = compress(model, search, max_loss=0.2)
        assert score(small) >= 0.8
        within = [x for x in sizes.values() if x.error < 0.2]
        smallest = min(within, key=lambda x: x.file_bytes)
        chosen = search.frontier.chosen
        assert chosen.file_bytes <= 1.15 * smallest.file_bytes
        with pytest.raises(ValueError, match="No way to store the tables"):
            compress(
                model,
                make_search(
                    methods=[Codes(2, 8)], validation_data=(IDS, LABELS)
                ),
                max_loss=0.01,
            )


def test_files_grow_beyond_the_limit_while_copies_are_trained(
    model, monkeypatch
):
    """A limit that nothing holds any more is one that holds no loss."""
    find, limits = size_search.SizeSearch.find, []

    def no_first(self, limit, number=1, is_quick=False):
        limits.append(limit)
        return find(self, limit, number) if limits[1:] else []

    monkeypatch.setattr(size_search.SizeSearch, "find", no_first)
    search = make_search(
        methods=METHODS[2:], num_tuned=1, validation_data=(IDS, LABELS)
    )
    compress(model, search, max_loss=1.0)
    assert limits[1] > limits[0]
    assert search.frontier.chosen.file_bytes <= limits[-1]


def test_interrupt_keeps_the_best_so_far(model, sizes, monkeypatch, capsys):
    calls = []
    measure = searched_table.SearchedTable.quick_error

    def quick_error(self, choice):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(choice.name)
        return measure(self, choice)

    monkeypatch.setattr(
        searched_table.SearchedTable, "quick_error", quick_error
    )
    search = make_search()
    compress(model, search, max_bytes=sizes["int4"].file_bytes, verbose=1)
    assert search.frontier.chosen.name in calls
    assert "Interrupted" in capsys.readouterr().out


def test_interrupt_before_anything_is_known(model, monkeypatch):
    def quick_error(self, choice):
        raise KeyboardInterrupt

    monkeypatch.setattr(
        searched_table.SearchedTable, "quick_error", quick_error
    )
    with pytest.raises(KeyboardInterrupt):
        compress(model, make_search(), max_bytes=20_000)


@pytest.mark.parametrize("data", [None, (IDS, LABELS)])
def test_copies_that_were_not_trained_are_compiled_as_asked(
    model, sizes, data, monkeypatch
):
    def compile(copy):
        copy.compile("sgd", "sparse_categorical_crossentropy")

    def tune(self, copy):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuned_copies.TunedCopies, "tune", tune)
    search = make_search(validation_data=data, compile=compile, mode="min")
    limit = sizes["int2"].file_bytes
    copy = compress(model, search, max_bytes=limit)
    assert type(copy.optimizer) is keras.optimizers.SGD


def test_counts_of_ids():
    ids = keras.Input((6,), dtype="int32")
    table = layers.Embedding(400, 4)
    model = keras.Model(ids, table(ids + 1))
    data = (np.full((3, 6), 7), np.zeros(3))
    weights = weights_by_counts(model, table, data)
    assert weights[8] == np.sqrt(19) and weights[7] == weights[0] == 1
    assert weights_by_counts(model, table, None) is None
    other = layers.Embedding(5, 4)
    other(np.zeros((1, 2)))
    assert weights_by_counts(model, other, data) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_bytes": 0}, "`max_bytes` must be a positive integer"),
        ({"max_bytes": 10.5}, "`max_bytes` must be a positive integer"),
        ({"ratio": 1}, "`ratio` must be a number above 1"),
        ({"ratio": "x"}, "`ratio` must be a number above 1"),
        ({"max_loss": -1}, "`max_loss` must be a number of at least 0"),
        ({"max_loss": 0.1}, "`max_loss` needs validation data"),
        ({"max_bytes": 9, "ratio": 2}, "One of `max_bytes`, `ratio` and"),
        ({"search": BudgetSearch()}, "One of `max_bytes`, `ratio` and"),
        ({"max_bytes": 9, "method": Rounded(4)}, "be given with `method`"),
        ({"max_bytes": 9, "num_codebooks": 8}, "with `num_codebooks`"),
        # Those by default are no less given.
        ({"max_bytes": 9, "codebook_size": 16}, "with `codebook_size`"),
        ({"max_bytes": 9, "recode_every": 8}, "with `recode_every`"),
    ],
)
def test_limits_are_checked_first(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        compress(model, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"methods": []}, "`methods` must be None or hold a method"),
        (
            {"methods": [Codes(2, 8), Codes(2, 8, effort=2)]},
            r"`methods` must differ.*\['codes 2x8', 'codes 2x8'\]",
        ),
        (
            {"validation_data": tf.data.Dataset.from_tensors(1).repeat()},
            "`validation_data` must end",
        ),
        ({"quantize": "int4"}, "`quantize` must be one of"),
        ({"min_runtime": 2}, "`min_runtime` must be a version"),
        ({"epochs": 0}, "`epochs` must be a positive integer"),
        ({"num_tuned": 0}, "`num_tuned` must be a positive integer"),
        ({"mode": "up"}, "`mode` must be one of"),
        ({"max_time": 0}, "`max_time` must be a positive number"),
        ({"compile": 3}, "`compile` must be a callable"),
        ({"importance": {"a": -1}}, "must be a positive number"),
        ({"validation_data": [1]}, r"must be a tuple \(x, y\)"),
        ({"validation_data": (IDS, LABELS[1:])}, "as many labels as examples"),
        ({"train_data": (IDS, LABELS)}, "`validation_data` must be given"),
        ({"fit_options": {"epochs": 1}}, "`fit_options` must not have"),
    ],
)
def test_options_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        BudgetSearch(**arguments)


def test_other_objects_are_refused(model):
    with pytest.raises(TypeError, match="`search` must be a"):
        compress(model, search="int8", max_bytes=1000)
    with pytest.raises(TypeError, match="`methods` must be a"):
        BudgetSearch(methods=["int8"])
    loose = keras.Sequential([keras.Input((2,)), layers.Embedding(9, 2)])
    search = make_search(validation_data=(IDS, LABELS))
    with pytest.raises(ValueError, match="`model` must be compiled"):
        compress(loose, search, max_loss=0.1)
    with pytest.raises(ValueError, match="Nothing to compress.*no method"):
        search = make_search(methods=[Anchors(500, 2)])
        compress(model, search, max_bytes=9000)


def test_unknown_metric(model):
    search = make_search(validation_data=(IDS, LABELS), metric="recall")
    with pytest.raises(ValueError, match="`metric` must be one that"):
        compress(model, search, max_bytes=9000)


def test_counts_of_ids_that_go_by_name():
    ids = {x: keras.Input((2,), dtype="int32", name=x) for x in "ba"}
    table = layers.Embedding(400, 4)
    # In another order than a dict is flattened in.
    model = keras.Model(
        list(ids.values()), [table(ids["a"]), layers.Embedding(9, 4)(ids["b"])]
    )
    x = {"a": np.full((3, 2), 7), "b": np.full((3, 2), 8)}
    for data in (
        (x, np.zeros(3)),
        tf.data.Dataset.from_tensors((x, np.zeros(3))),
    ):
        weights = weights_by_counts(model, table, data)
        assert weights[7] == np.sqrt(7) and weights[8] == 1


def test_first_ctrl_c_does_not_end_what_takes_seconds():
    stop = StopRequest()
    with stop.watching():
        with stop.waiting():
            signal.raise_signal(signal.SIGINT)
        assert stop.is_set
        with pytest.raises(KeyboardInterrupt), stop.waiting():
            signal.raise_signal(signal.SIGINT)


def test_interrupt_while_the_best_are_fit_and_tuned(model, sizes, monkeypatch):
    fits, tuned = [], []
    error, tune = searched_table.SearchedTable.error, find_size.TunedCopies.tune

    def error_once_interrupted(self, choice):
        fits.append(choice.name)
        if len(fits) == 3:
            raise KeyboardInterrupt
        return error(self, choice)

    def tune_first(self, copy):
        tuned.append(copy)
        if len(tuned) > 1:
            raise KeyboardInterrupt
        return tune(self, copy)

    monkeypatch.setattr(
        searched_table.SearchedTable, "error", error_once_interrupted
    )
    monkeypatch.setattr(find_size.TunedCopies, "tune", tune_first)
    search = make_search(
        methods=METHODS[1:], validation_data=(IDS, LABELS), num_tuned=3
    )
    # The fit that was interrupted is made again; what then is left is not.
    small = compress(model, search, max_bytes=sizes["int4"].file_bytes)
    assert fits[2] == fits[3] and len(fits) == 4
    assert small is tuned[0]
    assert search.frontier.chosen.score is not None


def test_file_is_counted_after_tuning(model, sizes, monkeypatch, tmp_path):
    def count_file(model, *args):
        export = counted(model, *args)
        # Such as training might do.
        more = 9000 if model.compiled else 0
        return dataclasses.replace(export, file_bytes=export.file_bytes + more)

    counted = size_search.count_file
    monkeypatch.setattr(size_search, "count_file", count_file)
    search = make_search(
        methods=[Rounded(2, rank=4)],
        train_data=(IDS, LABELS),
        validation_data=(IDS, LABELS),
        epochs=1,
    )
    limit = sizes["int2 rank 4"].file_bytes
    small = compress(model, search, max_bytes=limit)
    assert file_bytes(small, tmp_path) <= limit
    assert search.frontier.chosen.file_bytes <= limit
    assert search.frontier.chosen.score is None and small.compiled


def test_interrupt_while_nothing_that_fits_is_known(model, sizes, monkeypatch):
    def quick_error(self, choice):
        calls.append(choice.name)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return measure(self, choice)

    calls = []
    measure = searched_table.SearchedTable.quick_error
    monkeypatch.setattr(
        searched_table.SearchedTable, "quick_error", quick_error
    )
    search = make_search()
    compress(model, search, max_bytes=sizes["int4"].file_bytes)
    assert search.frontier.chosen.file_bytes <= search.frontier.limit_bytes


def test_no_time_and_no_room_for_more_than_the_smallest(model, sizes):
    search = make_search(max_time=1e-6)
    compress(model, search, max_bytes=sizes["int4"].file_bytes)
    assert len(search.frontier) == 1 and search.frontier.chosen.error > 0
    # Files of two tables are not the sums of what was foretold.
    ids = keras.Input((6,), dtype="int32")
    rows = [layers.Embedding(400, 8, name=name)(ids) for name in "ab"]
    two = keras.Model(ids, keras.ops.tanh(keras.ops.concatenate(rows)))
    search = make_search(methods=[Rounded(2), Codes(2, 8), Rounded(4)])
    found = find_frontier(two, search, min_bytes=0, verbose=0)
    assert found.points[0].error is not None
    compress(two, search, max_bytes=found.points[0].file_bytes)
    assert search.frontier.chosen.methods == found.points[0].methods
