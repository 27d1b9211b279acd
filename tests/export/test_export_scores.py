"""Scores of all ids from codes, and the best ids, in LiteRT files."""

import keras
import numpy as np
import pytest
from errors import refused
from export_models import random_ids

import keras_compembed as kc
from keras_compembed.export import export_litert

V, D = 203, 12
CODES = [
    # Bits that share bytes, fill them, cross them, and take two.
    ("sum", (5, 2)),
    ("sum", (5, 4)),
    ("sum", (3, 10)),
    ("linear", (4, 16)),
    ("sum", (3, 40)),
    ("sum", (3, 256)),
    ("concat", (5, 16)),
    ("concat", (4, 256)),
    ("sum", (2, 300)),
    ("concat", (2, 300)),
    ("lstm", (3, 16)),
    (kc.compositions.ScaledComposition("concat"), (3, 16)),
]


def items(composition="sum", shape=(4, 16), rows=V, width=D, **kwargs):
    layer = kc.CodeEmbedding(
        rows,
        width,
        *shape,
        composition,
        codebooks_initializer=keras.initializers.RandomNormal(seed=1),
        seed=1,
        **kwargs,
    )
    layer.build()
    return layer


def two_towers(table, batch_size=None):
    """Users in, logits of items out."""
    users = keras.Input((3,), batch_size=batch_size, dtype="int32")
    vectors = keras.layers.Embedding(50, D, name="users")(users)
    query = keras.layers.GlobalAveragePooling1D()(vectors)
    query = keras.layers.Dense(D, name="query")(query)
    return keras.Model(users, table(query, reverse=True))


@keras.saving.register_keras_serializable(package="test_export_scores")
class ReadsTable(keras.layers.Layer):
    """Logits by the table of another layer, as a host may compute them."""

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding

    def call(self, inputs):
        table = keras.ops.convert_to_tensor(self.embedding.embeddings)
        return keras.ops.matmul(inputs, keras.ops.transpose(table))


def language_model(kind="tied", rows=V, width=D, shape=(4, 16), **kwargs):
    if kind in ("reversible", "untied"):
        layer = kc.ReversibleCodeEmbedding(
            rows,
            width,
            *shape,
            seed=4,
            tie_weights=kind != "untied",
            codebooks_initializer=keras.initializers.RandomNormal(seed=3),
            **kwargs,
        )
    else:
        layer = items(shape=shape, rows=rows, width=width, **kwargs)
    ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Dense(width)(layer(ids))
    if kind == "host":
        return keras.Model(ids, ReadsTable(layer)(hidden))
    return keras.Model(ids, layer(hidden, reverse=True))


def check(model, path, *inputs, k=None, bound=1e-5, **kwargs):
    """Holds a file to the model, or to its best `k`; returns the export."""
    made = export_litert(
        model, path, top_k=k, verbose=0, overwrite=True, **kwargs
    )
    assert not any("CUSTOM" in op for op in made.ops)
    litert = kc.export.LiteRTModel(path)
    if k is not None:
        model = kc.top_k_model(model, k)
    for each in inputs:
        got, expected = litert(each), model(each)
        if not isinstance(expected, dict):
            got, expected = {"logits": got}, {"logits": expected}
        assert set(got) == set(expected)
        for name, wanted in expected.items():
            wanted = np.asarray(wanted)
            if name.endswith("ids"):
                np.testing.assert_array_equal(got[name], wanted, name)
            else:
                size = np.abs(wanted).max()
                np.testing.assert_allclose(
                    got[name], wanted, 0, bound * size, err_msg=name
                )
    return made


def users(*counts):
    return [random_ids(count, 3, high=50) for count in counts]


@pytest.mark.parametrize(
    ("k", "batch_size", "min_runtime"),
    [(None, None, None), (7, 1, "2.17")],
)
def test_two_towers_of_every_code(k, batch_size, min_runtime, path):
    """Logits and best ids, for all codes in one file."""
    inputs = keras.Input((3,), batch_size=batch_size, dtype="int32")
    query = keras.layers.Flatten()(keras.layers.Embedding(50, 4)(inputs))
    tables = [items(*code) for code in CODES]
    outputs = {
        f"logits_{place}": table(query, reverse=True)
        for place, table in enumerate(tables)
    }
    made = check(
        keras.Model(inputs, outputs),
        path,
        *users(1) if batch_size else users(1, 4),
        k=k,
        min_runtime=min_runtime,
    )
    held = made.held_layers if k is None else made.not_held_layers
    assert {table.name for table in tables} <= set(held)


@pytest.mark.parametrize(
    ("rows", "shape", "code_bytes", "min_runtime"),
    [
        # Two bytes at a time, the last filled up; more than two chunks.
        (70_001, (3, 256), 4, None),
        (140_001, (4, 16), 2, "2.17"),
    ],
)
def test_many_rows_are_scored_by_their_codes_alone(
    rows, shape, code_bytes, min_runtime, path
):
    table = items(shape=shape, rows=rows)
    made = check(
        two_towers(table, 1),
        path,
        *users(1),
        k=10,
        min_runtime=min_runtime,
    )
    weights = 4 * (np.prod(shape) * D + 50 * D + D * D + D)
    assert made.file_bytes < code_bytes * rows + weights + 20_000


@pytest.mark.parametrize("quantize", ["float16", "int8", "int8_codebooks"])
def test_quantized(quantize, path):
    """Ids that change places because they are alike are no difference."""
    model = two_towers(items())
    made = export_litert(model, path, top_k=50, quantize=quantize, verbose=0)
    (inputs,) = users(3)
    got = kc.export.LiteRTModel(path)(inputs)
    expected = kc.top_k_model(model, 50)(inputs)
    scale = np.abs(expected["scores"]).max()
    bound = 2e-3 if quantize == "float16" else 0.05
    assert np.abs(got["scores"] - expected["scores"]).max() < bound * scale
    assert made.max_error < bound
    if quantize == "int8_codebooks":
        assert (got["ids"] != np.asarray(expected["ids"])).mean() > 0.1


@pytest.mark.parametrize(
    ("kind", "quantize"),
    [("tied", None), ("untied", "int8"), ("host", None), ("host", "float16")],
)
def test_rows_of_logits_are_composed_when_the_file_runs(kind, quantize, path):
    rows, width = 9001, 64
    model = language_model(kind, rows, width)
    made = check(
        model,
        path,
        random_ids(2, 5, high=rows),
        quantize=quantize,
        bound={None: 1e-5, "float16": 2e-3, "int8": 0.1}[quantize],
    )
    # Two bytes a row and table, the codebooks, a kernel, and some 30 KB of
    # ops. The composed table has 2.3 MB.
    weights = 4 * (2 * 64 * width + width * width)
    assert made.file_bytes < 2 * 2 * rows + weights + 30_000


def test_codes_that_are_looked_up_and_scored_are_there_once(path):
    table = items(shape=(4, 256))
    ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Dense(D)(table(ids))
    model = keras.Model(ids, table(hidden, reverse=True))
    made = check(model, path, *users(1, 2), k=6)
    assert path.read_bytes().count(table.codes[:40].tobytes()) == 1
    assert made.not_held_layers == (table.name,)


@pytest.mark.parametrize("tie_weights", [True, False])
def test_reversible(tie_weights, path):
    table = kc.ReversibleCodeEmbedding(
        V, D, 4, 16, tie_weights=tie_weights, logit_soft_cap=2.0, seed=0
    )
    ids = keras.Input((3,), dtype="int32")
    model = keras.Model(ids, table(table(ids), reverse=True))
    check(model, path, *users(2), k=5)


@pytest.mark.parametrize(
    "settings",
    [
        {"dtype": "mixed_bfloat16", "logit_soft_cap": 2.0},
        {"reverse_dtype": "float16"},
    ],
)
def test_half_precision_is_for_training(settings, path):
    model = language_model("reversible", 50, 8, **settings)
    export_litert(model, path, verbose=0)
    got = kc.export.LiteRTModel(path)(random_ids(2, 3, high=50))
    assert got.dtype == "float32"


def test_anchors(path):
    table = kc.ANTEmbedding(V, D, 8, seed=0)
    table.build()
    check(two_towers(table), path, *users(1, 3), k=5)


@pytest.mark.parametrize("is_looked_up", [False, True])
def test_ties_go_to_lower_ids(is_looked_up, path):
    codes = np.zeros((V, 2), "int32")
    # Chunks of ids meet between the second and the third.
    codes[[7, 90, 150, 151]] = 1
    table = items(shape=(2, 2), codes=codes)
    table.codebooks.assign(np.tile([[[0.0], [1.0]]], (2, 1, D)))
    if is_looked_up:
        ids = keras.Input((), dtype="int32")
        model = keras.Model(ids, table(table(ids), reverse=True))
        inputs = np.array([7, 90], "int32")
    else:
        vectors = keras.Input((D,))
        model = keras.Model(vectors, table(vectors, reverse=True))
        inputs = np.ones((2, D), "float32")
    export_litert(model, path, top_k=6, verbose=0)
    got = kc.export.LiteRTModel(path)(inputs)
    np.testing.assert_array_equal(got["ids"], [[7, 90, 150, 151, 0, 1]] * 2)


@pytest.mark.parametrize("count", [D, D + 1])
def test_more_vectors_than_columns_compose_rows(count, path):
    table = items()
    vectors = keras.Input((count, D), batch_size=1)
    model = keras.Model(vectors, table(vectors, reverse=True))
    inputs = np.random.default_rng(0).normal(size=(1, count, D))
    made = check(model, path, inputs.astype("float32"))
    # Of vectors as few, products with codewords are added up.
    assert "FULLY_CONNECTED" in made.ops or "BATCH_MATMUL" in made.ops


def test_arguments(path):
    model = two_towers(items())
    for k in (0, V + 1, True, "ten"):
        with refused("k", k):
            export_litert(model, path, top_k=k, verbose=0)
    shares = keras.layers.Activation("softmax", name="shares")(model.output)
    with pytest.raises(ValueError, match="'shares'"):
        export_litert(
            keras.Model(model.input, shares), path, top_k=3, verbose=0
        )
    assert not path.exists()
