"""A search for a layer of classes that was trained without one."""

import math

import numpy as np

from keras_compembed.candidates.approximate_nearest import usual_lists
from keras_compembed.candidates.beam_calibration import feature_rows
from keras_compembed.candidates.fitted_lists import lists_to_open
from keras_compembed.candidates.fitted_lists import with_lists
from keras_compembed.candidates.recall_bounds import share_to_find
from keras_compembed.candidates.recall_bounds import stated_recall
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number


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
    features of the same kind at least `target_recall` with 95 % confidence,
    if the given ones are drawn one by one; words next to each other in a text
    say less than as many from different texts. Few features cannot show that:
    0.99 takes about 300 of them. With fewer, or for a recall of 1, what the
    search finds for all of `features` has to do, and the recall that is
    printed is what they do show. Once a list is opened, all its classes are
    scored exactly. Where vectors are near to no others, many lists have to be
    opened, and scoring all classes may be faster.

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
            `keras.Model(model.inputs, head.input).predict(x)`.
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
    if num_lists is None:
        num_lists = usual_lists(head.num_classes)
    searched = with_lists(head, features, num_lists)
    opened = lists_to_open(searched, features, k)
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
    return feature_rows(features)
