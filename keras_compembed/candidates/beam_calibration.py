"""How much of the best classes a search finds, and the width for it."""

import numpy as np
import tensorflow as tf

from keras_compembed.candidates.beam_tree import BeamTree
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number

_BATCH = 256


def calibrate_beam(head, features, target_recall=0.99, k=1, verbose=1):
    """Sets the beam width at which search finds what scoring all would find.

    Recall is the share of the `k` best classes of all that are among the `k`
    classes that the search returns. Widths are doubled until it is reached.
    Do this once the model is trained, on validation data; `head.top_k`, and
    models of `keras_compembed.top_k_model` and files that are made from then
    on, use the width. What has predicted before keeps the width that it has:
    make it anew. So does training, until the model is compiled again. For
    the width of before, set `head.selector.beam_width = None`.

    Example:

    >>> tree = kc.trees.ClassTree.random(1000)
    >>> head = kc.CANESoftmax(1000, kc.candidates.BeamTree(tree), 2, 2)
    >>> features = np.random.normal(size=(200, 8)).astype("float32")
    >>> recalls = calibrate_beam(head, features, verbose=0)
    >>> recalls[head.selector.beam_width] >= 0.99
    True

    Args:
        head: A `CANESoftmax` with a `BeamTree`.
        features: Array `(..., width)` of what the layer is given, e.g.
            `keras.Model(model.inputs, head.input).predict(x)`.
        target_recall: Number from 0 to 1. Defaults to `0.99`.
        k: Integer, how many classes predictions are to return. Defaults to
            `1`.
        verbose: `0` or `1`, whether to print recalls.

    Returns:
        Dict of the recall of each width that was tried.

    Raises:
        ValueError: if the layer does not search a tree, `features` are empty
            or not finite, or a number is out of range.
    """
    features = _check(head, features, k)
    selector = head.selector
    if not isinstance(selector, BeamTree):
        raise ValueError(
            "`head` must be a `CANESoftmax` with a `BeamTree`. "
            f"Received: head={head!r}."
        )
    check_positive_number("target_recall", target_recall)
    if target_recall > 1:
        raise ValueError(
            "`target_recall` must be from 0 to 1. "
            f"Received: target_recall={target_recall}."
        )
    exact = in_batches(lambda rows: head.scores.top_k(rows, k)[0], features)
    recalls = {}
    width = 1
    while True:
        selector.beam_width = width
        recalls[width] = _recall(head, features, k, exact)
        if verbose:
            print(f"beam width {width}: recall {recalls[width]:.4f}")
        # As wide as the tree, a beam leaves nothing out.
        if recalls[width] >= target_recall or width >= head.num_classes:
            return recalls
        width *= 2


def beam_recall(head, features, k=1):
    """Share of the best classes of all that the search of a layer finds.

    Example:

    >>> head = kc.CANESoftmax(1000, kc.candidates.ApproximateNearest())
    >>> features = np.random.normal(size=(200, 8)).astype("float32")
    >>> 0 <= kc.candidates.beam_recall(head, features, k=5) <= 1
    True

    Args:
        head: A `CANESoftmax` with any selector.
        features: Array `(..., width)` of what the layer is given, e.g.
            `keras.Model(model.inputs, head.input).predict(x)`.
        k: Integer, how many of the best classes to compare. Defaults to `1`.

    Returns:
        Float.

    Raises:
        ValueError: if `features` are empty or not finite, or `k` is not from
            1 to the number of classes.
    """
    features = _check(head, features, k)
    exact = in_batches(lambda rows: head.scores.top_k(rows, k)[0], features)
    return _recall(head, features, k, exact)


def _recall(head, features, k, exact):
    search = head.selector.top_k
    found = in_batches(lambda rows: search(head.scores, rows, k)[0], features)
    hits = (found[:, :, None] == exact[:, None, :]).any(axis=1)
    return float(hits.mean())


def _check(head, features, k):
    """Features as rows, of a layer that is built by them."""
    if not hasattr(head, "selector"):
        raise ValueError(
            f"`head` must be a `CANESoftmax`. Received: head={head!r}."
        )
    check_positive_int("k", k, maximum=head.num_classes)
    features = feature_rows(features)
    if not head.built:
        head.build(features.shape)
    return features


def feature_rows(features):
    """Returns features as float32 rows, or raises if they tell nothing."""
    features = np.asarray(features, "float32")
    features = features.reshape(-1, features.shape[-1])
    if not len(features):
        raise ValueError(
            "`features` must hold at least one example. Received: none."
        )
    if not np.isfinite(features).all():
        raise ValueError(
            "`features` must be finite. Received: an array with NaN or "
            "infinity."
        )
    return features


def in_batches(function, features):
    """Array of what a function of tensors finds for all features."""
    parts = [
        function(tf.constant(features[start : start + _BATCH])).numpy()
        for start in range(0, len(features), _BATCH)
    ]
    return np.concatenate(parts)
