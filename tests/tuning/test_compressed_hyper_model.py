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
SMALL = {
    "rounded": [kc.methods.Rounded(2), kc.methods.Rounded(4)],
    "codes": [kc.methods.Codes(m, 4) for m in (2, 4, 8)],
}

ROUNDED = {"rounded": [kc.methods.Rounded(bits) for bits in (2, 4, 8)]}


def make_model(tables=1):
    keras.utils.set_random_seed(0)
    ids = keras.Input((LENGTH,), dtype="int32")
    rows = [
        keras.layers.Embedding(ROWS, WIDTH, name=f"words{place}")(ids)
        for place in range(tables)
    ]
    joined = keras.layers.Concatenate()(rows) if tables > 1 else rows[0]
    x = keras.layers.Dropout(0.2)(keras.layers.Flatten()(joined))
    model = keras.Model(ids, keras.layers.Dense(3, activation="softmax")(x))
    model.compile(
        keras.optimizers.Adam(1e-2),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        # Graphs of so few batches take longer than they save.
        run_eagerly=True,
    )
    return model


def make_hypermodel(model=None, **options):
    options = {
        "methods": SMALL,
        "min_bytes": 0,
        "seed": 0,
        "verbose": 0,
        **options,
    }
    return kc.tuning.CompressedHyperModel(model or make_model(), **options)


@pytest.fixture(scope="module")
def hypermodel():
    return make_hypermodel(learning_rates=[1e-3, 1e-2])


def values_of(tuner):
    return [x.hyperparameters.values for x in tuner.oracle.trials.values()]


def choices_of(hypermodel):
    """Names that each hyperparameter takes, smallest first."""
    hp = keras_tuner.HyperParameters()
    hypermodel.declare_hyperparameters(hp)
    return {each.name: each.values for each in hp.space}


def test_every_default_method_fits_where_it_is_proposed(tmp_path):
    model = make_model(tables=2)
    limit = 50_000
    hypermodel = make_hypermodel(model, methods=None, max_bytes=limit)
    choices = choices_of(hypermodel)
    families = kc.tuning.method_families()
    assert set(choices) == {"method", *families}
    assert set(choices["method"]) == set(families)
    for family, methods in families.items():
        by_name = {each.name: each for each in methods}
        offered = [by_name[name] for name in choices[family]]
        sizes = [each.litert_bytes(ROWS, WIDTH) for each in offered]
        assert sizes == sorted(sizes)
        # The largest is the one that a wrong sum would let pass.
        small = kc.compression.compress_model(
            model, method=offered[-1], min_bytes=0, seed=0, verbose=0
        )
        path = tmp_path / f"{family}.tflite"
        kc.export.export_litert(small, path, verbose=0)
        assert path.stat().st_size <= limit


def test_nothing_fits():
    with refused("max_bytes", 100) as caught:
        make_hypermodel(max_bytes=100)
    assert "'codes 2x4'" in str(caught.value)
    with refused("methods"):
        make_hypermodel(methods={"codes": [kc.methods.Codes(64, 256)]})


def test_method_of_settings(hypermodel):
    hp = keras_tuner.HyperParameters()
    model = hypermodel.build(hp)
    assert hp.values == {
        "method": "rounded",
        "rounded": "int2",
        "learning_rate": 1e-3,
    }
    layer = model.get_layer("words0")
    assert isinstance(layer, kc.QuantizedEmbedding) and layer.bits == 2
    assert model.optimizer.learning_rate == np.float32(1e-3)
    # All but the table is as it was trained.
    for old, new in zip(
        hypermodel.model.layers[-1].get_weights(),
        model.layers[-1].get_weights(),
        strict=True,
    ):
        np.testing.assert_array_equal(old, new)
    hp.values |= {"method": "codes", "codes": "codes 4x4"}
    layer = hypermodel.build(hp).get_layer("words0")
    assert (layer.num_codebooks, layer.codebook_size) == (4, 4)
    hp.values["codes"] = "codes 64x4"
    with refused(None, "'codes 64x4', in the family"):
        hypermodel.build(hp)


@pytest.mark.parametrize(
    ("tuner_class", "options", "count"),
    [
        ("RandomSearch", {"max_trials": 3}, 3),
        pytest.param(
            *("Hyperband", {"max_epochs": 2, "factor": 2}, 4),
            marks=pytest.mark.slow,
        ),
        # All of them.
        ("GridSearch", {}, 10),
    ],
)
def test_tuners(tuner_class, options, count, hypermodel, tmp_path):
    """keras-tuner's own, as they are."""
    if tuner_class == "GridSearch":
        # Without training, which costs most.
        hypermodel = make_hypermodel(
            hypermodel.model, learning_rates=[1e-3, 1e-2]
        )
        hypermodel.fit = lambda hp, model, *args, **kwargs: {"val_loss": 1.0}
    tuner = getattr(keras_tuner, tuner_class)(
        hypermodel,
        objective="val_loss",
        seed=1,
        directory=tmp_path,
        **options,
    )
    tuner.search(**DATA)
    trials = list(tuner.oracle.trials.values())
    assert {x.status for x in trials} == {"COMPLETED"}
    assert len(trials) == count or tuner_class == "Hyperband"
    choices = choices_of(hypermodel)
    for values in values_of(tuner):
        assert values[values["method"]] in choices[values["method"]]
        assert sum(name in values for name in SMALL) == 1
    if tuner_class == "GridSearch":
        tried = [tuple(sorted(map(str, x.values()))) for x in values_of(tuner)]
        assert len(set(tried)) == count
        return
    front = kc.tuning.pareto_front(tuner)
    for trial in front.trials:
        assert 0 < trial.litert_bytes < front.original_bytes
    if tuner_class == "Hyperband":
        # A second round goes on from the first one's weights.
        assert any(x.get("tuner/round") == 1 for x in values_of(tuner))
    best = front.best_under()
    model = kc.tuning.best_model(tuner)
    score = model.evaluate(*DATA["validation_data"], verbose=0)[0]
    assert score == pytest.approx(best.score, abs=1e-4)
    with refused("max_bytes", 100):
        kc.tuning.best_model(tuner, max_bytes=100)


def test_two_objectives_and_a_seed(tmp_path):
    model = make_model()
    scores = []
    for name in ("one", "two"):
        tuner = keras_tuner.RandomSearch(
            make_hypermodel(model, methods=ROUNDED),
            objective=[
                "val_loss",
                keras_tuner.Objective("litert_bytes", "min"),
            ],
            max_trials=1,
            executions_per_trial=2,
            seed=3,
            directory=tmp_path,
            project_name=name,
        )
        tuner.search(**DATA)
        front = kc.tuning.pareto_front(tuner)
        assert front.metric == "val_loss" and front.direction == "min"
        scores += [(x.method, x.litert_bytes, x.score) for x in front.trials]
        (trial,) = tuner.oracle.trials.values()
        _, size, score = scores[-1]
        assert trial.score == pytest.approx(size + score)
    assert scores[0] == scores[1]


def test_objective(hypermodel, tmp_path):
    def search(objective, **changes):
        keras_tuner.RandomSearch(
            hypermodel,
            objective=objective,
            max_trials=1,
            directory=tmp_path,
            overwrite=True,
        ).search(**{**DATA, **changes})

    unknown = keras_tuner.Objective("val_f1", "max")
    callback = keras.callbacks.LambdaCallback()
    with refused("validation_data"):
        search("val_loss", validation_data=None)
    # One of a callback's may come with the end of an epoch.
    for changes in ({}, {"callbacks": [callback]}):
        with pytest.raises(ValueError, match="'val_f1'"):
            search(unknown, **changes)
    search(unknown, callbacks=[F1()])


class F1(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs["val_f1"] = 0.5


@pytest.mark.parametrize(
    ("options", "argument", "error"),
    [
        ({"max_bytes": 0}, "max_bytes", ValueError),
        ({"layers": ["other"]}, None, ValueError),
        ({"min_bytes": 10**6}, "min_bytes", ValueError),
        (
            {"layer_settings": {"words0": {"method": None}}},
            "layer_settings",
            ValueError,
        ),
        ({"methods": {}}, "methods", ValueError),
        ({"methods": [kc.methods.Codes(2, 2)]}, "methods", ValueError),
        ({"methods": {"method": []}}, "methods", ValueError),
        ({"methods": {"codes": ["codes"]}}, "methods", TypeError),
        ({"methods": {"one": SMALL["codes"] * 2}}, "methods", ValueError),
        ({"learning_rates": 0.1}, "learning_rates", ValueError),
        ({"learning_rates": []}, "learning_rates", ValueError),
        ({"learning_rates": [-1.0]}, "learning_rates", ValueError),
    ],
)
def test_bad_input(options, argument, error):
    with refused(argument, error=error):
        make_hypermodel(**options)


def test_bad_models():
    with refused("model", error=TypeError):
        make_hypermodel("model")
    with pytest.raises(ValueError, match="built and compiled"):
        make_hypermodel(keras.Sequential([keras.layers.Dense(1)]))
    model = make_model()
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 9)
    model.compile(keras.optimizers.SGD(schedule), "mse")
    with pytest.raises(ValueError, match="has a schedule"):
        make_hypermodel(model, learning_rates=[0.1])


def test_keras_tuner_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_tuner", None)
    with pytest.raises(ImportError, match=r"keras-compembed\[tune\]"):
        _ = kc.tuning.CompressedHyperModel
