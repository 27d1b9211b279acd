import pathlib

import keras
import pytest
from errors import refused

import keras_compembed as kc

keras_tuner = pytest.importorskip("keras_tuner")

# Of keras-tuner's, on Python 3.10 and newer; and of few trials to learn from.
pytestmark = [
    pytest.mark.filterwarnings("ignore:currentThread:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The optimal value found for dimension"),
]
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


def test_ctrl_c_before_anything_is_found(tmp_path):
    tuner = make_tuner("RandomSearch", tmp_path)
    with pytest.raises(KeyboardInterrupt):
        tuner.search(stop_at=1, verbose=0)


def test_another_search_in_the_folder(tmp_path):
    make_tuner("RandomSearch", tmp_path).search(verbose=0)
    with refused(None, "val_loss"):
        make_tuner("RandomSearch", tmp_path, objective="val_loss")

    class Other(Tiny):
        def declare_hyperparameters(self, hp):
            hp.Choice("c", [1, 2])

    with refused(None, "['c']"):
        make_tuner("RandomSearch", tmp_path, Other())
    make_tuner("RandomSearch", tmp_path, Other(), overwrite=True)
    for value in (keras_tuner.Oracle, "RandomSearch"):
        with refused("tuner_class", error=TypeError):
            kc.tuning.resumable(value)


class Stop(keras.callbacks.Callback):
    """In the middle of the second trial: each has two batches."""

    # Each trial has a copy of the callback.
    count = 0

    def on_train_batch_end(self, batch, logs=None):
        Stop.count += 1
        if Stop.count == 3:
            raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.slow
def test_trials_that_train(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parent)
    import test_compressed_hyper_model as cases

    hypermodel = cases.make_hypermodel(methods=cases.ROUNDED)
    options = {"objective": "val_accuracy", "max_trials": 3, "seed": 2}

    def make(project, made=hypermodel):
        return make_tuner(
            "RandomSearch", tmp_path, made, project_name=project, **options
        )

    whole = make("whole")
    whole.search(**cases.DATA)
    stopped = cases.make_hypermodel(hypermodel.model, methods=cases.ROUNDED)
    make("stopped", stopped).search(**cases.DATA, callbacks=[Stop()])
    spoil(tmp_path / "stopped")
    # Fits of tables are there; one that cannot be read is made again.
    first, *_ = sorted((tmp_path / "stopped" / "tables").iterdir())
    first.write_bytes(first.read_bytes()[:100])
    tuner = make(
        "stopped",
        cases.make_hypermodel(hypermodel.model, methods=cases.ROUNDED),
    )
    assert len(results(tuner)) == 2
    tuner.search(**cases.DATA)
    assert results(tuner) == results(whole)
    assert len(kc.tuning.pareto_front(tuner).trials) == 3
    kernel = hypermodel.model.layers[-1].kernel
    kernel.assign_add(keras.ops.ones_like(kernel))
    with pytest.warns(UserWarning, match="other weights"):
        make("stopped")
