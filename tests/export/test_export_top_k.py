"""Beam search all the way from Keras into a LiteRT file."""

import keras
import numpy as np
import pytest
from beam_heads import TREES
from errors import refused
from export_models import anchor_embedding
from export_models import code_embedding
from export_models import ids_input
from export_models import random_ids

import keras_compembed as kc
from keras_compembed.candidates import BeamTree
from keras_compembed.candidates import FrequentClasses
from keras_compembed.candidates import NearestCenters
from keras_compembed.export import export_litert
from keras_compembed.trees import ClassTree

WIDTH = 6


def tree_head(name, beam_width=2, max_frontier=4, **kwargs):
    tree = TREES[name]()
    selector = BeamTree(tree, beam_width, max_frontier)
    return kc.CANESoftmax(tree.num_classes, selector, 3, 3, **kwargs)


def make_model(head, length=None, encoder="bag", batch_size=None):
    ids = keras.Input((length,), batch_size=batch_size, dtype="int32")
    vectors = keras.layers.Embedding(50, WIDTH)(ids)
    if encoder == "bag":
        vectors = keras.layers.GlobalAveragePooling1D()(vectors)
    else:
        vectors = keras.layers.LSTM(
            WIDTH, return_sequences=encoder == "sequence"
        )(vectors)
    model = keras.Model(ids, head(vectors))
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(2 * rng.normal(size=weight.shape))
    return model


def check(model, path, k, *shapes, **kwargs):
    """The file gives the ids of Keras, and its probabilities.

    The model gives them before and after.
    """
    batches = [random_ids(*shape, high=50) for shape in shapes]
    before = [kc.top_k_model(model, k)(ids) for ids in batches]
    export = export_litert(
        model, path, top_k=k, verbose=0, overwrite=True, **kwargs
    )
    assert export.ops and not any("CUSTOM" in op for op in export.ops)
    assert not any("FLEX" in op.upper() for op in export.ops)
    predictor = kc.top_k_model(model, k)
    litert = kc.export.LiteRTModel(path)
    for ids, expected in zip(batches, before, strict=True):
        got = litert(ids)
        for name, values in predictor(ids).items():
            np.testing.assert_array_equal(values, expected[name])
        assert set(got) == {"ids", "probabilities"}
        assert got["ids"].dtype == "int32"
        np.testing.assert_array_equal(got["ids"], expected["ids"])
        np.testing.assert_allclose(
            got["probabilities"],
            expected["probabilities"],
            rtol=1e-4,
            atol=1e-6,
        )
    return export


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
    export = check(make_model(head), path, 4, (1, 3), (5, 7))
    assert export.max_error < 1e-5
    assert "TOPK_V2" in export.ops and "WHILE" not in export.ops


def from_means():
    """A copy, which need not ask whether weights were set."""
    vectors = np.random.default_rng(0).normal(size=(40, WIDTH))
    tree = ClassTree.from_vectors(vectors, 4, seed=0, verbose=0)
    model = make_model(kc.CANESoftmax(40, BeamTree(tree, 2, 4), 3, 3))
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    return copy


def exact():
    """Without a tree, all classes are scored, in chunks."""
    counts = 10_000 // np.arange(1, 601)
    return make_model(kc.CANESoftmax(600, FrequentClasses(counts), 5, 5))


def of_centers():
    selector = NearestCenters(4, BeamTree(TREES["even"](), max_frontier=4))
    return make_model(kc.CANESoftmax(64, selector))


def of_steps():
    """An answer for each step of a text."""
    return make_model(tree_head("even"), 7, "sequence")


def of_a_state():
    return make_model(tree_head("even"), None, "lstm")


@pytest.mark.parametrize(
    "make", [exact, of_centers, from_means, of_steps, of_a_state]
)
def test_other_heads(make, path):
    export = check(make(), path, 3, (1, 7), (5, 7))
    assert "TOPK_V2" in export.ops


def test_several_outputs(path):
    tree = TREES["even"]()
    head = kc.CANESoftmax(tree.num_classes, BeamTree(tree), 3, 3, name="words")
    ids = ids_input()
    vectors = keras.layers.Embedding(50, WIDTH)(ids)
    vectors = keras.layers.GlobalAveragePooling1D()(vectors)
    mood = keras.layers.Dense(2, name="mood")(vectors)
    model = keras.Model(ids, [head(vectors), mood])
    export_litert(model, path, top_k=3, verbose=0)
    ids = random_ids(2, 5, high=50)
    got = kc.export.LiteRTModel(path)(ids)
    expected = kc.top_k_model(model, 3)(ids)
    assert set(got) == {"words_ids", "words_probabilities", "mood"}
    np.testing.assert_array_equal(got["words_ids"], expected["words_ids"])
    for name in ("words_probabilities", "mood"):
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-4)


def class_embedding(kind, num_classes):
    if kind == "codes":
        return code_embedding(input_dim=num_classes, width=WIDTH)
    return anchor_embedding(8, WIDTH, 0.3, input_dim=num_classes)


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
    head = kc.CANESoftmax(100, selector, 3, 3, class_embedding=embedding)
    ids = keras.Input((4,), dtype="int32")
    vectors = keras.layers.GlobalAveragePooling1D()(embedding(ids))
    model = keras.Model(ids, head(vectors))
    rng = np.random.default_rng(1)
    for weight in head.trainable_weights:
        if "node" in weight.name or weight.name == "bias":
            weight.assign(rng.normal(size=weight.shape))
    check(model, path, 3, (1, 4), (3, 4))


def test_quantized(path):
    model = make_model(tree_head("even", beam_width=16))
    export = export_litert(model, path, top_k=3, quantize="int8", verbose=0)
    ids = random_ids(20, 7, high=50)
    got = kc.export.LiteRTModel(path)(ids)
    expected = kc.top_k_model(model, 3)(ids)
    same = got["ids"][:, 0] == expected["ids"].numpy()[:, 0]
    assert same.mean() >= 0.8
    assert export.max_error <= 0.1


def test_without_top_k_the_file_gives_features(path):
    model = make_model(tree_head("even"))
    export_litert(model, path, verbose=0)
    ids = random_ids(3, 7, high=50)
    np.testing.assert_allclose(
        kc.export.LiteRTModel(path)(ids), model(ids), rtol=1e-5, atol=1e-5
    )


def test_arguments(path):
    with refused("k", 65):
        export_litert(make_model(tree_head("even")), path, top_k=65)
    dense = keras.Sequential([ids_input(), code_embedding()])
    with refused("model"):
        export_litert(dense, path, top_k=3, verbose=0)
    assert not path.exists()
