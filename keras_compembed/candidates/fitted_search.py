"""A search for a layer of classes that was trained without one."""

import math

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.candidates.approximate_nearest import ALIGNED
from keras_compembed.candidates.approximate_nearest import ApproximateNearest
from keras_compembed.candidates.approximate_nearest import usual_lists
from keras_compembed.trees.balanced_k_means import split_evenly
from keras_compembed.utils.one_thread import one_thread
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number

# Chance that recall on other features is below what is stated.
_RISK = 0.05
# Numbers that scores of a batch of examples, or vectors of a batch of
# classes, may hold at a time.
_ENTRIES = 1 << 22


def fit_search(
    head, features, target_recall=0.99, k=1, num_lists=None, verbose=1
):
    """A layer of the same classes that searches lists of them to predict.

    The fastest ways to train, such as `FrequentClasses` with noises that are
    shared, or a sampled softmax, leave nothing to search by: predictions
    score all classes. This makes a layer with the same class vectors and
    biases and an `ApproximateNearest` selector. Its lists are made from the
    vectors and are equally long, and it opens as few of them as find what
    scoring all classes would find.

    Recall is the share of the `k` best classes of all that are among the `k`
    classes that the search returns. It is counted on `features`, so give
    those of validation data. As many lists are opened as make recall on other
    features of the same kind at least `target_recall` with 95 % confidence.
    Few features cannot show that: 0.99 takes about 300 of them. With fewer,
    or for a recall of 1, what the search finds for all of `features` has to
    do, and the recall that is printed is what they do show. Once a list is
    opened, all its classes are scored exactly. Where vectors are near
    to no others, many lists have to be opened, and scoring all classes may be
    faster.

    Put the layer in the place of `head`: it is saved, exported and asked for
    predictions in the same way. If it is trained on, it has no more
    candidates than a list has classes.

    Example:

    >>> inputs = keras.Input((8,))
    >>> selector = kc.candidates.FrequentClasses(np.arange(1000, 0, -1))
    >>> head = kc.CANESoftmax(1000, selector)
    >>> model = keras.Model(inputs, head(inputs))
    >>> features = np.random.normal(size=(200, 8)).astype("float32")
    >>> searched = kc.candidates.fit_search(head, features, verbose=0)
    >>> predictor = keras.Model(model.input, searched(head.input))
    >>> predictor = kc.top_k_model(predictor, k=1)
    >>> predictor.predict(features, verbose=0)["ids"].shape
    (200, 1)

    Args:
        head: A built `CANESoftmax` with any selector. It stays as it is.
        features: Array `(..., width)` of what the layer is given, e.g.
            `model.predict(x)`.
        target_recall: Number above 0, at most 1, recall to expect on other
            features. Defaults to `0.99`.
        k: Integer, how many classes predictions are to return. Defaults to
            `1`. Predictions of more find less of the best classes, and end
            in ids of -1 where the lists hold fewer.
        num_lists: Optional integer. Defaults to `None`: see
            `ApproximateNearest`.
        verbose: `0` or `1`, whether to print the lists and the recall.

    Returns:
        A built `CANESoftmax` with the name of `head`. Vectors that were sums
        over the paths of a tree, or those of a `class_embedding`, are in its
        `kernel` as they are.

    Raises:
        ValueError: if `head` is no such layer or is not built, `features`
            are empty, of another width or not finite, or a number is out of
            range.

    References:
        - [Johnson et al., 2017](https://arxiv.org/abs/1702.08734), for
          inverted lists
        - [Hoeffding, 1963](https://doi.org/10.1080/01621459.1963.10500830),
          equation 2.1, for the confidence
    """
    features = _check(head, features, target_recall, k, num_lists)
    searched = _with_lists(head, features, num_lists)
    opened = _lists_to_open(searched, features, k)
    selector = searched.selector
    number, capacity = selector.lists.shape
    rows = len(opened)
    wanted = _share_to_find(target_recall, rows) * opened.size
    wanted = min(opened.size, math.ceil(wanted - 1e-9))
    selector.num_probes = int(np.sort(opened, axis=None)[wanted - 1])
    if verbose:
        recall = np.mean(opened <= selector.num_probes)
        print(
            f"{selector.num_probes} of {number} lists of {capacity} classes: "
            f"recall {recall:.4f}, on other features above "
            f"{_stated_recall(recall, rows):.4f} with 95 % confidence"
        )
    return searched


def _with_lists(head, features, num_lists):
    """A layer with the vectors and biases of another, and lists of them."""
    if num_lists is None:
        num_lists = usual_lists(head.num_classes)
    # Even lists have no room to spare, of which a file would score all.
    selector = ApproximateNearest(num_lists=num_lists, capacity_factor=1.0)
    # So many candidates that one list holds them.
    shortest = head.num_classes // num_lists
    made = type(head).from_config(
        {
            **head.get_config(),
            "selector": keras.saving.serialize_keras_object(selector),
            "num_candidates": min(head.num_candidates, shortest),
            "class_embedding": None,
            "kernel_initializer": "zeros",
        }
    )
    made.build((None, features.shape[1]))
    vectors = np.empty((head.num_classes, features.shape[1]), "float32")
    biases = np.empty(head.num_classes, "float32")
    size = max(1, _ENTRIES // features.shape[1])
    for start in range(0, head.num_classes, size):
        end = min(start + size, head.num_classes)
        ids = tf.range(start, end)
        vectors[start:end] = head.scores.class_vectors(ids)
        biases[start:end] = head.scores.class_biases(ids)
    made.kernel.assign(vectors)
    if made.bias is not None:
        made.bias.assign(biases)
    made.noise.set_weights(head.noise.get_weights())
    scale = float(np.sqrt(np.mean(np.square(features, dtype="float64"))))
    scale = scale or 1.0
    made.selector.feature_scale.assign(scale)
    # What a difference counts in the scores of features of that scale.
    points = np.column_stack([ALIGNED * scale * vectors, biases])
    lists = _even_lists(points, *made.selector.lists.shape)
    made.selector.refresh(made.scores, lists)
    return made


def _even_lists(points, number, capacity):
    """Lists of the rows of points that are near each other.

    Returns:
        Integer array `(number, capacity)`: sizes differ by 1 at most, and
        lists end in -1 where they are shorter.
    """
    # Vectors that are not finite may go anywhere.
    points = np.nan_to_num(points, posinf=0.0, neginf=0.0)
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
    places = rows - np.repeat(starts, sizes)
    lists = np.full((number, capacity), -1)
    lists[list_of[order], places] = order
    return lists


def _lists_to_open(head, features, k):
    """Lists to open, likeliest first, until each best class is found.

    Returns:
        Integer array `(rows, k)`, 1 where the first list has the class.
    """
    lists = head.selector.lists.numpy()
    number = len(lists)
    list_of = np.empty(head.num_classes, "int64")
    rows, places = np.nonzero(lists >= 0)
    list_of[lists[rows, places]] = rows

    @tf.function(reduce_retracing=True)
    def search(features):
        best = head.scores.top_k(features, k)[0]
        return best, head.selector.order_of_lists(features, number)

    opened = []
    size = max(1, min(256, _ENTRIES // number))
    for start in range(0, len(features), size):
        best, order = search(tf.constant(features[start : start + size]))
        best, turns = best.numpy(), np.argsort(order.numpy(), axis=1)
        found = 1 + np.take_along_axis(turns, list_of[best], axis=1)
        # Where vectors are NaN, there are no more classes to be found.
        opened.append(np.where(best >= 0, found, 1))
    return np.concatenate(opened)


def _log_chance(found, recall, rows):
    """Bound of the log of the chance to find a share of `found` or more.

    It holds for the mean of independent rows whose shares are from 0 to 1,
    so also where the `k` classes of a row depend on each other.
    """
    chance = 0.0
    for part, expected in ((found, recall), (1 - found, 1 - recall)):
        if part > 0:
            chance -= (
                math.inf
                if expected <= 0
                else (part * math.log(part / expected))
            )
    return rows * chance


def _share_to_find(target, rows):
    """Least share that shows recall of at least `target`; 1 if none does."""
    return _edge(
        lambda share: _log_chance(share, target, rows) > math.log(_RISK),
        target,
        1.0,
    )


def _stated_recall(found, rows):
    """The highest recall that a share of `found` shows."""
    return _edge(
        lambda recall: _log_chance(found, recall, rows) > math.log(_RISK),
        found,
        0.0,
    )


def _edge(holds, inside, outside):
    """Where a condition ends, by halves: the last number outside of it."""
    for _ in range(50):
        middle = (inside + outside) / 2
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return outside


def _check(head, features, target_recall, k, num_lists):
    """Features as rows, if all is as it must be."""
    if not hasattr(head, "selector"):
        raise ValueError(
            f"`head` must be a `CANESoftmax`. Received: head={head!r}."
        )
    if not head.built:
        raise ValueError(
            "`head` must be built, and should be trained: lists are made "
            f"from its class vectors. Received: the layer {head.name!r}, "
            "which is not built."
        )
    check_positive_int("k", k, maximum=head.num_classes)
    if num_lists is not None:
        check_positive_int("num_lists", num_lists, maximum=head.num_classes)
    check_positive_number("target_recall", target_recall)
    if target_recall > 1:
        raise ValueError(
            "`target_recall` must be above 0 and at most 1. "
            f"Received: target_recall={target_recall}."
        )
    features = np.asarray(features, "float32")
    width = head.scores.width
    if features.ndim < 2 or features.shape[-1] != width:
        raise ValueError(
            f"`features` must be of shape (..., {width}), as wide as the "
            f"class vectors. Received: shape {features.shape}."
        )
    features = features.reshape(-1, width)
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
