"""Tables of a model that get one set of codebooks."""

import keras
import numpy as np
import pytest
from compressing import NeverTrained
from errors import refused

import keras_compembed as kc


def tables(scale=1.0):
    rng = np.random.default_rng(0)
    first = rng.normal(size=(300, 12))
    second = scale * rng.normal(size=(200, 12))
    return first.astype("float32"), second.astype("float32")


def model_of(*tables):
    ids = keras.Input((5,), dtype="int32")
    layers = [
        keras.layers.Embedding(*table.shape, name=name)
        for table, name in zip(tables, ("first", "second"), strict=True)
    ]
    model = keras.Model(ids, [layer(ids) for layer in layers])
    for layer, table in zip(layers, tables, strict=True):
        layer.embeddings.assign(table)
    return model


def compress(model=None, share_codebooks=("first", "second"), **kwargs):
    settings = {"num_codebooks": 4, "codebook_size": 8, "seed": 0}
    return kc.compression.compress_model(
        model or model_of(*tables()),
        share_codebooks=share_codebooks,
        **{"verbose": 0, **settings, **kwargs},
    )


def error(table, layer):
    lost = np.square(table - layer.embeddings).sum()
    return lost / np.square(table - table.mean(axis=0)).sum()


# Errors of a small table count as those of a large one.
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_one_set_for_two_tables(scale, tmp_path, capsys):
    both = tables(scale)
    small = compress(model_of(*both), verbose=1, recode_every=3)
    layers = [small.get_layer(name) for name in ("first", "second")]
    assert layers[0].codebooks is layers[1].codebooks
    for table, layer in zip(both, layers, strict=True):
        # A table of random numbers, at 12 bits a row.
        assert error(table, layer) < 0.65
        np.testing.assert_array_equal(layer.learn_codes.latents, table)
        layer.freeze_codes()
    text = capsys.readouterr().out
    assert "1.50 KB less than with codebooks of their own" in text
    small.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert len(loaded.weights) == len(small.weights) == 3


def test_bad_arguments():
    bad = "first", [], [3], [["first"]], ["first", "third"], ["first", "first"]
    for names in bad:
        with refused("share_codebooks", ""):
            compress(share_codebooks=names)
    for arguments, received in (
        ({"model": model_of(tables()[0], np.zeros((20, 9)))}, "9"),
        ({"composition": "concat"}, "first"),
        ({"learner": NeverTrained}, "learner"),
        ({"layer_settings": {"first": {"num_codebooks": 3}}}, "3"),
        ({"layer_settings": {"first": {"seed": 3}}}, "seed=3"),
        # Which would be no smaller.
        ({"codebook_size": 512}, "512"),
    ):
        with refused("share_codebooks", received):
            compress(**arguments)
