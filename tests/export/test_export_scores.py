"""Scores of all ids, and the best ids and classes, in LiteRT files."""

import keras
import numpy as np
import pytest
from beam_heads import TREES
from errors import refused
from export_models import anchor_embedding
from export_models import code_embedding
from export_models import ids_input
from export_models import random_ids
from export_models import write
from model_zoo import TiedDense
from model_zoo import WithArgument

import keras_compembed as kc
from keras_compembed import export_litert
from keras_compembed.classes import BeamTree
from keras_compembed.classes import ClassTree
from keras_compembed.classes import FrequentClasses
from keras_compembed.compositions.composition import ScaledComposition

V, D = 203, 12
CODES = [
    # Bits that share bytes, cross them, fill them, and take two.
    ("sum", (5, 2)),
    ("sum", (3, 10)),
    ("linear", (4, 16)),
    ("sum", (3, 256)),
    ("concat", (5, 16)),
    ("sum", (2, 300)),
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


def test_two_towers_of_every_code(path):
    """Logits of all codes in one file."""
    inputs = keras.Input((3,), dtype="int32")
    query = keras.layers.Flatten()(keras.layers.Embedding(50, 4)(inputs))
    tables = [items(*code) for code in CODES]
    outputs = {
        f"logits_{place}": table(query, reverse=True)
        for place, table in enumerate(tables)
    }
    made = check(keras.Model(inputs, outputs), path, *users(1, 4))
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


def test_rows_of_logits_are_composed_when_the_file_runs(path):
    rows, width = 9001, 64
    layer = items(rows=rows, width=width)
    ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Dense(width)(layer(ids))
    model = keras.Model(ids, TiedDense(layer)(hidden))
    inputs = random_ids(2, 5, high=rows)
    made = check(model, path, inputs, quantize="float16", bound=2e-3)
    # Two bytes a row and table, the codebooks, a kernel, and some 30 KB of
    # ops. The composed table has 2.3 MB.
    weights = 4 * (2 * 64 * width + width * width)
    assert made.file_bytes < 2 * 2 * rows + weights + 30_000


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
        export_litert(
            make_model(tree_head("even")), path, top_k=65, quantize=None
        )
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


def make_model(head, length=None):
    """Classes of a text, or of each step of one that has a length."""
    ids = keras.Input((length,), dtype="int32")
    vectors = keras.layers.Embedding(50, D)(ids)
    if length is None:
        vectors = keras.layers.GlobalAveragePooling1D()(vectors)
    else:
        vectors = keras.layers.LSTM(D, return_sequences=True)(vectors)
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
        ("taxonomy", {"use_bias": False}),
    ],
)
def test_trees(path, name, settings):
    head = tree_head(name, **settings)
    export = check(make_model(head), path, *texts((1, 3), (5, 7)), k=4)
    assert export.max_error < 1e-5
    assert "TOPK_V2" in export.ops and "WHILE" not in export.ops


@pytest.mark.parametrize("kind", ["all classes", "steps of a text"])
def test_other_heads(kind, path):
    if kind == "all classes":
        # Without a tree, all are scored, in chunks.
        frequent = FrequentClasses(10_000 // np.arange(1, 601))
        sampling = kc.Sampling(frequent, num_candidates=5, num_noises=5)
        model = make_model(kc.CANESoftmax(600, sampling=sampling))
    else:
        model = make_model(tree_head("even"), 7)
    export = check(model, path, *texts((1, 7), (5, 7)), k=3)
    assert "TOPK_V2" in export.ops


def test_an_embedding_that_is_the_input_as_well_as_the_classes(path):
    embedding = anchor_embedding(8, D, 0.3, input_dim=100)
    tree = ClassTree.random(100, branching=4, seed=0)
    selector = BeamTree(tree, 2, max_frontier=4)
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


@pytest.mark.parametrize(
    ("kind", "num_classes"),
    [("sequence", 50), ("subclass", 64), ("named", 2001)],
)
def test_files_answer_classes(kind, num_classes, path):
    head = kc.CANESoftmax(num_classes, seed=0)
    if num_classes == 64:
        # Its search finds fewer than there are.
        head = tree_head("even", beam_width=1)
    shape = (4, D) if kind == "sequence" else (D,)
    model = keras.Sequential([keras.Input(shape), head])
    if kind == "subclass":
        features = keras.Input((D,))
        model = keras.Model(features, Subclassed(head)(features)["words"])
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
