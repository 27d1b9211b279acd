"""Searches fitted to a trained layer over classes."""

import math

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from keras_compembed.classes.approximate_nearest import ALIGNED
from keras_compembed.classes.approximate_nearest import ApproximateNearest
from keras_compembed.classes.approximate_nearest import usual_lists
from keras_compembed.classes.balanced_k_means import split_evenly
from keras_compembed.classes.beam_tree import BeamTree
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import require
from keras_compembed.utils.workers import one_thread

_BATCH = 256
# Array entries to process at a time.
_ENTRIES = 1 << 22
# Chance that recall on other features is below the stated one.
_RISK = 0.05


def calibrate_beam(
    head: keras.Layer,
    features: ArrayLike,
    target_recall: float = 0.99,
    k: int = 1,
    verbose: int = 1,
) -> dict:
    """Sets the beam width that reaches a given recall.

    Recall is the share of the `k` best classes that the search finds. Beam
    widths are doubled until it reaches `target_recall`. Call this after
    training. `head.top_k`, and models and files made later, use the new
    width; models that have run already keep the old one.

    Example:

    >>> tree = kc.classes.ClassTree.random(1000)
    >>> sampling = kc.Sampling(kc.classes.BeamTree(tree), 2, num_noises=2)
    >>> head = kc.CANESoftmax(1000, sampling=sampling)
    >>> features = np.random.normal(size=(200, 8)).astype("float32")
    >>> recalls = calibrate_beam(head, features, verbose=0)
    >>> recalls[head.selector.beam_width] >= 0.99
    True

    Args:
        head: A `CANESoftmax` with a `BeamTree`.
        features: Finite array `(..., width)` of validation data, e.g.
            `keras.Model(model.inputs, head.input).predict(x)`.
        target_recall: Number above 0, at most 1. Defaults to `0.99`.
        k: Integer, classes that predictions return. Defaults to `1`.
        verbose: `0` or `1`, whether to print recalls.

    Returns:
        Dict with the recall of each beam width that was tried.

    Raises:
        ValueError: If `head` has no `BeamTree`, or an argument is invalid.
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
        # A beam as wide as the tree finds everything.
        if recalls[width] >= target_recall or width >= head.num_classes:
            return recalls
        width *= 2


def check_search(head, features, target_recall, k):
    """Builds the layer if needed, and returns features as rows."""
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
        f"`features` must be finite, not empty, and of shape (..., {width}), "
        "the width of class vectors.",
        shape=features.shape,
    )
    return head.scaled(tf.constant(features)).numpy()


def _in_batches(top_k, features, k):
    parts = [
        top_k(tf.constant(features[start : start + _BATCH]), k)[0].numpy()
        for start in range(0, len(features), _BATCH)
    ]
    return np.concatenate(parts)


def fit_search(
    head: keras.Layer,
    features: ArrayLike,
    target_recall: float = 0.99,
    k: int = 1,
    num_lists: int | None = None,
    verbose: int = 1,
) -> keras.Layer:
    """Returns a copy of a trained layer that searches lists of classes.

    Use it for faster predictions of a layer without a search, e.g. with
    `FrequentClasses`. The copy has the same class vectors and biases, and an
    `ApproximateNearest` selector with lists of equal length. Use it in place
    of `head`. In further training, it has at most as many candidates as a
    list has classes.

    Recall is the share of the `k` best classes that the search finds. The copy
    opens as few lists as give a recall of at least `target_recall` on other
    features, with 95 % confidence. A target of 0.99 takes about 300 features.
    With fewer, or for a target of 1, it opens enough lists to find the best
    classes of all `features`. If class vectors form no clusters, scoring all
    classes may be faster.

    Example:

    >>> inputs = keras.Input((8,))
    >>> head = kc.CANESoftmax(1000)
    >>> model = keras.Model(inputs, head(inputs))
    >>> features = np.random.normal(size=(200, 8)).astype("float32")
    >>> searched = kc.classes.fit_search(head, features, verbose=0)
    >>> predictor = keras.Model(model.input, searched(head.input))
    >>> predictor = kc.top_k_model(predictor, k=1)
    >>> predictor.predict(features, verbose=0)["ids"].shape
    (200, 1)

    Args:
        head: A built `CANESoftmax` with any selector. It is not changed.
        features, target_recall: See `calibrate_beam`.
        k: Integer, classes that predictions return. Defaults to `1`. With a
            larger `k` in prediction, the last ids may be -1.
        num_lists: Optional integer. Defaults to `None`: see
            `ApproximateNearest`.
        verbose: `0` or `1`, whether to print the lists and the recall.

    Returns:
        A built `CANESoftmax` with the name and class vectors of `head`.

    Raises:
        ValueError: If `head` is not built, or an argument is invalid.

    References:
        - [Johnson et al., 2017](https://arxiv.org/abs/1702.08734)
        - [Hoeffding, 1963](https://doi.org/10.1080/01621459.1963.10500830),
          equation 2.1
    """
    require(
        getattr(head, "built", True),
        "`head` must be built, and should be trained, as lists are made from "
        "its class vectors.",
        head=head,
    )
    features = check_search(head, features, target_recall, k)
    if num_lists is None:
        num_lists = usual_lists(head.num_classes)
    check_positive_int("num_lists", num_lists, maximum=head.num_classes)
    searched = _with_lists(head, features, num_lists)
    opened = _lists_to_open(searched, features, k)
    rows = len(opened)
    wanted = share_to_find(target_recall, rows) * opened.size
    wanted = min(opened.size, math.ceil(wanted - 1e-9))
    probes = int(np.sort(opened, axis=None)[wanted - 1])
    searched.selector.num_probes = probes
    if verbose:
        number, capacity = searched.selector.lists.shape
        recall = np.mean(opened <= probes)
        print(
            f"{probes} of {number} lists of {capacity} classes: recall "
            f"{recall:.4f}, on other features above "
            f"{stated_recall(recall, rows):.4f} with 95 % confidence"
        )
    return searched


def _with_lists(head, features, num_lists):
    """A copy of a layer with lists of its classes."""
    # No spare places: an exported file would score them all.
    selector = ApproximateNearest(num_lists=num_lists, capacity_factor=1.0)
    shortest = head.num_classes // num_lists
    config = head.get_config()
    config["sampling"]["config"].update(
        selector=keras.saving.serialize_keras_object(selector),
        num_candidates=min(head.sampling.num_candidates, shortest),
    )
    config.update(class_embedding=None, kernel_initializer="ones")
    made = type(head).from_config(config)
    made.build((None, features.shape[1]))
    vectors, biases = _classes_of(head, features.shape[1])
    made.kernel.assign(vectors)
    if made.bias is not None:
        made.bias.assign(biases)
    if made.temperature == "learned":
        made.log_temperature.assign(head.log_temperature)
    made.noise.set_weights(head.noise.get_weights())
    scale = float(np.sqrt(np.mean(np.square(features, dtype="float64"))))
    scale = scale or 1.0
    # Scale differences of vectors to their effect on scores.
    points = np.column_stack([ALIGNED * scale * vectors, biases])
    lists = _even_lists(points, *made.selector.lists.shape)
    made.selector._keep_lists(made.scores, scale, tf.constant(lists, "int32"))
    return made


def _classes_of(head, width):
    vectors = np.empty((head.num_classes, width), "float32")
    biases = np.empty(head.num_classes, "float32")
    size = max(1, _ENTRIES // width)
    for start in range(0, head.num_classes, size):
        end = min(start + size, head.num_classes)
        ids = tf.range(start, end)
        vectors[start:end] = head.scores.class_vectors(ids)
        biases[start:end] = head.scores.class_biases(ids)
    return vectors, biases


def _even_lists(points, number, capacity):
    """Equally long lists of similar rows."""
    points = np.nan_to_num(points, copy=False, posinf=0.0, neginf=0.0)
    rows = np.arange(len(points))
    list_of = np.zeros_like(rows)
    if number > 1:
        with one_thread():
            (list_of,) = split_evenly(
                points, rows[None], number, np.random.default_rng(0)
            )
    order = np.argsort(list_of, kind="stable")
    sizes = np.bincount(list_of, minlength=number)
    starts = np.cumsum(sizes) - sizes
    lists = np.full((number, capacity), -1)
    lists[list_of[order], rows - np.repeat(starts, sizes)] = order
    return lists


def _lists_to_open(head, features, k):
    """How many lists to open until each best class is found."""
    lists = head.selector.lists.numpy()
    list_of = np.empty(head.num_classes, "int64")
    rows, places = np.nonzero(lists >= 0)
    list_of[lists[rows, places]] = rows
    number = len(lists)
    opened = []
    size = max(1, min(256, _ENTRIES // number))
    for start in range(0, len(features), size):
        part = tf.constant(features[start : start + size])
        best = head.scores.top_k(part, k)[0].numpy()
        order = head.selector._order_of_lists(part, number).numpy()
        turns = 1 + np.argsort(order, axis=1)
        found = np.take_along_axis(turns, list_of[best], axis=1)
        # With NaN vectors, there are no further classes to find.
        opened.append(np.where(best >= 0, found, 1))
    return np.concatenate(opened)


def share_to_find(target, rows):
    """The smallest share that proves a recall of `target`, or 1."""
    return _edge(
        lambda share: _log_chance(share, target, rows) > math.log(_RISK),
        target,
        1.0,
    )


def stated_recall(found, rows):
    """The highest recall that a share of `found` proves."""
    return _edge(
        lambda recall: _log_chance(found, recall, rows) > math.log(_RISK),
        found,
        0.0,
    )


def _log_chance(found, recall, rows):
    """Hoeffding bound of the log probability to find a share of `found`."""
    chance = 0.0
    for part, expected in ((found, recall), (1 - found, 1 - recall)):
        if part > 0 and expected <= 0:
            return -math.inf
        if part > 0:
            chance -= part * math.log(part / expected)
    return rows * chance


def _edge(holds, inside, outside):
    """The end of a condition by bisection, just outside of it."""
    for _ in range(50):
        middle = (inside + outside) / 2
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return outside
