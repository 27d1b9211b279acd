"""The width of beams that find what scoring all classes would find."""

import numpy as np
import tensorflow as tf

from keras_compembed.candidates.beam_tree import BeamTree
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import require

_BATCH = 256


def calibrate_beam(head, features, target_recall=0.99, k=1, verbose=1):
    """Sets the beam width at which search finds what scoring all would find.

    Recall is the share of the `k` best classes of all that are among the `k`
    classes that the search returns. Widths are doubled until it is reached.
    Do this once the model is trained, on validation data. `head.top_k`, and
    models and files that are made from then on, use the width; models that
    have predicted or trained before keep theirs until they are made anew.

    Example:

    >>> tree = kc.trees.ClassTree.random(1000)
    >>> head = kc.CANESoftmax(1000, kc.candidates.BeamTree(tree), 2, 2)
    >>> features = np.random.normal(size=(200, 8)).astype("float32")
    >>> recalls = calibrate_beam(head, features, verbose=0)
    >>> recalls[head.selector.beam_width] >= 0.99
    True

    Args:
        head: A `CANESoftmax` with a `BeamTree`.
        features: Finite array `(..., width)` of what the layer is given, e.g.
            `keras.Model(model.inputs, head.input).predict(x)`.
        target_recall: Number above 0, at most 1. Defaults to `0.99`.
        k: Integer, how many classes predictions are to return. Defaults to
            `1`.
        verbose: `0` or `1`, whether to print recalls.

    Returns:
        Dict of the recall of each width that was tried.
    """
    features = check_search(head, features, target_recall, k)
    selector = head.selector
    require(
        isinstance(selector, BeamTree),
        "`head` must be a `CANESoftmax` with a `BeamTree`.",
        head=head,
    )
    exact = _in_batches(head.scores.top_k, features, k)
    recalls = {}
    width = 1
    while True:
        selector.beam_width = width
        found = _in_batches(
            lambda rows, k: selector.top_k(head.scores, rows, k), features, k
        )
        hits = (found[:, :, None] == exact[:, None, :]).any(axis=1)
        recalls[width] = float(hits.mean())
        if verbose:
            print(f"beam width {width}: recall {recalls[width]:.4f}")
        # As wide as the tree, a beam leaves nothing out.
        if recalls[width] >= target_recall or width >= head.num_classes:
            return recalls
        width *= 2


def check_search(head, features, target_recall, k):
    """Features as rows, of a layer that is built by them."""
    require(
        hasattr(head, "selector"), "`head` must be a `CANESoftmax`.", head=head
    )
    check_positive_int("k", k, maximum=head.num_classes)
    check_positive_number("target_recall", target_recall)
    require(
        target_recall <= 1,
        "`target_recall` must be at most 1.",
        target_recall=target_recall,
    )
    features = np.asarray(features, "float32")
    features = features.reshape(-1, features.shape[-1])
    if not head.built:
        head.build(features.shape)
    width = head.scores.width
    require(
        len(features)
        and features.shape[1] == width
        and np.isfinite(features).all(),
        f"`features` must be finite, of shape (..., {width}), as wide as the "
        "class vectors, and not empty.",
        shape=features.shape,
    )
    return features


def _in_batches(top_k, features, k):
    """Ids of the best classes of all features."""
    parts = [
        top_k(tf.constant(features[start : start + _BATCH]), k)[0].numpy()
        for start in range(0, len(features), _BATCH)
    ]
    return np.concatenate(parts)
