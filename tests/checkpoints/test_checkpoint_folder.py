"""Long work goes on where it was cut short."""

import os

import children
import keras
import numpy as np
import pytest
from errors import refused

import keras_compembed as kc
from keras_compembed.transforms.sparse_coding import learn_dictionary

TABLE = np.random.default_rng(0).normal(size=(300, 12)).astype("float32")
WEIGHT = np.random.default_rng(1).random(300)


class Killed(Exception):
    pass


def learner(cls, **kwargs):
    training = kc.learners.Training(
        60, 32, validation_interval=10, validation_rows=64
    )
    return cls(4, 8, training=training, seed=0, verbose=0, **kwargs)


def gumbel(optimizer=None):
    made = learner(kc.learners.GumbelCodeLearner)
    if optimizer is not None:
        made.compile(optimizer)
    return made


def train(made, table=TABLE, sample_weight=WEIGHT):
    """Codes, codebooks, and what is known of the way to them."""
    made = made.train(table, sample_weight)
    history = dict(made.history)
    history.pop("seconds", None)
    return made.codes, made.codebooks, history


def additive(seed=0, table=TABLE, sample_weight=WEIGHT, **kwargs):
    made = kc.learners.AdditiveQuantizer(4, 8, seed=seed, verbose=0, **kwargs)
    return train(made, table, sample_weight)


def anchors(table=TABLE, sample_weight=None, seed=0, **kwargs):
    transform, found = learn_dictionary(
        *(table, 20, 4),
        sample_weight=sample_weight,
        seed=seed,
        verbose=0,
        **kwargs,
    )
    return transform.dense_rows(), found


WORK = {
    "additive": additive,
    "own optimizer": lambda: train(
        gumbel(
            keras.optimizers.Adam(
                keras.optimizers.schedules.ExponentialDecay(1e-2, 20, 0.5),
                use_ema=True,
                gradient_accumulation_steps=2,
            )
        )
    ),
    # The best is not the last.
    "anchors": lambda: anchors(sample_weight=WEIGHT, iterations=40),
}


def check_equal(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        if isinstance(theirs, dict):
            assert ours == theirs
        else:
            np.testing.assert_array_equal(ours, theirs)


def stop_after_saves(monkeypatch, number, error=Killed):
    """Raises after so many saves, and again; returns a list of all saves."""
    saves, replace = [], os.replace

    def replace_and_stop(beside, path):
        replace(beside, path)
        if str(path).endswith(".npz"):
            saves.append(path)
            if len(saves) % number == 0:
                raise error

    monkeypatch.setattr(os, "replace", replace_and_stop)
    return saves


@pytest.mark.parametrize("name", WORK)
def test_goes_on_with_the_same_bits(name, tmp_path, monkeypatch):
    """After kills, and after Ctrl-C, which keeps what was found so far."""
    work = WORK[name]
    expected = work()
    kills = 0
    with kc.checkpoint_folder(tmp_path / "killed", interval=0):
        with monkeypatch.context() as patch:
            saves = stop_after_saves(patch, 4)
            while True:
                try:
                    found = work()
                    break
                except Killed:
                    kills += 1
        # Each step was taken once, and the last is there at once.
        check_equal(found, expected)
        assert kills == len(saves) // 4 > 0
        check_equal(work(), expected)
    with kc.checkpoint_folder(tmp_path / "interrupted", interval=0):
        with monkeypatch.context() as patch:
            stop_after_saves(patch, 3, KeyboardInterrupt)
            partial = work()
        assert (partial[0] != expected[0]).any()
        check_equal(work(), expected)


def test_saves_are_not_too_often(tmp_path, monkeypatch):
    with kc.checkpoint_folder(tmp_path, interval=9e9):
        saves = stop_after_saves(monkeypatch, 99)
        additive()
    # The last alone.
    assert len(saves) == 1


def test_other_calls_begin_anew(tmp_path):
    calls = [
        additive,
        lambda: additive(effort=0.5),
        lambda: additive(seed=1),
        lambda: additive(table=TABLE + 1),
        lambda: additive(sample_weight=None),
        anchors,
        lambda: anchors(initial=TABLE[:20]),
        lambda: anchors(initial=TABLE[:20] + 1),
        lambda: anchors(total_nonzeros=300),
        lambda: train(gumbel(keras.optimizers.Nadam(1e-2))),
        lambda: train(gumbel(keras.optimizers.Adamax(1e-2))),
    ]
    expected = [work() for work in calls]
    with kc.checkpoint_folder(tmp_path):
        for _ in range(2):
            for work, wanted in zip(calls, expected, strict=True):
                check_equal(work(), wanted)
            assert len(os.listdir(tmp_path)) == len(calls)
    # Outside, nothing is saved.
    additive(seed=9)
    assert len(os.listdir(tmp_path)) == len(calls)


def test_without_a_seed_runs_differ_and_go_on(tmp_path):
    def run():
        with kc.checkpoint_folder(tmp_path):
            return [additive(seed=None) for _ in range(2)]

    first, second = run()
    assert (first[0] != second[0]).any()
    for found, expected in zip(run(), (first, second), strict=True):
        check_equal(found, expected)


def damage(path, kind):
    content = bytearray(path.read_bytes())
    if kind == "cut":
        content = content[: len(content) // 2]
    elif kind == "flipped":
        content[200] ^= 255
    elif kind == "encrypted":
        # The flag of the first entry of the ZIP file's directory.
        content[content.rindex(b"PK\x01\x02") + 8] |= 1
    elif kind == "empty":
        content = b""
    path.write_bytes(content)
    if kind == "other":
        np.savez(path, codes=np.zeros(3))


def test_damaged_files_are_passed_over(tmp_path):
    with kc.checkpoint_folder(tmp_path):
        expected = additive()
        (path,) = tmp_path.iterdir()
        for kind in ("cut", "flipped", "encrypted", "empty", "other"):
            damage(path, kind)
            with pytest.warns(UserWarning, match="cannot be read"):
                check_equal(additive(), expected)
        # One that is half-written is not read.
        path.rename(f"{path}.unfinished")
        check_equal(additive(), expected)
    assert list(tmp_path.iterdir()) == [path]


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 1e-3


class Other(kc.learners.GumbelCodeLearner):
    pass


def search():
    """Weights of a model whose table was tuned after it was compressed."""
    keras.utils.set_random_seed(0)
    # Names are numbered from one call to the next.
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(500, 16),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", run_eagerly=True)
    x = np.random.default_rng(0).integers(500, size=(64, 6)).astype("int32")
    data = x, x.sum(axis=1) % 2
    budget = kc.compression.BudgetSearch(
        methods=[kc.methods.Rounded(2)],
        train_data=data,
        validation_data=data,
        epochs=2,
        num_tuned=1,
    )
    small = kc.compression.compress_model(
        model, max_bytes=20_000, min_bytes=1, search=budget, seed=0, verbose=0
    )
    return small.get_weights()


@pytest.mark.slow
def test_searches_train_no_copy_twice(tmp_path, monkeypatch):
    expected = search()
    fits, fit = [], keras.Model.fit

    class InTheSecondEpoch(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise Killed

    def counted(self, *args, callbacks, **kwargs):
        fits.append(self)
        if len(fits) == 1:
            callbacks = [*callbacks, InTheSecondEpoch()]
        return fit(self, *args, callbacks=callbacks, **kwargs)

    monkeypatch.setattr(keras.Model, "fit", counted)
    with kc.checkpoint_folder(tmp_path):
        with pytest.raises(Killed):
            search()
        search()
        assert len(fits) == 2
        check_equal(search(), expected)
        assert len(fits) == 2


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (lambda: train(learner(Other)), "the class 'Other' of"),
        (
            lambda: train(gumbel(keras.optimizers.Adam(Schedule()))),
            "get_config",
        ),
        (
            lambda: gumbel().train(
                TABLE,
                callbacks=[
                    keras.callbacks.EarlyStopping("loss", 9e9, patience=0)
                ],
            ),
            "the callback EarlyStopping",
        ),
    ],
)
def test_what_cannot_be_told_apart_is_not_saved(work, reason, tmp_path):
    with (
        kc.checkpoint_folder(tmp_path),
        pytest.warns(UserWarning, match=f"No checkpoint.*{reason}"),
    ):
        work()
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("path", "interval", "argument", "error"),
    [
        ("", 30, "path", ValueError),
        (None, 30, "path", ValueError),
        ("new", -1, "interval", ValueError),
        ("file", 30, "path", NotADirectoryError),
        ("a" * 300, 30, None, OSError),
    ],
)
def test_mistakes(path, interval, argument, error, tmp_path):
    (tmp_path / "file").write_text("")
    with refused(argument, error=error):
        place = tmp_path / path if path else path
        kc.checkpoint_folder(place, interval).__enter__()
    assert os.listdir(tmp_path) == ["file"]


def learn(folder, path, started):
    table = np.random.default_rng(0).normal(size=(12_000, 12))
    quantizer = kc.learners.AdditiveQuantizer(
        4, 16, effort=0.5, seed=0, verbose=0
    )
    with kc.checkpoint_folder(folder, interval=0):
        started.set()
        learner = quantizer.train(table.astype("float32"))
    np.save(path, learner.codes)


@pytest.mark.slow
def test_kills_at_any_moment_lose_nothing(tmp_path):
    rng = np.random.default_rng(0)

    def run(folder, name, limit=None):
        started = children.CONTEXT.Event()
        process = children.start(learn, folder, tmp_path / name, started)
        # Only ends what hangs.
        assert started.wait(600)
        process.join(limit)
        process.kill()
        process.join()

    run(tmp_path / "undisturbed", "expected.npy")
    for _ in range(10):
        run(tmp_path / "folder", "found.npy", rng.uniform(0, 0.3))
    run(tmp_path / "folder", "found.npy")
    np.testing.assert_array_equal(
        np.load(tmp_path / "found.npy"), np.load(tmp_path / "expected.npy")
    )
