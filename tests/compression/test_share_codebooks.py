"""Tables of a model that get one set of codebooks."""

import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.compression.shared_tables import learn_together
from keras_compembed.compression.shared_tables import relative_error
from keras_compembed.compression.shared_tables import variance

SHAPE = 4, 8


def tables(scale=1.0):
    rng = np.random.default_rng(0)
    first = rng.normal(size=(300, 12))
    second = scale * rng.normal(size=(200, 12))
    return first.astype("float32"), second.astype("float32")


def model_of(first, second):
    inputs = [keras.Input((5,), dtype="int32") for _ in range(2)]
    layers = [
        keras.layers.Embedding(*table.shape, name=name)
        for name, table in (("first", first), ("second", second))
    ]
    one, other = (layer(ids) for layer, ids in zip(layers, inputs, strict=True))
    pooled = keras.layers.GlobalAveragePooling1D()(other)
    model = keras.Model(inputs, [one, keras.layers.Dense(2)(pooled)])
    for layer, table in zip(layers, (first, second), strict=True):
        layer.embeddings.assign(table)
    return model


MODEL = model_of(*tables())


def compress(model=MODEL, share_codebooks=("first", "second"), **kwargs):
    kwargs = {"verbose": 0, "seed": 0, **kwargs}
    return kc.compression.compress_model(
        model, *SHAPE, share_codebooks=share_codebooks, **kwargs
    )


def test_one_set_for_two_tables(tmp_path, capsys):
    small = compress(verbose=1)
    first, second = small.get_layer("first"), small.get_layer("second")
    assert isinstance(second, kc.CodeEmbedReduce)
    assert first.codebooks is second.codebooks
    for table, layer in zip(tables(), (first, second), strict=True):
        # A table of random numbers, at 12 bits a row.
        assert relative_error(table, np.asarray(layer.embeddings)) < 0.65
    text = capsys.readouterr().out
    assert "learning codes that share codebooks" in text
    assert "1.50 KB less than with codebooks of their own" in text
    assert "codes of each table's own, in as many bytes" in text
    small.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert len(loaded.weights) == len(small.weights) == 5
    again = kc.compression.compress_model
    with pytest.raises(ValueError, match="Nothing to compress"):
        again(small, verbose=0)


def test_says_when_sharing_costs_more(capsys):
    first, second = tables(0.02)
    group = np.random.default_rng(1).normal(size=(8, 12))
    second += group[np.arange(200) % 8].astype("float32") * 0.2
    compress(model_of(np.tile(first[:8] * 50, (40, 1)), second), verbose=1)
    assert "sharing costs more error" in capsys.readouterr().out


def test_several_groups_and_recoding():
    small = compress(share_codebooks=[["first", "second"]], recode_every=3)
    first, second = small.get_layer("first"), small.get_layer("second")
    for table, layer in zip(tables(), (first, second), strict=True):
        np.testing.assert_array_equal(layer.learn_codes.latents, table)
    assert first.codebooks is second.codebooks


def test_both_tables_of_a_reversible_layer():
    layer = keras.layers.ReversibleEmbedding(300, 12, tie_weights=False)
    ids = keras.Input((5,), dtype="int32")
    model = keras.Model(ids, layer(layer(ids), reverse=True))
    small = compress(model, [layer.name]).layers[1]
    assert small.reverse_embedding.codebooks is small.codebooks


def test_effort_of_the_method_and_weights_as_a_list():
    def codes(effort):
        small = kc.compression.compress_model(
            MODEL,
            method=kc.methods.Codes(*SHAPE, effort=effort),
            share_codebooks=["first", "second"],
            layer_settings={"first": {"sample_weight": [1.0] * 300}},
            seed=0,
            verbose=1,
        )
        return small.get_layer("first").codes

    assert np.any(codes(0.05) != codes(3.0))


def test_rows_weigh_as_much_as_their_table_is_small():
    class Learner:
        def train(self, table, sample_weight):
            self.table, self.weight = table, sample_weight
            self.codes = np.arange(len(table))[:, None]

    first, second = tables(3.0)
    learner, own = Learner(), np.arange(300.0)
    codes = learn_together(learner, [first, second], [own, None])
    assert [len(each) for each in codes] == [300, 200]
    np.testing.assert_array_equal(learner.table[300:], second)
    expected = np.concatenate(
        [
            own / own.mean() / first.var(axis=0).sum(),
            np.full(200, 1 / second.var(axis=0).sum()),
        ]
    )
    np.testing.assert_allclose(learner.weight, expected, rtol=1e-5)
    np.testing.assert_allclose(
        variance(first), first.var(axis=0).sum(), rtol=1e-5
    )


WIDE = model_of(tables()[0], np.zeros((20, 9), "float32"))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"model": WIDE}, "the same `output_dim`"),
        ({"share_codebooks": "first"}, "must be a list of names"),
        ({"share_codebooks": []}, "must be a list of names"),
        ({"share_codebooks": [3]}, "must be a list of names"),
        ({"share_codebooks": [["first"]]}, "at least two tables"),
        ({"share_codebooks": ["first", "third"]}, "must name Embedding"),
        ({"share_codebooks": ["first", "first"]}, "each layer once"),
        ({"composition": "concat"}, "of composition 'sum'"),
        ({"learner": kc.learners.GumbelCodeLearner}, "and a learner"),
        ({"layer_settings": {"first": {"num_codebooks": 3}}}, "num_codebooks"),
        ({"layer_settings": {"first": {"seed": 3}}}, "the same `seed`"),
        (
            {
                "layer_settings": {
                    "first": {"method": kc.methods.Codes(*SHAPE, effort=2)}
                }
            },
            "the same `effort`",
        ),
        (
            {"layer_settings": {"first": {"codebook_size": 512}}},
            "the same `codebook_size`",
        ),
        (
            {
                "layer_settings": {
                    name: {"codebook_size": 512} for name in ("first", "second")
                }
            },
            "become smaller",
        ),
    ],
)
def test_bad_arguments(arguments, message, monkeypatch):
    # Before work.
    monkeypatch.setattr(kc.learners.AdditiveQuantizer, "train", None)
    with pytest.raises(ValueError, match=message):
        compress(**arguments)
