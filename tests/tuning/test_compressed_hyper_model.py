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
    budget = kc.Budget(**{"methods": SMALL, "quantize": None, **options})
    model = model or make_model()
    return kc.tuning.CompressedHyperModel(model, budget, layers, rates, 0, 0)


@pytest.fixture(scope="module")
def hypermodel():
    return make_hypermodel(rates=[1e-3, 1e-2])


def file_bytes(model, folder):
    path = folder / "model.tflite"
    kc.export_litert(model, path, overwrite=True, verbose=0, quantize=None)
    return path.stat().st_size


def test_default_methods_fit_where_they_are_proposed(tmp_path):
    model = make_model(tables=2)
    limit = 30_000
    layers = ["words0", "words1"]
    hypermodel = make_hypermodel(model, layers, methods=None, max_bytes=limit)
    assert hypermodel.original_bytes == file_bytes(model, tmp_path)
    hp = keras_tuner.HyperParameters()
    hypermodel.build(hp)
    names = hp.space[0].values
    assert {"codes 2x4", "int2 rank 4"} <= set(names)
    assert "int8" not in names
    # The largest is the one that a wrong sum would let pass.
    for name in (names[0], names[-1]):
        hp.values["method"] = name
        small = hypermodel.build(hp)
        assert file_bytes(small, tmp_path) <= limit


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


def test_a_tuner_of_keras_tuner(hypermodel, tmp_path):
    tuner = keras_tuner.RandomSearch(
        hypermodel,
        objective="val_loss",
        max_trials=3,
        seed=1,
        directory=tmp_path,
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


@pytest.mark.parametrize(
    ("options", "argument", "error"),
    [
        ({"max_bytes": 100}, "max_bytes", ValueError),
        ({"methods": [kc.methods.Codes(64, 256)]}, "methods", ValueError),
        ({"methods": SMALL * 2}, "methods", ValueError),
        ({"rates": [-1.0]}, "learning_rates", ValueError),
        ({"model": keras.Sequential([])}, "model", ValueError),
    ],
)
def test_bad_input(options, argument, error):
    with refused(argument, error=error):
        make_hypermodel(**options)
