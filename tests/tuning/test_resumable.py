import json
import pathlib
import signal
import subprocess
import sys

import keras
import pytest

import keras_compembed as kc

keras_tuner = pytest.importorskip("keras_tuner")

# Of keras-tuner's, on Python 3.10 and newer; and of few trials to learn from.
pytestmark = [
    pytest.mark.filterwarnings("ignore:currentThread:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The optimal value found for dimension"),
]
HERE = pathlib.Path(__file__).parent
TUNERS = {
    "RandomSearch": {"max_trials": 4},
    "BayesianOptimization": {"max_trials": 4, "num_initial_points": 3},
    "Hyperband": {"max_epochs": 2, "factor": 2},
    "GridSearch": {"max_trials": 4},
}


class Tiny(keras_tuner.HyperModel):
    """Trials that cost nothing, for what searches do between them."""

    def build(self, hp):
        hp.Choice("method", ["a", "b"])
        for name in "ab":
            with hp.conditional_scope("method", [name]):
                hp.Choice(name, [1, 2, 3])
        inputs = keras.Input((1,))
        model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
        model.compile("sgd", "mse")
        return model

    def fit(self, hp, model, *args, callbacks=(), stop_at=None, **kwargs):
        (callback,) = (x for x in callbacks if hasattr(x, "tuner"))
        if len(callback.tuner.oracle.trials) == stop_at:
            raise KeyboardInterrupt
        model.save_weights(callbacks[-1].filepath)
        return {"loss": float(hp.get(hp.get("method")))}


def make_tuner(name, folder, hypermodel=None, **options):
    options = {"objective": "loss", "seed": 5, **TUNERS[name], **options}
    return kc.tuning.resumable(getattr(keras_tuner, name))(
        hypermodel or Tiny(), directory=folder, **options
    )


def results(tuner):
    return [
        (x.trial_id, x.status, x.hyperparameters.values, x.score)
        for x in tuner.oracle.trials.values()
    ]


def spoil(folder):
    """What a kill leaves that came while files were written."""
    *_, running = sorted(folder.glob("trial_*/trial.json"))
    for path in (folder / "oracle.json", folder / "tuner0.json", running):
        path.write_text(path.read_text()[:7])
    # A trial that was begun, but not noted.
    orphan = folder / "trial_9"
    orphan.mkdir()
    (orphan / "trial.json").write_text("{")


@pytest.mark.parametrize("name", TUNERS)
def test_goes_on(name, tmp_path, capsys):
    whole = make_tuner(name, tmp_path, project_name="whole")
    whole.search(verbose=0)
    tuner = make_tuner(name, tmp_path, project_name="stopped")
    tuner.search(stop_at=3, verbose=0)
    assert "2 trials are kept" in capsys.readouterr().out
    spoil(tmp_path / "stopped")
    tuner = make_tuner(name, tmp_path, project_name="stopped")
    assert len(results(tuner)) == 3
    tuner.search(verbose=0)
    assert results(tuner) == results(whole)
    # Once more, with nothing left to do.
    again = make_tuner(name, tmp_path, project_name="stopped")
    again.search(verbose=0)
    assert results(again) == results(whole)


def test_goes_on_in_the_same_process(tmp_path):
    whole = make_tuner("GridSearch", tmp_path, project_name="whole")
    whole.search(verbose=0)
    tuner = make_tuner("GridSearch", tmp_path, project_name="stopped")
    tuner.search(stop_at=2, verbose=0)
    tuner.search(verbose=0)
    assert results(tuner) == results(whole)


def test_ctrl_c_before_anything_is_found(tmp_path):
    tuner = make_tuner("RandomSearch", tmp_path)
    with pytest.raises(KeyboardInterrupt):
        tuner.search(stop_at=1, verbose=0)


def test_another_search_in_the_folder(tmp_path):
    make_tuner("RandomSearch", tmp_path).search(verbose=0)
    with pytest.raises(ValueError, match="objective must be that"):
        make_tuner("RandomSearch", tmp_path, objective="val_loss")

    class Other(Tiny):
        def declare_hyperparameters(self, hp):
            hp.Choice("c", [1, 2])

    with pytest.raises(ValueError, match=r"others for \['c'\]"):
        make_tuner("RandomSearch", tmp_path, Other())
    make_tuner("RandomSearch", tmp_path, Other(), overwrite=True)


def test_project_that_keras_tuner_began(tmp_path):
    tuner = keras_tuner.RandomSearch(
        Tiny(), objective="loss", max_trials=2, seed=5, directory=tmp_path
    )
    tuner.search(verbose=0)
    # Keras-tuner reads the folders of trials in any order.
    again = make_tuner("RandomSearch", tmp_path)
    assert sorted(results(again)) == sorted(results(tuner))


def test_tuner_class():
    for value in (keras_tuner.Oracle, "RandomSearch"):
        with pytest.raises(TypeError, match="`tuner_class` must be"):
            kc.tuning.resumable(value)


CHILD = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
import keras
import test_compressed_hyper_model as cases
import keras_tuner
import keras_compembed as kc

class Kill(keras.callbacks.Callback):
    count = 0
    def on_train_batch_end(self, batch, logs=None):
        Kill.count += 1
        # In the middle of the second trial: each has two batches.
        if Kill.count == 3:
            os.kill(os.getpid(), signal.SIGKILL)

tuner = kc.tuning.resumable(keras_tuner.RandomSearch)(
    cases.make_hypermodel(methods=cases.ROUNDED), objective="val_accuracy",
    max_trials=3, seed=2,
    directory=sys.argv[1], project_name="killed")
tuner.search(**cases.DATA, callbacks=[Kill()])
"""


def test_killed_in_the_middle_of_a_trial(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    import test_compressed_hyper_model as cases

    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), str(HERE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    folder = tmp_path / "killed"
    states = [
        json.loads(path.read_text())["status"]
        for path in sorted(folder.glob("trial_*/trial.json"))
    ]
    assert states == ["COMPLETED", "RUNNING"]
    spoil(folder)

    hypermodel = cases.make_hypermodel(methods=cases.ROUNDED)
    found = []
    for project in ("killed", "whole"):
        tuner = make_tuner(
            "RandomSearch",
            tmp_path,
            hypermodel,
            objective="val_accuracy",
            max_trials=3,
            seed=2,
            project_name=project,
        )
        if project == "killed":
            # A fit that the other process made is there.
            assert list((folder / "tables").iterdir())
            assert len(results(tuner)) == 2
        tuner.search(**cases.DATA)
        found.append(results(tuner))
    assert found[0] == found[1]
    front = kc.tuning.pareto_front(tuner)
    assert len(front.trials) == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_other_weights(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    import test_compressed_hyper_model as cases

    hypermodel = cases.make_hypermodel(methods=cases.ROUNDED)
    make_tuner("GridSearch", tmp_path, hypermodel, max_trials=1).search(
        **{**cases.DATA, "verbose": 0}
    )
    hypermodel.model.layers[-1].kernel.assign_add(
        keras.ops.ones_like(hypermodel.model.layers[-1].kernel)
    )
    with pytest.warns(UserWarning, match="started from other weights"):
        make_tuner("GridSearch", tmp_path, hypermodel, max_trials=1)
