import signal
import sys

import keras
import numpy as np
import pytest

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


def test_every_default_method_fits_where_it_is_proposed():
    model = make_model(tables=2)
    limit = 50_000
    hypermodel = make_hypermodel(model, methods=None, max_bytes=limit)
    assert set(hypermodel.space.families) == set(kc.tuning.method_families())
    for methods in hypermodel.space.families.values():
        sizes = [hypermodel.space.file_bytes[name] for name in methods]
        assert sizes == sorted(sizes) and sizes[-1] <= limit
        # The largest is the one that a wrong sum would let pass.
        *_, name = methods
        small = kc.compression.compress_model(
            model, method=methods[name], min_bytes=0, seed=0, verbose=0
        )
        assert hypermodel._files.counted(methods[name], small) <= sizes[-1]


def test_nothing_fits():
    with pytest.raises(ValueError, match=r"smallest .* bytes with 'codes 2x4'"):
        make_hypermodel(max_bytes=100)
    with pytest.raises(ValueError, match="smaller than they are"):
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
    with pytest.raises(ValueError, match="'codes 64x4', in the family"):
        hypermodel.build(hp)


def test_tables_are_fitted_once(hypermodel, tmp_path, monkeypatch):
    hp = keras_tuner.HyperParameters()
    hp.Fixed("method", "codes")
    hp.Fixed("codes", "codes 8x4")
    hypermodel.fits.folder = tmp_path / "tables"
    first = hypermodel.build(hp).get_weights()
    (file,) = hypermodel.fits.folder.iterdir()

    def refuse(*args, **kwargs):
        raise AssertionError("learned again")

    monkeypatch.setattr(kc.CodeEmbedding, "from_table", refuse)
    # In memory; and, of another process, in the folder.
    other = make_hypermodel(hypermodel.model)
    other.fits.folder = hypermodel.fits.folder
    for again in (hypermodel, other):
        for old, new in zip(first, again.build(hp).get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)
    # What cannot be read is learned again.
    file.write_bytes(file.read_bytes()[:100])
    other.fits = type(other.fits)(other.fits.folder)
    with pytest.raises(AssertionError, match="learned again"):
        other.build(hp)
    hypermodel.fits.folder = None


def test_ctrl_c_leaves_no_half_learned_codes(monkeypatch):
    hypermodel = make_hypermodel(methods={"codes": [kc.methods.Codes(4, 4)]})
    learn = kc.CodeEmbedding.from_table

    def interrupted(table, *args, **kwargs):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            # As learners do, which keep the best codes so far.
            pass
        return learn(table, *args, **kwargs)

    with monkeypatch.context() as context:
        context.setattr(kc.CodeEmbedding, "from_table", interrupted)
        with pytest.raises(KeyboardInterrupt):
            hypermodel.build(keras_tuner.HyperParameters())
    assert not hypermodel.fits._weights


@pytest.mark.parametrize(
    ("tuner_class", "options", "count"),
    [
        ("RandomSearch", {"max_trials": 3}, 3),
        ("BayesianOptimization", {"max_trials": 3, "num_initial_points": 2}, 3),
        ("Hyperband", {"max_epochs": 2, "factor": 2}, 4),
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
    for values in values_of(tuner):
        assert values[values["method"]] in hypermodel.space.file_bytes
        assert sum(name in values for name in SMALL) == 1
    if tuner_class == "GridSearch":
        tried = [tuple(sorted(map(str, x.values()))) for x in values_of(tuner)]
        assert len(set(tried)) == count
        return
    front = kc.tuning.pareto_front(tuner)
    for trial in front.trials:
        most = hypermodel.space.file_bytes[trial.method]
        assert 0 < trial.litert_bytes <= most
    if tuner_class == "Hyperband":
        # A second round goes on from the first one's weights.
        assert any(x.get("tuner/round") == 1 for x in values_of(tuner))
    best = front.best_under()
    model = kc.tuning.best_model(tuner)
    score = model.evaluate(*DATA["validation_data"], verbose=0)[0]
    assert score == pytest.approx(best.score, abs=1e-4)
    with pytest.raises(ValueError, match="at least that of the smallest"):
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
    def search(objective, tuner=keras_tuner.RandomSearch, **changes):
        tuner(
            hypermodel,
            objective=objective,
            max_trials=1,
            directory=tmp_path,
            overwrite=True,
        ).search(**{**DATA, **changes})

    with pytest.raises(ValueError, match="`objective` of the tuner must name"):
        search(None)
    with pytest.raises(ValueError, match="must be given `validation_data`"):
        search("val_loss", validation_data=None)
    unknown = keras_tuner.Objective("val_f1", "max")
    with pytest.raises(ValueError, match="a metric of the model.*'val_f1'"):
        search(unknown)
    # One of a callback's may come with the end of an epoch.
    with pytest.raises(ValueError, match="a metric of the model.*'val_f1'"):
        search(unknown, callbacks=[keras.callbacks.LambdaCallback()])
    search(unknown, callbacks=[F1()])
    resumable = kc.tuning.resumable(keras_tuner.RandomSearch)
    with pytest.raises(ValueError, match="`objective` of the tuner must name"):
        search(None, resumable)
    with pytest.raises(ValueError, match="must be given `validation_data`"):
        search("val_loss", resumable, validation_data=None)


class F1(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs["val_f1"] = 0.5


def test_bad_input():
    model = make_model()
    with pytest.raises(TypeError, match="`model` must be a `keras.Model`"):
        make_hypermodel("model")
    with pytest.raises(ValueError, match="must be built and compiled"):
        make_hypermodel(keras.Sequential([keras.layers.Dense(1)]))
    with pytest.raises(ValueError, match="`max_bytes` must be a positive"):
        make_hypermodel(model, max_bytes=0)
    with pytest.raises(ValueError, match="must name Embedding layers"):
        make_hypermodel(model, layers=["other"])
    with pytest.raises(ValueError, match="below `min_bytes`"):
        make_hypermodel(model, min_bytes=10**6)
    with pytest.raises(ValueError, match="`layer_settings` may set pooled"):
        make_hypermodel(model, layer_settings={"words0": {"method": None}})
    for methods in ({}, [kc.methods.Codes(2, 2)], {"method": []}):
        with pytest.raises(ValueError, match="`methods` must"):
            make_hypermodel(model, methods=methods)
    with pytest.raises(TypeError, match="`methods` must be a"):
        make_hypermodel(model, methods={"codes": ["codes"]})
    with pytest.raises(ValueError, match="different names"):
        make_hypermodel(model, methods={"one": SMALL["codes"] * 2})
    for rates in (0.1, [], [-1.0]):
        with pytest.raises(ValueError, match="`learning_rates` must be"):
            make_hypermodel(model, learning_rates=rates)
    model.compile(
        keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 9)),
        "mse",
    )
    with pytest.raises(ValueError, match="has a schedule"):
        make_hypermodel(model, learning_rates=[0.1])


def test_keras_tuner_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_tuner", None)
    with pytest.raises(ImportError, match=r"keras-compembed\[tune\]"):
        _ = kc.tuning.CompressedHyperModel
    with pytest.raises(ImportError, match=r"keras-compembed\[tune\]"):
        kc.tuning.resumable(None)
