import functools

import keras
import pytest
from errors import refused

import keras_compembed as kc
from keras_compembed.compression import code_shapes

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
        ((100_000, 24, 6, 16), (6, 16)),
        # No power of two, and as large as can be.
        ((100_000, 256, 16, 20), (16, 20)),
        ((100_000, 256, 8, 256), (8, 256)),
        ((100_000, 256, 4, 4096), (4, 4096)),
    ],
)
def test_shape(arguments, expected):
    rows, width, num_codebooks, codebook_size = arguments
    shape = code_shapes.code_shape_for_latency(*arguments)
    assert shape == expected
    sizes = [
        kc.reports.size_report(kc.CodeEmbedding(rows, width, *x)).embeddings[0]
        for x in (shape, (num_codebooks, codebook_size))
    ]
    assert sizes[0].code_bits == sizes[1].code_bits
    assert shape == arguments[2:] or sizes[0].ratio >= 10


@pytest.mark.parametrize("optimize_for", [None, "latency"])
def test_compress_model(optimize_for, capsys):
    seeds = []

    class Learner(kc.learners.RandomCodeLearner):
        def train(self, table, sample_weight=None):
            seeds.append(self.seed)
            return super().train(table, sample_weight)

    ids = keras.Input((None,), dtype="int32")
    names = ("rows", "own", "pooled")
    x = [layers.Embedding(20_000, 16, name=name)(ids) for name in names]
    x = [*map(layers.LSTM(2), x[:2]), layers.GlobalAveragePooling1D()(x[2])]
    small = kc.compression.compress_model(
        keras.Model(ids, x),
        method=kc.methods.Codes(4, 4, learner=Learner),
        layer_settings={"own": {"codebook_size": 8}},
        optimize_for=optimize_for,
        seed=5,
    )
    # The rest of the method is kept.
    assert seeds == [5, 5, 5]
    shapes = [tuple(small.get_layer(x).codebooks.shape[:2]) for x in names]
    said = capsys.readouterr().out
    assert said.count("for latency") == bool(optimize_for)
    if optimize_for is None:
        assert shapes == [(4, 4), (4, 8), (4, 4)]
        return
    shape = code_shapes.code_shape_for_latency(20_000, 16, 4, 4)
    assert shapes == [shape, (4, 8), (4, 4)] and shape != (4, 4)
    assert f"rows: {shape[0]} x {shape[1]} codes in place of 4 x 4" in said


def test_other_compositions_keep_their_shape():
    ids = keras.Input((None,), dtype="int32")
    model = keras.Sequential([ids, layers.Embedding(20_000, 16)])
    learner = functools.partial(
        kc.learners.KDCodeLearner,
        composition="concat",
        training=kc.learners.Training(iterations=2),
        verbose=0,
    )
    small = kc.compression.compress_model(
        model,
        method=kc.methods.Codes(4, 4, "concat", learner),
        optimize_for="latency",
        verbose=0,
    )
    assert small.layers[0].num_codebooks == 4
    with refused("optimize_for", "size"):
        kc.compression.compress_model(model, optimize_for="size")
