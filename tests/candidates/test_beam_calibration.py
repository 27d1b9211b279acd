import keras
import numpy as np
import pytest
from beam_heads import TREES
from beam_heads import WIDTH
from beam_heads import all_scores
from beam_heads import best
from beam_heads import make_features
from beam_heads import make_head
from beam_heads import search

import keras_compembed as kc
from keras_compembed.candidates import BeamTree
from keras_compembed.candidates import beam_recall
from keras_compembed.candidates import calibrate_beam
from keras_compembed.trees import ClassTree


def recall(tree, head, features, beam_width, k):
    found, _ = best(search(head, tree, features, max(beam_width, k)), k)
    exact = np.argsort(-all_scores(head, tree, features), axis=1)[:, :k]
    return (found[:, :, None] == exact[:, None, :]).any(axis=1).mean()


@pytest.mark.parametrize("k", [1, 5])
def test_recalls(k, capsys):
    tree, features = TREES["uneven"](), make_features(100)
    head = make_head(tree)
    recalls = calibrate_beam(head, features, 0.9, k)
    widths = list(recalls)
    assert widths == [2**i for i in range(len(widths))]
    assert head.selector.beam_width == widths[-1]
    assert recalls[widths[-1]] >= 0.9
    assert all(recalls[width] < 0.9 for width in widths[:-1])
    for width in widths:
        right = recall(tree, head, features, width, k)
        assert recalls[width] == pytest.approx(right, abs=1e-9)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(widths)
    assert lines[0] == f"beam width 1: recall {recalls[1]:.4f}"


def test_predictions_use_the_width(capsys):
    tree, features = TREES["uneven"](), make_features(40)
    inputs = keras.Input((WIDTH,))
    head = make_head(tree)
    model = keras.Model(inputs, head(inputs))
    calibrate_beam(head, features, target_recall=1.0, k=3, verbose=0)
    assert capsys.readouterr().out == ""
    ids = kc.top_k_model(model, 3).predict(features, verbose=0)["ids"]
    exact = np.argsort(-all_scores(head, tree, features), axis=1)[:, :3]
    np.testing.assert_array_equal(np.sort(ids), np.sort(exact))


def test_a_tree_that_is_scored_whole():
    head = make_head("one level")
    assert calibrate_beam(head, make_features(), 1.0, verbose=0) == {1: 1.0}


def test_leading_axes_and_layers_that_are_not_built():
    head = kc.CANESoftmax(50, BeamTree(ClassTree.random(50, seed=0)), 2, 2)
    features = make_features(12).reshape(3, 4, WIDTH)
    recalls = calibrate_beam(head, features, verbose=0)
    assert head.built and recalls == {1: 1.0}


def test_nan_weights_end_all_the_same():
    """No width finds a class without a score; none is missed either."""
    head = make_head("uneven")
    head.kernel.assign(np.full(head.kernel.shape, np.nan))
    recalls = calibrate_beam(head, make_features(), 1.0, verbose=0)
    assert max(recalls) < 2 * head.num_classes


@pytest.mark.parametrize("target_recall", [0, -0.1, 1.01, 99, np.nan, "0.9"])
def test_target_recall(target_recall):
    with pytest.raises(ValueError, match="`target_recall` must be"):
        calibrate_beam(make_head("even"), make_features(), target_recall)


@pytest.mark.parametrize("k", [0, 65, 1.0])
def test_k(k):
    with pytest.raises(ValueError, match="`k` must be an integer from 1 to 64"):
        calibrate_beam(make_head("even"), make_features(), k=k)


def test_no_examples():
    with pytest.raises(ValueError, match="`features` must hold at least one"):
        calibrate_beam(make_head("even"), np.zeros((0, WIDTH)))


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_features_that_are_not_finite(number):
    features = make_features()
    features[0, 0] = number
    for function in (calibrate_beam, beam_recall):
        # Searches and exact scores find nothing alike for these.
        with pytest.raises(ValueError, match="`features` must be finite"):
            function(make_head("even"), features)


def test_other_layers():
    counts = np.arange(1, 51)
    frequent = kc.CANESoftmax(50, kc.candidates.FrequentClasses(counts))
    for head in (frequent, keras.layers.Dense(50)):
        with pytest.raises(ValueError, match="`head` must be a `CANESoftmax`"):
            calibrate_beam(head, make_features())


def test_beam_recall():
    head, features = make_head("even"), make_features()
    recalls = calibrate_beam(head, features, target_recall=0.9, k=3, verbose=0)
    width = head.selector.beam_width
    assert beam_recall(head, features, k=3) == recalls[width]
    with pytest.raises(ValueError, match="`head` must be a `CANESoftmax`"):
        beam_recall(keras.layers.Dense(3), features)
