"""Training goes on where a worker died."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

from examples.multi_worker import launch
from examples.multi_worker import train
from keras_compembed.distribution import WorkerBackup

ROOT = pathlib.Path(__file__).parents[2]
ROWS = 24


class Stop(keras.callbacks.Callback):
    """Interrupts training before an epoch."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch:
            raise KeyboardInterrupt


def fit(folder, *callbacks, epochs=4, **kwargs):
    keras.utils.set_random_seed(0)
    model = train.build()
    # Tracing steps would take longer than taking them.
    model.run_eagerly = True
    ids = np.random.default_rng(0).integers(
        train.WORDS, size=(ROWS, train.LENGTH)
    )
    history = model.fit(
        ids,
        ids.sum(axis=1) % 2,
        batch_size=8,
        epochs=epochs,
        shuffle=False,
        callbacks=[WorkerBackup(folder, **kwargs), *callbacks],
        verbose=0,
    )
    return model, history.history["loss"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Weights and losses of what was never stopped."""
    model, losses = fit(tmp_path_factory.mktemp("whole"))
    return model.get_weights(), losses


def epochs_of(folder):
    """Paths of backups by their epochs."""
    return {
        int(path.name.split("-")[1]): path
        for path in sorted(folder.glob("epoch-*.weights.h5"))
    }


@pytest.fixture
def stopped(tmp_path):
    """The folder of what was stopped after two epochs."""
    folder = tmp_path / "backup"
    with pytest.raises(KeyboardInterrupt):
        fit(folder, Stop(2))
    assert len(os.listdir(folder)) == 2 and set(epochs_of(folder)) == {1, 2}
    return folder


def flip_a_bit(path):
    """In codebooks, which h5 alone reads as they are."""
    with h5py.File(path) as file:
        place = file["layers/code_embedding/vars/0"].id.get_offset()
    content = bytearray(path.read_bytes())
    content[place] ^= 64
    path.write_bytes(content)


DAMAGES = {
    "none": lambda path: None,
    "a bit": flip_a_bit,
    "half-written": lambda path: path.rename(
        path.with_name("unfinished.weights.h5")
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_goes_on(stopped, damage, whole):
    DAMAGES[damage](epochs_of(stopped)[2])
    left = 2 if damage == "none" else 3
    model, losses = fit(stopped)
    expected, all_losses = whole
    np.testing.assert_array_equal(losses, all_losses[-left:])
    for found, wanted in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert not stopped.exists()


def test_files_of_others_stay(stopped):
    (stopped / "notes.txt").write_text("of someone else")
    (stopped / "unfinished.weights.h5").write_bytes(b"part of it")
    fit(stopped)
    assert os.listdir(stopped) == ["notes.txt"]


def test_a_backup_of_other_weights_is_refused(stopped, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(train, "WORDS", train.WORDS + 1)
        with pytest.raises(ValueError, match="`backup_dir`"):
            fit(stopped)
    assert set(epochs_of(stopped)) == {1, 2}
    with refused("backup_dir", "''"):
        WorkerBackup("")


def test_files_stay_if_asked(tmp_path):
    folder = tmp_path / "kept"
    fit(folder, delete_checkpoint=False)
    assert set(epochs_of(folder)) == {3, 4}
    _, losses = fit(folder, epochs=5, delete_checkpoint=False)
    assert len(losses) == 1
    # Tests make errors of warnings.
    with refused("fit", None, UserWarning):
        fit(folder, epochs=3, delete_checkpoint=False)


def test_files_stay_until_all_workers_are_there(tmp_path, monkeypatch):
    """One that died after the last epoch loses none of them."""
    gather = tf.distribute.Strategy.gather

    def gather_or_die(*args, **kwargs):
        if epochs_of(tmp_path / "backup"):
            raise tf.errors.UnavailableError(None, None, "A worker died.")
        return gather(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(tf.distribute.Strategy, "gather", gather_or_die)
        with pytest.raises(tf.errors.UnavailableError):
            fit(tmp_path / "backup")
    _, losses = fit(tmp_path / "backup", epochs=5)
    assert len(losses) == 1


@pytest.mark.filterwarnings("ignore:`fit` has nothing to train")
def test_another_fit_has_all_of_its_epochs(stopped):
    model, losses = fit(stopped, delete_checkpoint=False)
    assert len(losses) == 2
    ids = np.zeros((ROWS, train.LENGTH), "int32")
    # The second goes on after the last epoch, and so has none.
    for callbacks, left in (([], 3), ([WorkerBackup(stopped)], 0), ([], 3)):
        history = model.fit(
            ids, ids[:, 0], epochs=3, callbacks=callbacks, verbose=0
        )
        assert len(history.epoch) == left


def test_a_folder_that_is_not_shared_is_refused(tmp_path, monkeypatch):
    gather, asked = tf.distribute.Strategy.gather, []

    def gather_from_two(*args, **kwargs):
        # Another worker goes on after epoch 5, whose backup it finds.
        asked.append(5 if not asked else 1)
        return tf.concat([gather(*args, **kwargs), asked[-1:]], axis=0)

    monkeypatch.setattr(tf.distribute.Strategy, "gather", gather_from_two)
    with refused("backup_dir", "epoch 5", OSError):
        fit(tmp_path)


@pytest.mark.slow
def test_a_killed_worker_loses_an_epoch_at_most(tmp_path):
    arguments = "--epochs 5 --texts 3000 --batch-size 100 --backup".split()
    program = [
        *[sys.executable, launch.__file__, "--workers", "2"],
        *[train.__file__, *arguments, tmp_path / "workers"],
    ]
    with subprocess.Popen(
        program,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        lines, pids = [], []
        for line in process.stdout:
            lines.append(line)
            pids += re.findall(r"^worker \d: process (\d+)", line)
            if "Epoch 3/5" in line and len(pids) == 2:
                os.kill(int(pids[1]), signal.SIGKILL)
                pids.append(None)
    output = "".join(lines)
    assert process.returncode == 0, output[-5000:]
    assert "a worker ended with -9; restarts left: 3" in output
    before, again = output.split("restarts left: 3")
    assert "A worker ended or cannot be reached." in before, before
    assert "Epoch 5/5" in again and "Epoch 2/5" not in again
    expected = train.main([*arguments, str(tmp_path / "one")]).history
    for name in ("loss", "accuracy"):
        last = re.findall(rf"{name}: ([\d.]+)", again)[-1]
        assert float(last) == pytest.approx(expected[name][-1], abs=2e-4)


def test_a_disk_that_is_full_leaves_the_last(stopped, monkeypatch):
    def save_weights(self, path, **kwargs):
        pathlib.Path(path).write_bytes(b"part of it")
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(keras.Model, "save_weights", save_weights)
        with pytest.raises(OSError, match="No space left"):
            fit(stopped)
    _, losses = fit(stopped)
    assert len(losses) == 2


def fake_command(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def test_hosts_of_slurm_become_the_configuration(tmp_path):
    fake_command(tmp_path, "scontrol", "printf 'one\\ntwo\\n'")
    fake_command(tmp_path, "srun", 'shift; SLURM_PROCID=1 exec "$@"')
    fake_command(tmp_path, "python", 'echo "$TF_CONFIG"; echo "$@" >&2')
    ended = subprocess.run(
        ["bash", pathlib.Path(launch.__file__).with_name("slurm.sh")],
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURM_SUBMIT_DIR": "/shared folder",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ended.stdout) == {
        "cluster": {"worker": ["one:12345", "two:12345"]},
        "task": {"type": "worker", "index": 1},
    }
    assert ended.stderr.endswith("train.py --backup /shared folder/backup\n")
