import keras
import numpy as np
import pytest
from errors import refused

import keras_compembed as kc
from keras_compembed.compression import RecodeEmbeddings

ROWS, WIDTH = 60, 8


def table():
    return np.random.default_rng(0).normal(size=(ROWS, WIDTH))


def compressed(steps_per_execution=1, recode_every=4):
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            keras.layers.Embedding(ROWS, WIDTH, name="words"),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3),
        ]
    )
    model.layers[0].embeddings.assign(table())
    codes = kc.methods.Codes(3, 4, recode_every=recode_every)
    small = kc.compress_model(model, {"words": codes}, seed=0, verbose=0)
    small.compile(
        keras.optimizers.SGD(3.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=steps_per_execution,
        run_eagerly=steps_per_execution == 1,
    )
    return small


def fit(model, *callbacks, batch_size=10, **kwargs):
    rng = np.random.default_rng(1)
    ids = rng.integers(ROWS, size=(120, 5)).astype("int32")
    model.fit(
        ids,
        ids[:, 0] % 3,
        batch_size=batch_size,
        callbacks=list(callbacks),
        verbose=0,
        **kwargs,
    )


@pytest.mark.parametrize(
    "every, steps_per_execution, expected",
    [(None, 1, [4, 8, 12]), (4, 3, [6, 9, 12])],
)
def test_codes_change_every_so_often(
    every, steps_per_execution, expected, monkeypatch
):
    model = compressed(steps_per_execution)
    layer = model.layers[0]
    np.testing.assert_allclose(layer.latents, table(), rtol=1e-6)
    recode, steps = layer.learn_codes.recode, []

    def counted():
        steps.append(int(model.optimizer.iterations))
        return recode()

    monkeypatch.setattr(layer.learn_codes, "recode", counted)
    codes = layer.codes
    fit(model, RecodeEmbeddings(every))
    assert steps == expected
    assert (layer.codes != codes).any()
    assert not np.allclose(layer.latents, table(), atol=1e-3)
    vectors = layer.embeddings
    layer = kc.strip(model).get_layer(layer.name)
    np.testing.assert_array_equal(layer.embeddings, vectors)
    assert layer.learn_codes is None


def test_resumed_training_recodes_as_it_would_have(tmp_path):
    def train(stops):
        keras.utils.set_random_seed(0)
        model = compressed()
        callbacks = [
            keras.callbacks.BackupAndRestore(tmp_path / "backup"),
            RecodeEmbeddings(every=3),
        ]

        def stop(epoch, logs):
            if stops and epoch == 1:
                raise KeyboardInterrupt

        stop = keras.callbacks.LambdaCallback(on_epoch_begin=stop)
        # Of three steps.
        options = {"batch_size": 40, "epochs": 3, "shuffle": False}
        fit(model, *callbacks, stop, **options)
        return model.get_weights()

    expected = train(stops=False)
    with pytest.raises(KeyboardInterrupt):
        train(stops=True)
    for found, wanted in zip(train(stops=False), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_bad_arguments():
    with refused("every", 0):
        RecodeEmbeddings(every=0)
    fixed = compressed(recode_every=None)
    with pytest.raises(ValueError, match=fixed.name):
        fit(fixed, RecodeEmbeddings(2))
