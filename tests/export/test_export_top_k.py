"""Beam search all the way from Keras into a LiteRT file."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from beam_heads import TREES
from export_models import code_embedding
from export_models import ids_input
from export_models import random_ids
from export_models import read_tensors

import keras_compembed as kc
from keras_compembed.candidates import BeamTree
from keras_compembed.candidates import FrequentClasses
from keras_compembed.candidates import NearestCenters
from keras_compembed.candidates import Union
from keras_compembed.export.check import _named_by_keras
from keras_compembed.export.export_litert import export_litert
from keras_compembed.trees import ClassTree

WIDTH = 6


@pytest.fixture
def path(tmp_path):
    return os.fspath(tmp_path / "model.tflite")


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
    export = export_litert(model, path, top_k=k, verbose=0, **kwargs)
    assert export.ops and not any("CUSTOM" in op for op in export.ops)
    assert not any("FLEX" in op.upper() for op in export.ops)
    (head,) = (x for x in model.layers if isinstance(x, kc.CANESoftmax))
    assert "frontier" not in vars(head.selector)
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
    "name, max_frontier",
    [("even", 1), ("huffman", 8), ("one level", 1)],
)
def test_trees(path, name, max_frontier):
    head = tree_head(name, max_frontier=max_frontier)
    export = check(make_model(head), path, 4, (1, 3), (5, 7))
    assert export.max_error < 1e-5
    assert "TOPK_V2" in export.ops and "WHILE" not in export.ops


def test_without_biases(path):
    check(make_model(tree_head("taxonomy", use_bias=False)), path, 2, (4, 7))


@pytest.mark.parametrize("encoder, length", [("lstm", 5), ("sequence", 4)])
def test_encoders(path, encoder, length):
    model = make_model(tree_head("even"), length, encoder, batch_size=1)
    check(model, path, 3, (1, length))


def test_exact_search(path):
    """Without a tree, all classes are scored, in chunks."""
    counts = 10_000 // np.arange(1, 601)
    head = kc.CANESoftmax(600, FrequentClasses(counts), 5, 5)
    export = check(make_model(head), path, 3, (1, 3), (5, 7))
    assert "TOPK_V2" in export.ops


def test_search_of_a_part(path):
    """A union predicts as the one that searches."""
    tree = TREES["even"]()
    counts = 1000 // np.arange(1, tree.num_classes + 1)
    centers = NearestCenters(4, BeamTree(tree, max_frontier=4))
    selector = Union([FrequentClasses(counts), centers])
    check(make_model(kc.CANESoftmax(len(counts), selector)), path, 3, (1, 3))


def test_copies_of_what_starts_from_means(path):
    """They ask whether their weights were set, which files need not."""
    vectors = np.random.default_rng(0).normal(size=(40, WIDTH))
    tree = ClassTree.from_vectors(vectors, 4, seed=0, verbose=0)
    model = make_model(kc.CANESoftmax(40, BeamTree(tree, 2, 4), 3, 3))
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    check(copy, path, 3, (2, 5))


def test_several_outputs(path):
    tree = TREES["even"]()
    head = kc.CANESoftmax(tree.num_classes, BeamTree(tree), 3, 3, name="words")
    model = make_model(head)
    (vectors,) = (
        layer.output
        for layer in model.layers
        if isinstance(layer, keras.layers.GlobalAveragePooling1D)
    )
    mood = keras.layers.Dense(2, name="mood")(vectors)
    model = keras.Model(model.input, [*model.outputs, mood])
    export_litert(model, path, top_k=3, verbose=0)
    ids = random_ids(2, 5, high=50)
    got, expected = (
        kc.export.LiteRTModel(path)(ids),
        kc.top_k_model(model, 3)(ids),
    )
    assert set(got) == {"words_ids", "words_probabilities", "mood"}
    np.testing.assert_array_equal(got["words_ids"], expected["words_ids"])
    for name in ("words_probabilities", "mood"):
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-4)


def class_embedding(kind, num_classes):
    if kind == "codes":
        return code_embedding(input_dim=num_classes, width=WIDTH)
    layer = kc.ANTEmbedding(
        num_classes,
        WIDTH,
        8,
        storage="dense",
        l1=kc.transforms.L1(non_negative=False),
    )
    layer.build()
    rng = np.random.default_rng(0)
    transform = rng.normal(size=(num_classes, 8))
    transform[rng.random(transform.shape) < 0.7] = 0
    layer.assign_transform(transform)
    return layer


def tied_model(head, embedding):
    """An embedding that is the input as well as the classes."""
    ids = keras.Input((4,), dtype="int32")
    vectors = keras.layers.GlobalAveragePooling1D()(embedding(ids))
    model = keras.Model(ids, head(vectors))
    rng = np.random.default_rng(1)
    for weight in head.trainable_weights:
        if "node" in weight.name or weight.name == "bias":
            weight.assign(rng.normal(size=weight.shape))
    return model


@pytest.mark.parametrize(
    "kind, max_frontier", [("codes", 1024), ("anchors", 4)]
)
def test_tied_class_embedding(path, kind, max_frontier):
    embedding = class_embedding(kind, 64)
    head = tree_head(
        "even", max_frontier=max_frontier, class_embedding=embedding
    )
    model = tied_model(head, embedding)
    check(model, path, 3, (1, 4), (3, 4))


@pytest.mark.parametrize("kind", ["codes", "anchors"])
def test_class_embedding_without_a_tree(path, kind):
    embedding = class_embedding(kind, 300)
    counts = np.arange(1, 301)
    head = kc.CANESoftmax(
        300, FrequentClasses(counts), 5, 5, class_embedding=embedding
    )
    check(make_model(head), path, 3, (3, 7))


@pytest.mark.parametrize("quantize", ["float16", "int8"])
def test_quantized(path, quantize):
    model = make_model(tree_head("even", beam_width=16))
    export = export_litert(model, path, top_k=3, quantize=quantize, verbose=0)
    ids = random_ids(20, 7, high=50)
    got = kc.export.LiteRTModel(path)(ids)
    expected = kc.top_k_model(model, 3)(ids)
    same = got["ids"][:, 0] == expected["ids"].numpy()[:, 0]
    assert same.mean() >= 0.8
    assert export.max_error <= {"float16": 0.01, "int8": 0.1}[quantize]


def test_compiled_model(path):
    module = pytest.importorskip("ai_edge_litert.compiled_model")
    model = make_model(tree_head("taxonomy"), 5)
    signature = tf.TensorSpec((2, 5), "int32")
    check(model, path, 3, (2, 5), input_signature=signature)
    compiled = module.CompiledModel.from_file(path)
    inputs = compiled.create_input_buffers(0)
    outputs = compiled.create_output_buffers(0)
    names = list(compiled.get_signature_by_index(0)["outputs"])
    predictor = kc.top_k_model(model, 3)
    for ids in random_ids(3, 2, 5, high=50):
        inputs[0].write(ids.reshape(-1))
        compiled.run_by_index(0, inputs, outputs)
        expected = predictor(ids)
        for name, buffer in zip(names, outputs, strict=True):
            dtype = np.int32 if name == "ids" else np.float32
            got = buffer.read(6, dtype).reshape(2, 3)
            np.testing.assert_allclose(
                got, expected[name], rtol=1e-4, atol=1e-6
            )


def test_without_top_k_the_file_gives_features(path):
    model = make_model(tree_head("even"))
    export_litert(model, path, verbose=0)
    ids = random_ids(3, 7, high=50)
    np.testing.assert_allclose(
        kc.export.LiteRTModel(path)(ids), model(ids), rtol=1e-5, atol=1e-5
    )


def test_a_frontier_is_one_matrix(path):
    """Sums over paths are made before, not in each call."""
    head = tree_head("even", max_frontier=1024)
    export = check(make_model(head), path, 3, (2, 7))
    assert "GATHER_ND" not in export.ops
    shapes = [shape for _, shape, _ in read_tensors(path)]
    assert (64, WIDTH) in shapes


def test_raises(path):
    model = make_model(tree_head("even"))
    with pytest.raises(ValueError, match="`k` must be an integer from 1 to 64"):
        export_litert(model, path, top_k=65, verbose=0)
    dense = keras.Sequential(
        [ids_input(), code_embedding(), keras.layers.Dense(3)]
    )
    with pytest.raises(ValueError, match="`model` must have an output"):
        export_litert(dense, path, top_k=3, verbose=0)
    assert not os.path.exists(path)


def test_classes_that_change_places():
    """Ids that Keras names too, or as probable as its last, are alike."""
    expected = {
        "ids": np.array([[4, 7, 2]]),
        "scores": np.array([[0.5, 0.2, 0.1]]),
    }

    def named(ids, probabilities):
        got = {
            "ids": np.array([ids]),
            "scores": np.array([probabilities]),
        }
        return _named_by_keras(expected, got)[0].tolist()

    assert named([4, 7, 2], [0.5, 0.2, 0.1]) == [4, 7, 2]
    assert named([7, 4, 2], [0.4, 0.4, 0.1]) == [4, 7, 2]
    # As probable as the last that was named: either may be.
    assert named([4, 7, 9], [0.5, 0.2, 0.101]) == [4, 7, 2]
    # One that Keras does not name is a difference.
    assert named([4, 9, 2], [0.5, 0.2, 0.1]) == [4, 9, 2]
    assert named([4, 7, 9], [0.5, 0.2, 0.15]) == [4, 7, 9]
    assert _named_by_keras(
        expected, {"ids": np.array([4]), "scores": np.ones(1)}
    ).tolist() == [4]
