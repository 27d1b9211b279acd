"""The beam width that a recall takes, measured."""

import numpy as np
import tensorflow as tf

from keras_compembed.candidates.beam_tree import BeamTree
from keras_compembed.candidates.selector import exact_top_k
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number

_BATCH = 256


def calibrate_beam(head, features, target_recall=0.99, k=1, verbose=1):
    """Sets the beam width at which search finds what scoring all would find.

    Recall is the share of the `k` best classes of all that are among the `k`
    classes that the search returns. Widths are doubled until it is reached.
    Do this once the model is trained, on validation data; predictions,
    `keras_compembed.top_k_model` and exported files made from then on use the
    width, and so does training, once the model is compiled again, where it is
    wider than `num_candidates`.

    Example:

    >>> head = kc.CANESoftmax(1000, num_candidates=2, num_noises=2)
    >>> features = np.random.normal(size=(200, 8)).astype("float32")
    >>> recalls = calibrate_beam(head, features, verbose=0)
    >>> recalls[head.selector.beam_width] >= 0.99
    True

    Args:
        head: A `CANESoftmax` with a `BeamTree`.
        features: Array `(..., width)` of what the layer is given, e.g.
            `model.predict(x)`.
        target_recall: Number from 0 to 1. Defaults to `0.99`.
        k: Integer, how many classes predictions are to return. Defaults to
            `1`.
        verbose: `0` or `1`, whether to print recalls.

    Returns:
        Dict of the recall of each width that was tried.

    Raises:
        ValueError: if the layer does not search a tree, or a number is out
            of range.
    """
    selector = getattr(head, "selector", None)
    if not isinstance(selector, BeamTree):
        raise ValueError(
            "`head` must be a `CANESoftmax` with a `BeamTree`. "
            f"Received: head={head!r}."
        )
    check_positive_int("k", k, maximum=head.num_classes)
    check_positive_number("target_recall", target_recall)
    if target_recall > 1:
        raise ValueError(
            "`target_recall` must be from 0 to 1. "
            f"Received: target_recall={target_recall}."
        )
    features = np.asarray(features, "float32")
    features = features.reshape(-1, features.shape[-1])
    if not len(features):
        raise ValueError(
            "`features` must hold at least one example. Received: none."
        )
    if not head.built:
        head.build(features.shape)
    exact = _run(lambda rows: exact_top_k(head, rows, k)[0], features)
    recalls = {}
    # As wide as the tree, a beam leaves nothing out.
    width = 1
    while True:
        selector.beam_width = width
        found = _run(lambda rows: selector.top_k(head, rows, k)[0], features)
        hits = (found[:, :, None] == exact[:, None, :]).any(axis=1)
        recalls[width] = float(hits.mean())
        if verbose:
            print(f"beam width {width}: recall {recalls[width]:.4f}")
        if recalls[width] >= target_recall or width >= head.num_classes:
            return recalls
        width *= 2


def _run(function, features):
    function = tf.function(function, reduce_retracing=True)
    parts = [
        function(tf.constant(features[start : start + _BATCH])).numpy()
        for start in range(0, len(features), _BATCH)
    ]
    return np.concatenate(parts)
