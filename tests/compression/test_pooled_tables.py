"""Tables whose rows only a pooling reads."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from compressing import check_rows
from compressing import check_same
from compressing import codes
from compressing import compress
from compressing import layers_of
from compressing import run

import keras_compembed as kc

layers = keras.layers
ROWS, WIDTH = 60, 8
IDS = np.array([[1, 2, 0, 59], [3, 0, 0, 0]])
Mean = layers.GlobalAveragePooling1D


def ids_input(**kwargs):
    return keras.Input((None,), **{"dtype": "int32", **kwargs})


def table(name="words", **kwargs):
    return layers.Embedding(ROWS, WIDTH, name=name, **kwargs)


def sequential(pool=None, **kwargs):
    pool = pool or Mean(name="pool")
    return keras.Sequential(
        [ids_input(), table(**kwargs), pool, layers.Dense(3)]
    )


def compressed(model, **kwargs):
    """A copy whose words are pooled, which gives what it should."""
    small = compress(model, **kwargs)
    (words,) = layers_of(small)
    assert type(words) is kc.CodeEmbedding and words.combiner is not None
    assert [x.name for x in small.layers] == [x.name for x in model.layers]
    check_rows(model, small, IDS)
    return small


def gives_rows(model, **kwargs):
    """A copy whose words are not pooled."""
    small = compress(model, **kwargs)
    (words,) = (x for x in layers_of(small) if x.name == "words")
    assert type(words) is kc.CodeEmbedding
    return small


@pytest.mark.parametrize("mask_zero, keepdims", [(False, True), (True, False)])
def test_global_average_pooling(mask_zero, keepdims, capsys):
    pool = Mean(keepdims=keepdims, name="pool")
    model = sequential(pool, mask_zero=mask_zero)
    small = compressed(model, verbose=1)
    layer = small.get_layer("words")
    assert layer.mask_zero is mask_zero and layer.combiner.name == "mean"
    kind = layers.Reshape if keepdims else layers.Identity
    assert type(small.get_layer("pool")) is kind
    assert small.output_shape == model.output_shape
    # Nothing but padding gives what it gave: no number.
    ids = np.array([*IDS, [0, 0, 0, 0]])
    check_rows(model, small, ids)
    assert np.isnan(run(small, ids)[0][-1]).all() == mask_zero
    said = capsys.readouterr().out
    assert "words: pools its rows itself, instead of 'pool'" in said


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: keras.ops.mean(x, axis=[-2], keepdims=True),
        lambda x: keras.ops.sum(x, -2, True),
    ],
)
def test_operations(pool):
    inputs = ids_input()
    # These read no masks.
    x = pool(table(mask_zero=True)(inputs))
    model = keras.Model(inputs, layers.Dense(3)(x))
    small = compressed(model)
    names = [x.name for x in model.operations]
    assert [x.name for x in small.operations] == names


def test_mean_of_one_and_rows_of_another():
    first, second = ids_input(name="first"), ids_input(name="second")
    pool = Mean(name="pool")
    masked, plain = table("masked", mask_zero=True), table("plain")
    text = layers.LSTM(4)(table("rows")(second))
    # One pooling of two tables.
    x = layers.Concatenate()([pool(masked(first)), pool(plain(second)), text])
    model = keras.Model([first, second], layers.Dense(3)(x))
    small = compress(model)
    assert isinstance(small.get_layer("pool"), layers.Identity)
    combiners = [
        small.get_layer(x).combiner for x in ("masked", "plain", "rows")
    ]
    assert [x and x.name for x in combiners] == ["mean", "mean", None]
    check_rows(model, small, [IDS, IDS[:, ::-1]])


# Rows that something else reads as well, or that are pooled otherwise.


def looked_up_twice(inputs):
    words, pool = table(), Mean()
    return pool(words(inputs)), pool(words(inputs + 1 - 1))


def shared_by_models(inputs):
    words = table()
    inner = keras.Sequential([ids_input(), words, layers.LSTM(3)])
    return Mean()(words(inputs)), inner(inputs)


READERS = (
    lambda x: (Mean()(x), x),
    lambda x: Mean()(layers.Dropout(0.5)(x)),
    lambda x: Mean("channels_first")(x),
)


@pytest.mark.parametrize(
    "build",
    [
        looked_up_twice,
        shared_by_models,
        lambda x: Mean()(keras.Sequential([ids_input(), table()])(x)),
        lambda x: Mean()(table(mask_zero=True)(x), mask=keras.ops.less(x, 9)),
        lambda x: Mean()(table(dtype="mixed_bfloat16")(x)),
        *(lambda x, read=read: read(table()(x)) for read in READERS),
    ],
)
def test_rows_that_are_read_otherwise(build):
    inputs = keras.Input((4,), dtype="int32")
    model = keras.Model(inputs, build(inputs))
    gives_rows(model)


def test_ids_of_other_kinds():
    # Sparse ids, of which those that are missing count as 0.
    inputs = ids_input(sparse=True)
    model = keras.Model(inputs, Mean()(table()(inputs)))
    gives_rows(model, sample_inputs=tf.sparse.from_dense(IDS))
    # Vectors of more axes, of which a mean over axis 1 leaves another.
    inputs = keras.Input((3, 4), dtype="int32")
    gives_rows(keras.Model(inputs, keras.ops.mean(table()(inputs), axis=1)))


def test_pooling_of_a_table_that_stays():
    inputs = ids_input()
    pool = Mean(name="pool")
    few = layers.Embedding(5, WIDTH, name="few")
    x = pool(table()(inputs)) + pool(few(keras.ops.minimum(inputs, 4)))
    model = keras.Model(inputs, x)
    small = gives_rows(model)
    assert type(small.get_layer("pool")) is Mean
    check_rows(model, small, IDS)


# Models of all kinds.


def test_nested_models():
    tower = sequential()
    inner = keras.Model(tower.inputs, tower.outputs[0], name="inner")
    inputs = ids_input()
    # A tower that is called twice is one graph.
    outputs = layers.Add()([inner(inputs), inner(inputs * 1)])
    compressed(keras.Sequential([ids_input(), keras.Model(inputs, outputs)]))


def test_sequential_models():
    model = sequential()
    inputs = ids_input()
    # Another model, which is not compressed, shares the table.
    keras.Model(inputs, layers.LSTM(3)(model.get_layer("words")(inputs)))
    compressed(model)
    gives_rows(model, how=codes().for_table(pooled=False))
    # One without an input.
    model = keras.Sequential([table(mask_zero=True), Mean()])
    model(IDS)
    compressed(model, sample_inputs=IDS)


# Training.


def test_cloned_and_saved(tmp_path):
    small = compress(sequential(mask_zero=True), codes(recode_every=1))
    clone = keras.models.clone_model(small)
    clone.set_weights(small.get_weights())
    check_same(run(clone, IDS), run(small, IDS), 0)
    small.compile("sgd", "mse", run_eagerly=True)
    recode = kc.compression.RecodeEmbeddings()
    small.fit(IDS, np.ones((2, 3)), callbacks=[recode], verbose=0)
    small = kc.strip(small)
    small.save(tmp_path / "small.keras")
    loaded = keras.saving.load_model(tmp_path / "small.keras")
    check_same(run(loaded, IDS), run(small, IDS), 0)
