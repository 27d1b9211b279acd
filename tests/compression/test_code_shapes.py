import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.compression import CodeShape
from keras_compembed.compression import code_shape_for_latency

layers = keras.layers


@pytest.mark.parametrize(
    "arguments, expected",
    [
        # Twice the bits of a subcode, in half as many.
        ((100_000, 256, 16, 16), (8, 256)),
        ((100_000, 256, 32, 2), (4, 256)),
        # Where 256 codewords take too much, 64 may not.
        ((3_000, 64, 12, 4), (4, 64)),
        ((100_000, 256, 7, 16), (4, 128)),
        # No other number of codebooks has as many bits.
        ((100_000, 256, 5, 32), (5, 32)),
        # The table would not be ten times smaller.
        ((1_000, 64, 8, 16), (8, 16)),
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
    count, size = expected
    asked = 4 * num_codebooks * codebook_size * width
    held = 4 * count * size * width
    assert shape == CodeShape(*expected, held, held - asked)
    if expected != (num_codebooks, codebook_size):
        layer = kc.CodeEmbedding(rows, width, *expected)
        before = kc.CodeEmbedding(rows, width, num_codebooks, codebook_size)
        sizes = [
            kc.reports.size_report(x).embeddings[0] for x in (layer, before)
        ]
        assert sizes[0].code_bits == sizes[1].code_bits
        assert sizes[0].codebook_bytes == held
        assert sizes[0].ratio >= 10


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
    assert shapes == {"rows": (1, 256), "own": (4, 8), "pooled": (4, 4)}
    said = capsys.readouterr().out
    assert said.count("for latency") == 1
    assert (
        "rows: 1 x 256 codes in place of 4 x 4, for latency: codebooks of "
        "16.0 KB, 15.0 KB more" in said
    )
    assert np.isfinite(small(np.array([[1, 2, 3]]))).all()


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
