import sys

import keras
import numpy as np
import pytest
from errors import refused

import keras_compembed as kc

keras_tuner = pytest.importorskip("keras_tuner")

# Of keras-tuner's, on Python 3.10 and newer; and of few trials to learn from.
pytestmark = [
    pytest.mark.filterwarnings("ignore:currentThread:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The optimal value found for dimension"),
]
ROWS, WIDTH, LENGTH = 400, 32, 6
IDS = np.random.default_rng(0).integers(ROWS, size=(96, LENGTH))
LABELS = (IDS % 4).sum(axis=1) % 3
DATA = {
    "x": IDS[:64],
    "y": LABELS[:64],
    "validation_data": (IDS[64:], LABELS[64:]),
    "epochs": 1,
    "batch_size": 32,
    "verbose": 0,
}
SMALL = [
    *(kc.methods.Quantized(bits) for bits in (4, 2)),
    *(kc.methods.Codes(m, 4) for m in (2, 4, 8)),
]


def make_model(tables=1):
    keras.utils.set_random_seed(0)
    ids = keras.Input((LENGTH,), dtype="int32")
    rows = [
        keras.layers.Embedding(ROWS, WIDTH, name=f"words{place}")(ids)
        for place in range(tables)
    ]
    joined = keras.layers.Concatenate()(rows) if tables > 1 else rows[0]
    x = keras.layers.Dropout(0.2)(keras.layers.Flatten()(joined))
    # Converters drop biases that are zeros.
    dense = keras.layers.Dense(3, "softmax", bias_initializer="ones")
    model = keras.Model(ids, dense(x))
    model.compile(
        keras.optimizers.Adam(1e-2),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        # Graphs of so few batches take longer than they save.
        run_eagerly=True,
    )
    return model


def make_hypermodel(model=None, layers=("words0",), rates=None, **options):
    budget = kc.Budget(**{"methods": SMALL, **options})
    model = model or make_model()
    return kc.tuning.CompressedHyperModel(model, budget, layers, rates, 0, 0)


@pytest.fixture(scope="module")
def hypermodel():
    return make_hypermodel(rates=[1e-3, 1e-2])


def file_bytes(model, folder):
    path = folder / "model.tflite"
    kc.export_litert(model, path, overwrite=True, verbose=0)
    return path.stat().st_size


def methods_of(hypermodel):
    hp = keras_tuner.HyperParameters()
    hypermodel.build(hp)
    return hp.space[0].values


def test_default_methods_fit_where_they_are_proposed(tmp_path):
    model = make_model(tables=2)
    limit = 30_000
    layers = ["words0", "words1"]
    hypermodel = make_hypermodel(model, layers, methods=None, max_bytes=limit)
    assert hypermodel.original_bytes == file_bytes(model, tmp_path)
    names = methods_of(hypermodel)
    assert {"codes 2x4", "int2 rank 4"} <= set(names)
    assert "int8" not in names
    hp = keras_tuner.HyperParameters()
    # The largest is the one that a wrong sum would let pass.
    for name in (names[0], names[-1]):
        hp.values["method"] = name
        small = hypermodel.build(hp)
        assert file_bytes(small, tmp_path) <= limit


def test_trials_beyond_the_limit_fail_before_they_are_trained(tmp_path):
    hypermodel = make_hypermodel(max_bytes=30_000)
    # As where the arithmetic is wrong.
    hypermodel._count = lambda model: 30_001
    tuner = keras_tuner.RandomSearch(
        hypermodel,
        objective="val_loss",
        max_trials=1,
        directory=tmp_path,
    )
    tuner.search(**DATA)
    (trial,) = tuner.oracle.trials.values()
    assert trial.status == "FAILED" and "30,001 bytes" in trial.message
    assert not trial.metrics.metrics


def test_method_of_settings(hypermodel):
    hp = keras_tuner.HyperParameters()
    model = hypermodel.build(hp)
    assert hp.values == {"method": "codes 2x4", "learning_rate": 1e-3}
    layer = model.get_layer("words0")
    assert (layer.num_codebooks, layer.codebook_size) == (2, 4)
    assert model.optimizer.learning_rate == np.float32(1e-3)
    # All but the table is as it was trained.
    for old, new in zip(
        hypermodel.model.layers[-1].get_weights(),
        model.layers[-1].get_weights(),
        strict=True,
    ):
        np.testing.assert_array_equal(old, new)
    hp.values["method"] = "int4"
    layer = hypermodel.build(hp).get_layer("words0")
    assert isinstance(layer, kc.QuantizedEmbedding) and layer.bits == 4


SLOW = {"marks": pytest.mark.slow}
OPTIONS = {"Hyperband": {"max_epochs": 2, "factor": 2}}


@pytest.mark.parametrize(
    "name",
    [
        "RandomSearch",
        pytest.param("BayesianOptimization", **SLOW),
        pytest.param("Hyperband", **SLOW),
    ],
)
def test_tuners(name, hypermodel, tmp_path):
    """keras-tuner's own, as they are."""
    options = OPTIONS.get(name, {"max_trials": 3})
    tuner = getattr(keras_tuner, name)(
        hypermodel, objective="val_loss", seed=1, directory=tmp_path, **options
    )
    tuner.search(**DATA)
    trials = list(tuner.oracle.trials.values())
    assert {x.status for x in trials} == {"COMPLETED"}
    (best,) = tuner.oracle.get_best_trials()
    (model,) = tuner.get_best_models()
    score = model.evaluate(*DATA["validation_data"], verbose=0)[0]
    assert score == pytest.approx(best.score, abs=1e-4)
    size = best.metrics.get_best_value("litert_bytes")
    assert size == file_bytes(model, tmp_path) < hypermodel.original_bytes


@pytest.mark.slow
def test_two_objectives_and_a_seed(tmp_path):
    model, scores = make_model(), []
    bytes_too = keras_tuner.Objective("litert_bytes", "min")
    for name in ("one", "two"):
        tuner = keras_tuner.RandomSearch(
            make_hypermodel(model),
            objective=["val_loss", bytes_too],
            max_trials=1,
            executions_per_trial=2,
            seed=3,
            directory=tmp_path,
            project_name=name,
        )
        tuner.search(**DATA)
        (trial,) = tuner.oracle.trials.values()
        scores.append(trial.score)
    losses = trial.metrics.get_history("val_loss")[0].value
    size = trial.metrics.get_best_value("litert_bytes")
    assert trial.score == pytest.approx(size + np.mean(losses))
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("options", "argument", "error"),
    [
        ({"max_bytes": 0}, "max_bytes", ValueError),
        ({"max_bytes": 100}, "max_bytes", ValueError),
        ({"layers": ["other"]}, None, ValueError),
        ({"layers": None}, None, ValueError),
        ({"methods": []}, "methods", ValueError),
        ({"methods": [kc.methods.Codes(64, 256)]}, "methods", ValueError),
        ({"methods": ["codes"]}, "methods", TypeError),
        ({"methods": SMALL * 2}, "methods", ValueError),
        ({"rates": [-1.0]}, "learning_rates", ValueError),
        ({"max_time": 3}, "budget", ValueError),
        ({"model": "model"}, "model", ValueError),
        ({"model": keras.Sequential([])}, "model", ValueError),
    ],
)
def test_bad_input(options, argument, error):
    with refused(argument, error=error):
        make_hypermodel(**options)


def test_rates_of_a_schedule():
    model = make_model()
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 9)
    model.compile(keras.optimizers.SGD(schedule), "mse")
    with pytest.raises(ValueError, match="has a schedule"):
        make_hypermodel(model, rates=[0.1])


def test_keras_tuner_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_tuner", None)
    with pytest.raises(ImportError, match=r"keras-compembed\[tune\]"):
        _ = kc.tuning.CompressedHyperModel
