"""Long work goes on where it was cut short."""

import errno
import multiprocessing
import os
import shutil

import keras
import killed_work
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.checkpoints import checkpoint as checkpoint_module
from keras_compembed.checkpoints.checkpoint import Checkpoint
from keras_compembed.compression.model_copy import copy_model
from keras_compembed.compression.tuned_copies import TunedCopies
from keras_compembed.learners import saved_epochs
from keras_compembed.learners.training import Training
from keras_compembed.transforms.sparse_coding import learn_dictionary


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def table():
    return np.random.default_rng(0).normal(size=(300, 12)).astype("float32")


def quantizer(**kwargs):
    return kc.learners.AdditiveQuantizer(4, 8, seed=0, verbose=0, **kwargs)


def learner(cls, **kwargs):
    training = Training(60, 32, validation_interval=10, validation_rows=64)
    return cls(4, 8, training=training, seed=0, verbose=0, **kwargs)


def compiled(optimizer, **kwargs):
    made = learner(kc.learners.GumbelCodeLearner)
    made.compile(optimizer, **kwargs)
    return made


LEARNERS = {
    "additive": quantizer,
    "factor": lambda: kc.learners.FactorQuantizer(
        4, 8, rank=6, seed=0, verbose=0
    ),
    "gumbel": lambda: learner(kc.learners.GumbelCodeLearner),
    "kd": lambda: learner(kc.learners.KDCodeLearner, composition="lstm"),
    "free": lambda: learner(kc.learners.KDCodeLearner, logits="free"),
    "own optimizer": lambda: compiled(
        keras.optimizers.Adam(
            keras.optimizers.schedules.ExponentialDecay(1e-2, 20, 0.5),
            use_ema=True,
            gradient_accumulation_steps=2,
        )
    ),
}


def kill_after_saves(monkeypatch, number):
    """Raises after so many saves; returns a list of a number a save."""
    saves, write_arrays = [], checkpoint_module.write_arrays

    def write(path, arrays):
        write_arrays(path, arrays)
        saves.append(len(saves))
        if len(saves) % number == 0:
            raise Killed

    monkeypatch.setattr(checkpoint_module, "write_arrays", write)
    return saves


def check_equal(found, expected):
    np.testing.assert_array_equal(found.codes, expected.codes)
    np.testing.assert_array_equal(found.codebooks, expected.codebooks)
    for name in set(expected.history) - {"seconds"}:
        assert found.history[name] == expected.history[name]


@pytest.mark.parametrize("name", LEARNERS)
def test_goes_on_with_the_same_bits(name, table, tmp_path, monkeypatch):
    make = LEARNERS[name]
    weight = np.random.default_rng(1).random(len(table))
    expected = make().train(table, weight)
    saves = kill_after_saves(monkeypatch, 4)
    kills = 0
    with kc.checkpoint_folder(tmp_path, interval=0):
        while True:
            try:
                found = make().train(table, weight)
                break
            except Killed:
                kills += 1
    check_equal(found, expected)
    assert kills == len(saves) // 4 > 0
    # Each step was taken once.
    monkeypatch.undo()
    with kc.checkpoint_folder(tmp_path, interval=0):
        check_equal(make().train(table, weight), expected)


def anchors_of(table, sample_weight=None, seed=0, **kwargs):
    transform, anchors = learn_dictionary(
        *(table, 20, 4),
        sample_weight=sample_weight,
        seed=seed,
        verbose=0,
        **kwargs,
    )
    return transform.dense_rows(), anchors


def check_anchors(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"non_negative": False, "total_nonzeros": 500},
        # The best is not the last.
        {"iterations": 40},
    ],
)
def test_anchors_go_on_with_the_same_bits(kwargs, table, tmp_path, monkeypatch):
    weight = np.random.default_rng(1).random(len(table))
    expected = anchors_of(table, weight, **kwargs)
    saves = kill_after_saves(monkeypatch, 4)
    kills = 0
    with kc.checkpoint_folder(tmp_path, interval=0):
        while True:
            try:
                found = anchors_of(table, weight, **kwargs)
                break
            except Killed:
                kills += 1
        check_anchors(found, expected)
        assert kills == len(saves) // 4 > 0
        # Each fit was made once, and the last is there at once.
        assert len(saves) == kwargs.get("iterations", 10) + 1
        check_anchors(anchors_of(table, weight, **kwargs), expected)
    assert len(saves) == kwargs.get("iterations", 10) + 1


def test_interrupted_anchors_go_on_later(table, tmp_path, monkeypatch):
    expected = anchors_of(table)
    monkeypatch.setattr(Checkpoint, "save", interrupting(Checkpoint.save, 3))
    with kc.checkpoint_folder(tmp_path, interval=0):
        check_anchors(anchors_of(table), anchors_of(table, iterations=2))
        check_anchors(anchors_of(table), expected)


def test_other_anchors_begin_anew(table, tmp_path):
    given = table[:20]
    calls = [
        {},
        {"seed": 1},
        {"initial": given},
        {"initial": given + 1},
        {"iterations": 3},
        {"non_negative": False},
        {"total_nonzeros": 300},
        {"sample_weight": np.arange(len(table)) + 1.0},
    ]
    expected = [anchors_of(table, **kwargs) for kwargs in calls]
    with kc.checkpoint_folder(tmp_path):
        for _ in range(2):
            for kwargs, wanted in zip(calls, expected, strict=True):
                check_anchors(anchors_of(table, **kwargs), wanted)
    assert len(os.listdir(tmp_path)) == len(calls)


@pytest.mark.parametrize(
    ("work", "suffix", "kills", "seconds"),
    [
        (killed_work.train, ".npz", 20, 0.3),
        (killed_work.compress, ".keras", 6, 2),
        (killed_work.search, ".keras", 4, 6),
    ],
)
def test_kills_at_any_moment_lose_nothing(
    work, suffix, kills, seconds, tmp_path
):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["keras_compembed"])
    killed_work.save_model(tmp_path / "model.keras")
    rng, left = np.random.default_rng(0), kills

    def run(folder, path, limit=None):
        """Whether it ended before it was killed."""
        started = context.Event()
        process = context.Process(
            target=work, args=(tmp_path / folder, path, started)
        )
        process.start()
        assert started.wait(120)
        process.join(limit)
        if process.exitcode is not None:
            assert process.exitcode == 0
            return True
        process.kill()
        process.join()
        # It may have been about to write its result.
        path.unlink(missing_ok=True)
        return False

    expected = tmp_path / f"expected{suffix}"
    assert run("undisturbed", expected)
    while True:
        found = tmp_path / f"found{suffix}"
        if not run("folder", found, rng.uniform(0, seconds) if left else None):
            left -= 1
            continue
        for ours, theirs in zip(
            killed_work.read(found), killed_work.read(expected), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)
        if not left:
            break
        # It ended before it was killed so often: once more.
        found.unlink()
        shutil.rmtree(tmp_path / "folder")


def test_interruption_goes_on_later(table, tmp_path, monkeypatch):
    expected = quantizer().train(table)
    monkeypatch.setattr(
        checkpoint_module.Checkpoint,
        "save",
        interrupting(Checkpoint.save, 10),
    )
    with kc.checkpoint_folder(tmp_path, interval=0):
        partial = quantizer().train(table)
        assert (partial.codes != expected.codes).any()
        check_equal(quantizer().train(table), expected)


def test_interrupted_epochs_go_on_later(table, tmp_path, monkeypatch):
    expected = LEARNERS["gumbel"]().train(table)
    monkeypatch.setattr(Checkpoint, "save", interrupting(Checkpoint.save, 4))
    with kc.checkpoint_folder(tmp_path, interval=0):
        partial = LEARNERS["gumbel"]().train(table)
        assert partial.history["loss"] == expected.history["loss"][:4]
        check_equal(LEARNERS["gumbel"]().train(table), expected)


def test_learners_of_several_workers_are_refused(table, tmp_path, monkeypatch):
    monkeypatch.setattr(saved_epochs, "has_workers", lambda strategy: True)
    with (
        kc.checkpoint_folder(tmp_path),
        pytest.raises(ValueError, match="is for work of one process"),
    ):
        LEARNERS["gumbel"]().train(table)


def interrupting(save, number):
    saves = []

    def saved(self, make, last=False):
        save(self, make, last)
        saves.append(last)
        if len(saves) == number:
            raise KeyboardInterrupt

    return saved


def test_other_calls_begin_anew(table, tmp_path):
    other, weight = table.copy(), np.ones(len(table))
    other[7, 3] += 1
    with kc.checkpoint_folder(tmp_path):
        quantizer().train(table)
        assert len(os.listdir(tmp_path)) == 1
        quantizer(effort=0.5).train(table)
        quantizer().train(other)
        quantizer().train(table, sample_weight=weight)
        assert len(os.listdir(tmp_path)) == 4
        quantizer().train(table)
        assert len(os.listdir(tmp_path)) == 4
    quantizer(effort=0.7).train(table)
    assert len(os.listdir(tmp_path)) == 4


def test_further_training_is_another_call(table, tmp_path):
    make = LEARNERS["gumbel"]
    expected = make().train(table).train(table)
    with kc.checkpoint_folder(tmp_path):
        check_equal(make().train(table).train(table), expected)
        check_equal(make().train(table).train(table), expected)
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize(
    "damage", ["cut", "flipped", "encrypted", "empty", "other"]
)
def test_damaged_files_are_passed_over(damage, table, tmp_path):
    expected = quantizer().train(table)
    with kc.checkpoint_folder(tmp_path):
        quantizer().train(table)
        (path,) = tmp_path.iterdir()
        content = bytearray(path.read_bytes())
        if damage == "cut":
            content = content[: len(content) // 2]
        elif damage == "flipped":
            content[200] ^= 255
        elif damage == "encrypted":
            # The flag of the first entry of the ZIP file's directory.
            content[content.rindex(b"PK\x01\x02") + 8] |= 1
        elif damage == "empty":
            content = b""
        path.write_bytes(content)
        if damage == "other":
            np.savez(path, codes=np.zeros(3))
        with pytest.warns(
            UserWarning, match="cannot be read and is passed over"
        ):
            found = quantizer().train(table)
    check_equal(found, expected)


def test_half_written_files_are_not_read(table, tmp_path):
    expected = quantizer().train(table)
    with kc.checkpoint_folder(tmp_path):
        quantizer().train(table)
        (path,) = tmp_path.iterdir()
        path.rename(f"{path}.unfinished")
        check_equal(quantizer().train(table), expected)
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_last(table, tmp_path, monkeypatch):
    expected = quantizer().train(table)
    saves = kill_after_saves(monkeypatch, 3)
    with kc.checkpoint_folder(tmp_path, interval=0):
        with pytest.raises(Killed):
            quantizer().train(table)
        monkeypatch.undo()
        (path,) = tmp_path.iterdir()
        content = path.read_bytes()

        def savez(file, **arrays):
            file.write(b"part of it")
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(np, "savez", savez)
        with pytest.warns(UserWarning, match="cannot be saved.*No space left"):
            check_equal(quantizer().train(table), expected)
    assert len(saves) == 3
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == content


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 1e-3


class Other(kc.learners.GumbelCodeLearner):
    pass


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "callbacks", "reason"),
    [
        (lambda: learner(Other), [], "the class 'Other' of"),
        (lambda: compiled(keras.optimizers.Adam(Schedule())), [], "get_config"),
        (
            LEARNERS["gumbel"],
            [keras.callbacks.EarlyStopping("loss", patience=0, min_delta=9e9)],
            "the callback EarlyStopping",
        ),
    ],
)
def test_what_cannot_be_told_apart_is_not_saved(
    make, callbacks, reason, table, tmp_path
):
    with (
        kc.checkpoint_folder(tmp_path),
        pytest.warns(UserWarning, match=f"No checkpoint.*{reason}"),
    ):
        make().train(table, callbacks=callbacks)
    assert not os.listdir(tmp_path)


def test_optimizers_of_other_classes_are_other_work(table, tmp_path):
    def make():
        return compiled(keras.optimizers.Nadam(1e-2)).train(table)

    expected = make()
    with kc.checkpoint_folder(tmp_path):
        compiled(keras.optimizers.Adamax(1e-2)).train(table)
        check_equal(make(), expected)


def test_without_a_seed_runs_differ_and_go_on(table, tmp_path):
    def run():
        with kc.checkpoint_folder(tmp_path):
            return [
                kc.learners.AdditiveQuantizer(4, 8, verbose=0).train(table)
                for _ in range(2)
            ]

    first, second = run()
    assert (first.codes != second.codes).any()
    for found, expected in zip(run(), (first, second), strict=True):
        check_equal(found, expected)


def tuned(loss="sparse_categorical_crossentropy", as_dataset=False):
    """A copy of a model after tuning, and its score."""
    rng = np.random.default_rng(0)
    keras.utils.set_random_seed(0)
    # Names are numbered from one call to the next.
    ids = keras.Input((6,), dtype="int32")
    rows = keras.layers.Embedding(500, 16)(ids)
    features = keras.layers.GlobalAveragePooling1D()(rows)
    features = keras.layers.Dropout(0.2)(features)
    outputs = keras.layers.Dense(2, activation="softmax")(features)
    model = keras.Model(ids, outputs)
    model.compile("adam", loss, metrics=["accuracy"])
    x = rng.integers(500, size=(64, 6)).astype("int32")
    data = x, x.sum(axis=1) % 2
    train_data = data
    if as_dataset:
        train_data = tf.data.Dataset.from_tensor_slices(data).batch(16)
    search = kc.compression.BudgetSearch(
        train_data=train_data,
        validation_data=data,
        epochs=2,
        fit_options={"shuffle": not as_dataset},
    )
    copies = TunedCopies(model, search, seed=0)
    copy, _ = copy_model(model, {})
    copies.compile(copy)
    score, _ = copies.tune(copy)
    return copy, score


def test_searches_train_no_copy_twice(tmp_path, monkeypatch):
    expected, score = tuned()
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
            tuned()
        for _ in range(2):
            copy, again = tuned()
            assert again == score and len(fits) == 2
            for found, wanted in zip(
                [*copy.weights, *copy.optimizer.variables],
                [*expected.weights, *expected.optimizer.variables],
                strict=True,
            ):
                np.testing.assert_array_equal(found, wanted)


def own_loss(y_true, y_pred):
    return keras.losses.sparse_categorical_crossentropy(y_true, y_pred)


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"loss": own_loss}, "the function 'own_loss'"),
        ({"as_dataset": True}, "a `tf.data.Dataset`; arrays can be"),
    ],
)
def test_copies_that_cannot_be_told_apart(arguments, reason, tmp_path):
    with (
        kc.checkpoint_folder(tmp_path),
        pytest.warns(UserWarning, match=f"No checkpoint.*{reason}"),
    ):
        tuned(**arguments)
    assert not os.listdir(tmp_path)


def test_saves_are_not_too_often(tmp_path, monkeypatch):
    now, saved = [0.0], []
    monkeypatch.setattr(checkpoint_module.time, "monotonic", lambda: now[0])

    def make():
        saved.append(now[0])
        now[0] += 2
        return {}, {}

    with kc.checkpoint_folder(tmp_path, interval=5):
        checkpoint = Checkpoint("work", lambda: ({}, []), seed=0)
        for _ in range(50):
            now[0] += 1
            checkpoint.save(make)
    # Twenty seconds of work after two of saving.
    assert saved == [5, 27, 49]


@pytest.mark.parametrize(
    ("path", "interval", "error", "message"),
    [
        ("", 30, ValueError, "`path` must name a folder"),
        (None, 30, ValueError, "`path` must name a folder. .* path=None"),
        ("new", -1, ValueError, "`interval` must be a number of at least 0"),
        ("file", 30, NotADirectoryError, "`path` must be a folder"),
        ("a" * 300, 30, OSError, "Cannot make the folder .* of checkpoints"),
    ],
)
def test_mistakes(path, interval, error, message, tmp_path):
    (tmp_path / "file").write_text("")
    if path:
        path = tmp_path / path
    with (
        pytest.raises(error, match=message),
        kc.checkpoint_folder(path, interval),
    ):
        pass
    assert os.listdir(tmp_path) == ["file"]
