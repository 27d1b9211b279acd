import glob
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.reports.embedding_summaries import EmbeddingSummaries
from keras_compembed.reports.layer_summary import LayerSummary

ROWS = 50


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


def make_layers():
    return [
        kc.CodeEmbedding(
            ROWS, 4, 2, 4, learn_codes="softmax", seed=0, name="codes"
        ),
        kc.ANTEmbedding(ROWS, 4, 3, seed=0, name="anchors"),
        kc.QuantizedEmbedding(ROWS, 4, 4, learn_rows=True, name="rounded"),
        kc.CodeEmbedding(ROWS, 4, 2, 4, seed=0, name="fixed"),
    ]


def make_model(names=None, **options):
    keras.utils.set_random_seed(0)
    ids = keras.Input((3,), dtype="int32")
    rows = [
        layer(ids)
        for layer in make_layers()
        if names is None or layer.name in names
    ]
    outputs = rows[0] if len(rows) == 1 else keras.layers.Add()(rows)
    model = keras.Model(ids, outputs)
    model.compile(keras.optimizers.Adam(0.1), "mse", **options)
    return model


def data(rows=32):
    rng = np.random.default_rng(0)
    return rng.integers(ROWS, size=(rows, 3)), rng.normal(size=(rows, 3, 4))


def fit(model, callbacks, **options):
    options = {"batch_size": 8, "epochs": 2, "verbose": 0, **options}
    model.fit(*data(), callbacks=callbacks, **options)


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


def test_figures_of_each_epoch_beside_those_of_keras(tmp_path):
    model = make_model()
    codes = [model.get_layer("codes").codes]
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: codes.append(
            model.get_layer("codes").codes
        )
    )
    callback = EmbeddingSummaries(tmp_path)
    fit(model, [keras.callbacks.TensorBoard(tmp_path), callback, note])
    assert sorted(os.listdir(tmp_path)) == ["embeddings", "train"]
    found = read(tmp_path)
    assert found.keys() == TAGS
    for values in found.values():
        assert list(values) == [0, 1]
    for epoch in (0, 1):
        changed = (codes[epoch] != codes[epoch + 1]).any(axis=1).mean()
        assert found["codes/codes_changed"][epoch] == pytest.approx(changed)
        assert 0 < found["rounded/rows_changed"][epoch] <= 1
    anchors = model.get_layer("anchors")
    assert found["anchors/nonzeros"][1] == anchors.nnz
    assert found["anchors/density"][1] == pytest.approx(anchors.density)
    usage = kc.reports.code_usage(model.get_layer("codes"))
    assert found["codes/unused_codewords"][1] == usage["num_unused"]
    assert found["codes/code_perplexity"][1] == pytest.approx(
        np.mean(usage["perplexity"])
    )
    size = kc.reports.size_report(model.get_layer("codes")).embedding_bytes
    assert found["codes/bytes"][1] == size
    # Training goes on later, with codes fixed by then.
    model.get_layer("codes").freeze_codes()
    fit(model, [callback], initial_epoch=2, epochs=3)
    found = read(tmp_path)
    assert list(found["fixed/bytes"]) == [0, 1, 2]
    assert list(found["codes/codes_changed"]) == [0, 1]


def test_every_few_steps(tmp_path):
    model = make_model(["fixed"], steps_per_execution=2)
    fit(model, [EmbeddingSummaries(tmp_path, update_freq=3)])
    # Eight steps, seen after 2, 4, 6 and 8.
    assert list(read(tmp_path)["fixed/bytes"]) == [4, 6]
    fit(model, [EmbeddingSummaries(tmp_path / "all", "batch")], epochs=1)
    assert list(read(tmp_path / "all")["fixed/bytes"]) == [10, 12]


def test_resumed_training_goes_on_with_its_steps(tmp_path):
    class Loading(keras.callbacks.Callback):
        """What `BackupAndRestore` does."""

        def on_train_begin(self, logs=None):
            self.model.optimizer.iterations.assign(2)
            self.model.optimizer.learning_rate.assign(1e-6)
            codes.set_weights(other)

    model = make_model(["codes"])
    codes = model.get_layer("codes")
    other = [np.flip(weight) for weight in codes.get_weights()]
    callback = EmbeddingSummaries(tmp_path, update_freq=3)
    fit(model, [callback, Loading()], epochs=1)
    # Of steps 3 to 6; codes are compared with those that were loaded.
    found = read(tmp_path)["codes/codes_changed"]
    assert list(found) == [3, 6]
    # Means of batches change some, though next to nothing is learned.
    assert found[3] < 0.5


def test_error_to_the_reference(tmp_path):
    table = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")
    layer = kc.CodeEmbedding.from_table(table, 2, 4, verbose=0)
    model = keras.Sequential([keras.Input((3,), dtype="int32"), layer])
    model.compile("sgd", "mse")
    fit(model, [EmbeddingSummaries(tmp_path, reference=table)])
    (values,) = [
        values
        for tag, values in read(tmp_path).items()
        if tag.endswith("/relative_error")
    ]
    near = kc.reports.fidelity(table, layer).relative_squared_error
    assert values[1] == pytest.approx(near, rel=1e-5)
    assert values[0] != values[1]
    # A sample, the same each time.
    sample = LayerSummary(layer, table, num_rows=20)
    error = sample.read()["relative_error"]
    assert error == sample.read()["relative_error"]
    assert 0.5 * near < error < 2 * near
    zeros = LayerSummary(layer, np.zeros_like(table)).read()
    assert np.isnan(zeros["relative_error"])


def test_coverage(tmp_path):
    ids, _ = data()
    features = keras.Input((3,))
    head = kc.CANESoftmax(ROWS, num_candidates=5, seed=0)
    model = keras.Model(features, head(features))
    metric = kc.Coverage(name="found")
    model.compile("sgd", kc.CANELoss(), metrics=[metric])
    callback = EmbeddingSummaries(tmp_path)
    history = model.fit(
        ids,
        ids[:, 0],
        validation_data=(ids, ids[:, 0]),
        callbacks=[callback],
        verbose=0,
    ).history
    assert read(tmp_path) == {"found": {0: pytest.approx(history["found"][0])}}
    model.compile("sgd", kc.CANELoss())
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    with pytest.warns(UserWarning, match="without the metric"):
        callback.on_epoch_end(0, {"loss": 1.0})
    callback.on_train_end()


def test_on_several_devices(tmp_path, strategy):
    with strategy.scope():
        model = make_model(["codes", "rounded"])
    fit(model, [EmbeddingSummaries(tmp_path, 2)])
    found = read(tmp_path)
    assert found.keys() == {x for x in TAGS if x[0] in "cr"}
    assert list(found["codes/bytes"]) == [2, 4, 6, 8]
    assert found["rounded/rows_changed"][2] > 0


def test_what_was_written_stays_if_training_breaks(tmp_path):
    def stop(epoch, logs):
        if epoch == 1:
            raise KeyboardInterrupt

    stopper = keras.callbacks.LambdaCallback(on_epoch_end=stop)
    callback = EmbeddingSummaries(tmp_path)
    model = make_model(["fixed"])
    with pytest.raises(KeyboardInterrupt):
        fit(model, [callback, stopper])
    assert list(read(tmp_path)["fixed/bytes"]) == [0, 1]
    # The writer is another one in the next run.
    fit(model, [callback], epochs=1)
    assert callback._writer is None


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="`log_dir` must be a string"):
        EmbeddingSummaries(3)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ValueError, match="the file"):
        EmbeddingSummaries(file)
    for wrong in (0, 1.5, "step", True):
        with pytest.raises(ValueError, match="`update_freq` must be"):
            EmbeddingSummaries(tmp_path, wrong)
    dense = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    dense.compile("sgd", "mse")
    arrays = np.zeros((2, 3)), np.zeros((2, 2))
    with pytest.raises(ValueError, match="and the metric Coverage"):
        dense.fit(*arrays, callbacks=[EmbeddingSummaries(tmp_path)], verbose=0)
    callback = EmbeddingSummaries(tmp_path, reference=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="`reference` must hold"):
        fit(make_model(["fixed"]), [callback])
    assert os.listdir(tmp_path) == ["file"]
