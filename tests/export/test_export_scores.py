"""Scores of all ids, and the best ids and classes, in LiteRT files."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from beam_heads import TREES
from errors import refused
from export_models import anchor_embedding
from export_models import code_embedding
from export_models import ids_input
from export_models import random_ids
from export_models import write
from model_zoo import WithArgument

import keras_compembed as kc
from keras_compembed import export_litert
from keras_compembed.classes import BeamTree
from keras_compembed.classes import ClassTree
from keras_compembed.classes import FrequentClasses
from keras_compembed.compositions.composition import ScaledComposition

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
    (ScaledComposition("concat"), (3, 16)),
]


def items(composition="sum", shape=(4, 16), rows=V, width=D, **kwargs):
    layer = kc.CodeEmbedding(
        rows,
        width,
        *shape,
        composition,
        codebooks=keras.initializers.RandomNormal(seed=1),
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
class ReadsTable(WithArgument, keras.layers.Layer):
    """Logits by the table of another layer, as a host may compute them."""

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding

    def call(self, inputs):
        table = keras.ops.convert_to_tensor(self.embedding.embeddings)
        return keras.ops.matmul(inputs, keras.ops.transpose(table))


def language_model(kind="tied", rows=V, width=D, shape=(4, 16)):
    if kind == "untied":
        layer = kc.CodeEmbedding(
            rows,
            width,
            *shape,
            reverse=kc.Reverse(tie_weights=False),
            codebooks=keras.initializers.RandomNormal(seed=3),
        )
    else:
        layer = items(shape=shape, rows=rows, width=width)
    ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Dense(width)(layer(ids))
    if kind == "host":
        return keras.Model(ids, ReadsTable(layer)(hidden))
    return keras.Model(ids, layer(hidden, reverse=True))


def check(model, path, *inputs, k=None, bound=1e-5, **kwargs):
    """Holds a file to the model, or to its best `k`; returns the export."""
    made = write(model, path, top_k=k, **kwargs)
    assert not any("CUSTOM" in op for op in made.ops)
    assert not any("FLEX" in op.upper() for op in made.ops)
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
    [(None, None, None), pytest.param(7, 1, "2.17", marks=pytest.mark.slow)],
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
    # Bytes of codes column by column are not rows; outputs are compared.
    assert made.not_held_layers == ()


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
        two_towers(table, 1), path, *users(1), k=10, min_runtime=min_runtime
    )
    weights = 4 * (np.prod(shape) * D + 50 * D + D * D + D)
    assert made.file_bytes < code_bytes * rows + weights + 20_000


@pytest.mark.parametrize("quantize", ["float16", "int8", "int8_codebooks"])
def test_quantized(quantize, path):
    """Ids that change places because they are alike are no difference."""
    model = two_towers(items())
    made = write(model, path, top_k=50, quantize=quantize)
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
    assert made.held_layers == (table.name,)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"tie_weights": False},
        {"dtype": "float16"},
        {"policy": "mixed_bfloat16"},
    ],
)
def test_reversible(settings, path):
    """Half precision is for training."""
    options = dict(settings)
    policy = options.pop("policy", None)
    reverse = kc.Reverse(logit_soft_cap=2.0, **options)
    table = kc.CodeEmbedding(V, D, 4, 16, reverse=reverse, dtype=policy)
    ids = keras.Input((3,), dtype="int32")
    model = keras.Model(ids, table(table(ids), reverse=True))
    if "tie_weights" in settings or not settings:
        check(model, path, *users(2), k=5)
    else:
        assert write(model, path).max_error < 1e-5
        assert kc.export.LiteRTModel(path)(*users(2)).dtype == "float32"


def test_ties_go_to_lower_ids(path):
    codes = np.zeros((V, 2), "int32")
    # Chunks of ids meet between the second and the third.
    codes[[7, 90, 150, 151]] = 1
    table = items(shape=(2, 2), codes=codes)
    table.codebooks.assign(np.tile([[[0.0], [1.0]]], (2, 1, D)))
    ids = keras.Input((), dtype="int32")
    write(keras.Model(ids, table(table(ids), reverse=True)), path, top_k=6)
    got = kc.export.LiteRTModel(path)(np.array([7, 90], "int32"))
    np.testing.assert_array_equal(got["ids"], [[7, 90, 150, 151, 0, 1]] * 2)


def test_arguments(path):
    model = two_towers(items())
    for k in (-1, V + 1, True, "ten"):
        with refused("top_k", k):
            write(model, path, top_k=k)
    shares = keras.layers.Activation("softmax", name="shares")(model.output)
    with pytest.raises(ValueError, match="'shares'"):
        write(keras.Model(model.input, shares), path, top_k=3)
    with refused("top_k", 65):
        export_litert(make_model(tree_head("even")), path, top_k=65)
    dense = keras.Sequential([ids_input(), code_embedding()])
    with refused("model"):
        write(dense, path, top_k=3)
    assert not path.exists()


# The best classes of heads that search.


def texts(*shapes):
    return [random_ids(*shape, high=50) for shape in shapes]


def tree_head(name, beam_width=2, max_frontier=4, **kwargs):
    tree = TREES[name]()
    selector = BeamTree(tree, beam_width, max_frontier)
    return kc.CANESoftmax(
        tree.num_classes,
        sampling=kc.Sampling(selector, num_candidates=3, num_noises=3),
        **kwargs,
    )


def make_model(head, length=None, encoder="bag", batch_size=None):
    ids = keras.Input((length,), batch_size=batch_size, dtype="int32")
    vectors = keras.layers.Embedding(50, D)(ids)
    if encoder == "bag":
        vectors = keras.layers.GlobalAveragePooling1D()(vectors)
    else:
        vectors = keras.layers.LSTM(D, return_sequences=encoder == "sequence")(
            vectors
        )
    model = keras.Model(ids, head(vectors))
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(2 * rng.normal(size=weight.shape))
    return model


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("even", {"max_frontier": 1}),
        ("huffman", {"max_frontier": 8}),
        ("one level", {"max_frontier": 1}),
        ("taxonomy", {"use_bias": False}),
    ],
)
def test_trees(path, name, settings):
    head = tree_head(name, **settings)
    export = check(make_model(head), path, *texts((1, 3), (5, 7)), k=4)
    assert export.max_error < 1e-5
    assert "TOPK_V2" in export.ops and "WHILE" not in export.ops


def exact():
    """Without a tree, all classes are scored, in chunks."""
    counts = 10_000 // np.arange(1, 601)
    return make_model(
        kc.CANESoftmax(
            600,
            sampling=kc.Sampling(
                FrequentClasses(counts), num_candidates=5, num_noises=5
            ),
        )
    )


def of_steps():
    """An answer for each step of a text."""
    return make_model(tree_head("even"), 7, "sequence")


def of_a_state():
    return make_model(tree_head("even"), None, "lstm")


@pytest.mark.parametrize(
    "make",
    [
        exact,
        of_steps,
        of_a_state,
    ],
)
def test_other_heads(make, path):
    export = check(make(), path, *texts((1, 7), (5, 7)), k=3)
    assert "TOPK_V2" in export.ops


def class_embedding(kind, num_classes):
    if kind == "codes":
        return code_embedding(input_dim=num_classes, width=D)
    return anchor_embedding(8, D, 0.3, input_dim=num_classes)


@pytest.mark.parametrize(
    ("kind", "max_frontier"), [("codes", 1024), ("anchors", 4), ("codes", None)]
)
def test_an_embedding_that_is_the_input_as_well_as_the_classes(
    path, kind, max_frontier
):
    embedding = class_embedding(kind, 100)
    selector = FrequentClasses(np.arange(1, 101))
    if max_frontier is not None:
        tree = ClassTree.random(100, branching=4, seed=0)
        selector = BeamTree(tree, 2, max_frontier)
    head = kc.CANESoftmax(
        100,
        sampling=kc.Sampling(selector, num_candidates=3, num_noises=3),
        class_embedding=embedding,
    )
    ids = keras.Input((4,), dtype="int32")
    vectors = keras.layers.GlobalAveragePooling1D()(embedding(ids))
    model = keras.Model(ids, head(vectors))
    rng = np.random.default_rng(1)
    for weight in head.trainable_weights:
        if "node" in weight.name or weight.name == "bias":
            weight.assign(rng.normal(size=weight.shape))
    check(model, path, *texts((1, 4), (3, 4)), k=3)


# What a file answers of its own accord.

ALL, BEST = "probabilities of all {:,} classes", "the best {} of {:,} classes"


def softmax_of(head, features):
    """Probabilities of all classes by the vectors of a layer."""
    ids = np.arange(head.num_classes)
    vectors, biases = head.scores.class_vectors(ids), head.scores.class_biases
    return keras.ops.softmax(features @ np.transpose(vectors) + biases(ids))


class Subclassed(WithArgument, keras.Model):
    """One whose outputs Keras knows once it is called."""

    argument = "head"

    def __init__(self, head, **kwargs):
        super().__init__(**kwargs)
        self.dense, self.head = keras.layers.Dense(D), head

    def call(self, inputs):
        return {"words": self.head(self.dense(inputs)), "same": inputs}


class OtherwiseSubclassed(Subclassed):
    def call(self, inputs):
        return {"same": self.head(self.dense(inputs)) + 1.0}


def with_a_subclass(head):
    inputs = keras.Input((D,))
    return keras.Model(inputs, Subclassed(head)(inputs)["words"])


@pytest.mark.parametrize("num_classes", [50, 64, 2001])
@pytest.mark.parametrize(
    "kind", ["sequential", "sequence", "subclass", "named"]
)
def test_files_answer_classes(kind, num_classes, path):
    head = kc.CANESoftmax(num_classes, seed=0)
    if num_classes == 64:
        # Its search finds fewer than there are.
        head = tree_head("even", beam_width=1)
    shape = (4, D) if kind == "sequence" else (D,)
    model = keras.Sequential([keras.Input(shape), head])
    if kind == "subclass":
        model = with_a_subclass(head)
    if kind == "named":
        model.add(keras.layers.Activation("linear", name="last"))
    inputs = np.random.default_rng(0).normal(size=(3, *shape))
    inputs = inputs.astype("float32")
    (answer,) = write(model, path).answers.values()
    got = kc.export.LiteRTModel(path)(inputs)
    expected = np.asarray(softmax_of(head, model(inputs)))
    if num_classes > 2000:
        assert answer == BEST.format(10, num_classes)
        best = np.argsort(-expected, axis=-1)[..., :10]
        np.testing.assert_array_equal(got["ids"], best)
        expected = np.take_along_axis(expected, best, axis=-1)
        got = got["probabilities"]
    else:
        assert answer == ALL.format(num_classes)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-7)


def test_top_k_says_how_many_classes(path, capsys):
    model = keras.Sequential(
        [keras.Input((D,)), kc.CANESoftmax(50, name="words")]
    )
    inputs = np.ones((2, D), "float32")
    write(model, path, top_k=3, verbose=1)
    assert "'words' as the best 3 of 50 classes" in capsys.readouterr().out
    assert kc.export.LiteRTModel(path)(inputs)["ids"].shape == (2, 3)
    made = write(model, path, top_k=0)
    assert made.answers == {"words": "features, not classes"}
    np.testing.assert_array_equal(kc.export.LiteRTModel(path)(inputs), inputs)


def test_classes_of_several_outputs(path):
    inputs = keras.Input((D,))
    outputs = [
        kc.CANESoftmax(50, name="words")(inputs),
        keras.layers.Dense(2, name="mood")(inputs),
        kc.CANESoftmax(2001, name="tags")(inputs),
    ]
    labels = {
        "words_probabilities": [f"word {x}" for x in range(50)],
        "mood": ["sad", "glad"],
        "tags_ids": [f"tag {x}" for x in range(2001)],
    }
    made = write(keras.Model(inputs, outputs), path, labels=labels)
    assert made.answers == {
        "words": ALL.format(50),
        "tags": BEST.format(10, 2001),
    }
    assert made.labels == {name: tuple(labels[name]) for name in made.labels}
    got = kc.export.LiteRTModel(path)(np.ones((2, D), "float32"))
    assert {name: values.shape for name, values in got.items()} == {
        "words_probabilities": (2, 50),
        "mood": (2, 2),
        "tags_ids": (2, 10),
        "tags_probabilities": (2, 10),
    }


def test_subclassed_models_with_other_outputs(path):
    model = Subclassed(kc.CANESoftmax(50))
    model(np.ones((2, D), "float32"))
    signature = tf.TensorSpec((None, D))
    made = write(model, path, input_signature=signature)
    assert made.answers == {"words": ALL.format(50)}
    got = kc.export.LiteRTModel(path)(np.ones((2, D), "float32"))
    assert got["words_probabilities"].shape == (2, 50)
    assert got["same"].shape == (2, D)
    write(model, path, input_signature=signature, top_k=3)
    got = kc.export.LiteRTModel(path)(np.ones((2, D), "float32"))
    assert got["words_ids"].shape == (2, 3)
    with refused("top_k", 51):
        write(model, path, input_signature=signature, top_k=51)
    model = OtherwiseSubclassed(kc.CANESoftmax(50))
    model(np.ones((2, D), "float32"))
    with refused("top_k", "['same']"):
        write(model, path, input_signature=signature, top_k=3)
