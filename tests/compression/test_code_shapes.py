import re

import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.compression import CodeShape
from keras_compembed.compression import code_shape_for_latency
from keras_compembed.utils.sizes import format_bytes

layers = keras.layers


@pytest.mark.parametrize(
    "arguments, expected",
    [
        # Twice the bits of a subcode, in half as many.
        ((100_000, 256, 16, 16), (8, 256)),
        ((100_000, 128, 8, 4), (2, 256)),
        # The table would not be ten times smaller.
        ((1_000, 256, 16, 16), (16, 16)),
        # No other number of codebooks has as many bits.
        ((100_000, 256, 5, 32), (5, 32)),
        # It would take longer in int8.
        ((100_000, 300, 32, 16), (32, 16)),
        # No power of two, and as large as can be.
        ((100_000, 256, 16, 20), (16, 20)),
        ((100_000, 256, 8, 256), (8, 256)),
        ((100_000, 256, 4, 4096), (4, 4096)),
    ],
)
def test_shape(arguments, expected):
    rows, width, num_codebooks, codebook_size = arguments
    shape = code_shape_for_latency(*arguments)
    assert (shape.num_codebooks, shape.codebook_size) == expected
    sizes = [
        kc.reports.size_report(kc.CodeEmbedding(rows, width, *x)).embeddings[0]
        for x in (expected, (num_codebooks, codebook_size))
    ]
    assert sizes[0].code_bits == sizes[1].code_bits
    held, asked = (size.codebook_bytes for size in sizes)
    assert shape.codebook_bytes == held
    assert shape.added_codebook_bytes == held - asked
    if expected == (num_codebooks, codebook_size):
        assert shape == CodeShape(*expected, held)
    else:
        assert sizes[0].ratio >= 10
        assert shape.time_ratio <= 0.9 and shape.int8_time_ratio <= 1


def test_bad_shapes():
    with pytest.raises(ValueError, match="`input_dim` must be a positive"):
        code_shape_for_latency(0, 8)
    with pytest.raises(ValueError, match="`codebook_size` must be an integer"):
        code_shape_for_latency(100, 8, 4, 1)


def model_of_three():
    ids = keras.Input((None,), dtype="int32")

    def table(name):
        return layers.Embedding(20_000, 16, name=name)(ids)

    parts = [
        layers.LSTM(2)(table("rows")),
        layers.LSTM(2)(table("own")),
        layers.GlobalAveragePooling1D()(table("pooled")),
    ]
    return keras.Model(ids, layers.Concatenate()(parts))


def test_compress_model(capsys):
    small = kc.compression.compress_model(
        model_of_three(),
        num_codebooks=4,
        codebook_size=4,
        layer_settings={"own": {"codebook_size": 8}},
        learner=kc.learners.RandomCodeLearner,
        optimize_for="latency",
    )
    shapes = {
        name: tuple(small.get_layer(name).codebooks.shape[:2])
        for name in ("rows", "own", "pooled")
    }
    fast = code_shape_for_latency(20_000, 16, 4, 4)
    shape = fast.num_codebooks, fast.codebook_size
    assert shapes == {"rows": shape, "own": (4, 8), "pooled": (4, 4)}
    assert shape != (4, 4)
    said = capsys.readouterr().out
    assert said.count("for latency") == 1
    more = format_bytes(fast.added_codebook_bytes)
    assert re.search(
        f"rows: {shape[0]} x {shape[1]} codes in place of 4 x 4, for latency: "
        f"codebooks of .*, {more} more, 0[.]",
        said,
    )
    assert np.isfinite(small(np.array([[1, 2, 3]]))).all()


@pytest.mark.parametrize("optimize_for", [None, "latency"])
def test_other_shapes_keep_the_rest_of_a_method(optimize_for):
    ids = keras.Input((3,), dtype="int32")
    names = ("rows", "own")
    model = keras.Model(
        ids, [layers.Embedding(20_000, 16, name=name)(ids) for name in names]
    )
    seeds = []

    class Learner(kc.learners.RandomCodeLearner):
        def train(self, table, sample_weight=None):
            seeds.append(self.seed)
            return super().train(table, sample_weight)

    small = kc.compression.compress_model(
        model,
        method=kc.methods.Codes(4, 4, learner=Learner),
        layer_settings={"own": {"codebook_size": 8}},
        optimize_for=optimize_for,
        seed=5,
        verbose=0,
    )
    rows, own = (small.get_layer(name) for name in names)
    assert seeds == [5, 5]
    assert (own.num_codebooks, own.codebook_size) == (4, 8)
    assert (rows.codebook_size > 4) == (optimize_for == "latency")


def test_settings_of_codes():
    codes = kc.methods.Codes(4, 8, rank=3, effort=0.1)
    same = codes.with_settings(codebook_size=16)
    assert (same.name, same.effort) == ("codes 4x16 rank 3", 0.1)
    other = codes.with_settings(composition="concat")
    assert (other.name, other.rank) == ("codes 4x8 concat", None)


def test_other_compositions_keep_their_shape():
    model = keras.Sequential(
        [keras.Input((None,), dtype="int32"), layers.Embedding(20_000, 16)]
    )
    small = kc.compression.compress_model(
        model,
        num_codebooks=4,
        codebook_size=4,
        composition="concat",
        learner=lambda *shape: kc.learners.KDCodeLearner(
            *shape,
            "concat",
            training=kc.learners.Training(iterations=2),
            verbose=0,
        ),
        optimize_for="latency",
        verbose=0,
    )
    assert small.layers[0].num_codebooks == 4
    with pytest.raises(ValueError, match="`optimize_for` must be one of None"):
        kc.compression.compress_model(model, optimize_for="size")
