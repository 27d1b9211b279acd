import keras
import numpy as np
import pytest

import keras_compembed as kc

ROWS, WIDTH = 60, 8


def table():
    return np.random.default_rng(0).normal(size=(ROWS, WIDTH))


def compressed(**kwargs):
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            keras.layers.Embedding(ROWS, WIDTH, name="words"),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3),
        ]
    )
    model.layers[0].embeddings.assign(table())
    small = kc.compression.compress_model(
        model,
        num_codebooks=3,
        codebook_size=4,
        min_bytes=0,
        seed=0,
        verbose=0,
        **{"recode_every": 4, **kwargs},
    )
    small.compile(
        keras.optimizers.SGD(3.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return small


def examples():
    rng = np.random.default_rng(1)
    ids = rng.integers(ROWS, size=(120, 5)).astype("int32")
    return ids, ids[:, 0] % 3


@pytest.mark.parametrize(
    "every, steps_per_execution, expected",
    [(None, 1, [4, 8, 12]), (5, 1, [5, 10]), (4, 3, [6, 9, 12])],
)
def test_codes_change_every_so_often(
    every, steps_per_execution, expected, monkeypatch
):
    model = compressed()
    model.compile(
        keras.optimizers.SGD(3.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=steps_per_execution,
    )
    layer = model.layers[0]
    np.testing.assert_allclose(layer.latents, table(), rtol=1e-6)
    recode, steps = layer.recode, []

    def counted():
        steps.append(int(model.optimizer.iterations))
        return recode()

    monkeypatch.setattr(layer, "recode", counted)
    codes = layer.codes
    model.fit(
        *examples(),
        batch_size=10,
        callbacks=[kc.compression.RecodeEmbeddings(every)],
        verbose=0,
    )
    assert steps == expected
    assert (layer.codes != codes).any()
    assert not np.allclose(layer.latents, table(), atol=1e-3)
    vectors = layer.embeddings
    layer.freeze_codes()
    np.testing.assert_array_equal(layer.embeddings, vectors)
    assert layer.learn_codes is None


@pytest.mark.parametrize("is_first", [True, False])
def test_resumed_training_recodes_as_it_would_have(is_first, tmp_path):
    def fit(stops):
        keras.utils.set_random_seed(0)
        model = compressed()
        callbacks = [
            kc.compression.RecodeEmbeddings(every=3),
            keras.callbacks.BackupAndRestore(tmp_path / "backup"),
        ]
        if not is_first:
            callbacks.reverse()

        def stop(epoch, logs):
            if stops and epoch == 1:
                raise KeyboardInterrupt

        # Of three steps.
        model.fit(
            *examples(),
            batch_size=40,
            epochs=3,
            shuffle=False,
            callbacks=[
                *callbacks,
                keras.callbacks.LambdaCallback(on_epoch_begin=stop),
            ],
            verbose=0,
        )
        return model.get_weights()

    expected = fit(stops=False)
    with pytest.raises(KeyboardInterrupt):
        fit(stops=True)
    for found, wanted in zip(fit(stops=False), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_codes_are_nearest_the_latents_for_the_codebooks():
    # The search ends after some sweeps: now and then one could do better.
    keras.utils.set_random_seed(0)
    model = compressed()
    layer = model.layers[0]
    model.fit(
        *examples(),
        batch_size=10,
        callbacks=[kc.compression.RecodeEmbeddings(12)],
        verbose=0,
    )
    # The last step was a recoding: no single subcode does better.
    codebooks, codes = layer.codebooks.numpy(), layer.codes
    apart = layer.latents.numpy() - layer.embeddings
    best = np.square(apart).sum(axis=1)
    for m in range(3):
        others = apart + codebooks[m][codes[:, m]]
        distances = np.square(others[:, None] - codebooks[m]).sum(axis=2)
        assert (distances.min(axis=1) > 0.999 * best - 1e-5).all()


def test_what_is_done_is_said(capsys):
    model = compressed()
    model.fit(
        *examples(),
        batch_size=40,
        callbacks=[kc.compression.RecodeEmbeddings(2, verbose=1)],
        verbose=0,
    )
    assert f"of {ROWS} ids of words have new codes" in capsys.readouterr().out


def test_round_trip(tmp_path):
    model = compressed(
        learner=lambda *shape: kc.learners.KDCodeLearner(
            *shape,
            "concat",
            training=kc.learners.Training(iterations=5),
            seed=0,
            verbose=0,
        )
    )
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.layers[0].learn_codes.recode_every == 4
    np.testing.assert_array_equal(
        again.layers[0].latents, model.layers[0].latents
    )


def test_bad_arguments():
    with pytest.raises(ValueError, match="`every` must be a positive integer"):
        kc.compression.RecodeEmbeddings(every=0)
    with pytest.raises(ValueError, match="`recode_every` must be a positive"):
        compressed(recode_every=0)
    fixed = compressed(recode_every=None)
    with pytest.raises(ValueError, match="which has none"):
        fixed.fit(
            *examples(),
            callbacks=[kc.compression.RecodeEmbeddings(2)],
            verbose=0,
        )
    model = compressed()
    model.layers[0].learn_codes.recode_every = None
    with pytest.raises(ValueError, match="`every` must be given for layers"):
        model.fit(
            *examples(),
            callbacks=[kc.compression.RecodeEmbeddings()],
            verbose=0,
        )
