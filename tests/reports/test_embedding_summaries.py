"""`EmbeddingSummaries`: figures for TensorBoard."""

import glob
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc
from keras_compembed.reports import EmbeddingSummaries

ROWS = 50
TABLE = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")
TAGS = {
    "codes/bytes",
    "codes/codes_changed",
    "codes/code_perplexity",
    "codes/unused_codewords",
    "anchors/bytes",
    "anchors/nonzeros",
    "anchors/density",
    "rounded/bytes",
    "rounded/rows_changed",
    "fixed/bytes",
}


def read(folder):
    """Dict from tag to dict from step to value, by TensorFlow's reader."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "embeddings", "*"))):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                assert value.metadata.plugin_data.plugin_name == "scalars"
                number = tf.make_ndarray(value.tensor).item()
                found.setdefault(value.tag, {})[event.step] = number
    return found


def make_model(*names, **options):
    keras.utils.set_random_seed(0)
    ids = keras.Input((3,), dtype="int32")
    learned = {"learn_codes": "softmax"}
    layers = [
        kc.CodeEmbedding(ROWS, 4, 2, 4, seed=0, name="codes", **learned),
        kc.ANTEmbedding(ROWS, 4, 3, seed=0, name="anchors"),
        kc.QuantizedEmbedding(ROWS, 4, 4, learn_rows=True, name="rounded"),
        kc.CodeEmbedding(ROWS, 4, 2, 4, seed=0, name="fixed"),
    ]
    names = names or [layer.name for layer in layers]
    rows = [layer(ids) for layer in layers if layer.name in names]
    outputs = rows[0] if len(rows) == 1 else keras.layers.Add()(rows)
    model = keras.Model(ids, outputs)
    options = {"run_eagerly": len(names) == 1, **options}
    model.compile(keras.optimizers.Adam(0.1), "mse", **options)
    return model


def fit(model, callbacks, **options):
    rng = np.random.default_rng(0)
    data = rng.integers(ROWS, size=(32, 3)), rng.normal(size=(32, 3, 4))
    options = {"batch_size": 8, "epochs": 2, "verbose": 0, **options}
    model.fit(*data, callbacks=callbacks, **options)


def test_figures_of_each_epoch_beside_those_of_keras(tmp_path):
    model = make_model()
    layer = model.get_layer("codes")
    codes = [layer.codes]
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: codes.append(layer.codes)
    )
    callback = EmbeddingSummaries(tmp_path)
    fit(model, [keras.callbacks.TensorBoard(tmp_path), callback, note])
    assert sorted(os.listdir(tmp_path)) == ["embeddings", "train"]
    found = read(tmp_path)
    assert found.keys() == TAGS
    assert all(list(values) == [0, 1] for values in found.values())
    for epoch in (0, 1):
        changed = (codes[epoch] != codes[epoch + 1]).any(axis=1).mean()
        assert found["codes/codes_changed"][epoch] == pytest.approx(changed)
        assert 0 < found["rounded/rows_changed"][epoch] <= 1
    anchors = model.get_layer("anchors")
    assert found["anchors/nonzeros"][1] == anchors.nnz
    assert found["anchors/density"][1] == pytest.approx(anchors.density)
    usage = kc.reports.code_usage(layer)
    assert found["codes/unused_codewords"][1] == usage["num_unused"]
    perplexity = np.mean(usage["perplexity"])
    assert found["codes/code_perplexity"][1] == pytest.approx(perplexity)
    size = kc.reports.size_report(layer).embedding_bytes
    assert found["codes/bytes"][1] == size
    # Training goes on later, with codes fixed by then.
    model = kc.strip(model)
    fit(model, [callback], initial_epoch=2, epochs=3)
    found = read(tmp_path)
    assert list(found["fixed/bytes"]) == [0, 1, 2]
    assert list(found["codes/codes_changed"]) == [0, 1]


def test_every_few_steps(tmp_path):
    model = make_model("fixed", steps_per_execution=2, run_eagerly=False)
    fit(model, [EmbeddingSummaries(tmp_path, update_freq=3)])
    # Eight steps, seen after 2, 4, 6 and 8.
    assert list(read(tmp_path)["fixed/bytes"]) == [4, 6]
    fit(model, [EmbeddingSummaries(tmp_path / "all", "batch")], epochs=1)
    assert list(read(tmp_path / "all")["fixed/bytes"]) == [10, 12]


def test_error_to_the_reference(tmp_path):
    model = make_model("fixed")
    fit(model, [EmbeddingSummaries(tmp_path, reference=TABLE)])
    values = read(tmp_path)["fixed/relative_error"]
    near = kc.reports.fidelity(TABLE, model.get_layer("fixed"))
    assert values[1] == pytest.approx(near.relative_squared_error, rel=1e-5)
    assert values[0] != values[1]


# Of variables made from arrays, in Keras.
@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
def test_coverage(tmp_path):
    ids = np.random.default_rng(0).integers(ROWS, size=(32, 3))
    features = keras.Input((3,))
    head = kc.CANESoftmax(ROWS, num_candidates=5, seed=0)
    model = keras.Model(features, head(features))
    metric = kc.Coverage(name="found")
    model.compile("sgd", kc.CANELoss(), metrics=[metric])
    callback = EmbeddingSummaries(tmp_path)
    options = {"callbacks": [callback], "verbose": 0}
    data = ids, ids[:, 0]
    history = model.fit(*data, validation_data=data, **options).history
    assert read(tmp_path) == {"found": {0: pytest.approx(history["found"][0])}}
    model = keras.Model(features, head(features))
    model.compile("sgd", kc.CANELoss())
    with pytest.warns(UserWarning, match="without the metric"):
        model.fit(*data, **options)


def test_what_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for folder in (3, file):
        with refused("log_dir", folder):
            EmbeddingSummaries(folder)
    for wrong in (0, 1.5, "step", True):
        with refused("update_freq", wrong):
            EmbeddingSummaries(tmp_path, wrong)
    dense = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    dense.compile("sgd", "mse")
    callback = EmbeddingSummaries(tmp_path)
    with refused(received=dense.name):
        fit(dense, [callback])
    callback = EmbeddingSummaries(tmp_path, reference=np.zeros((2, 2)))
    with refused("reference", (2, 2)):
        fit(make_model("fixed"), [callback])
    assert os.listdir(tmp_path) == ["file"]
