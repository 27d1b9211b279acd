"""Arguments of `ANTEmbedding`."""

import keras

from keras_compembed.anchors.mixed import Mixed
from keras_compembed.anchors.relations import Relations
from keras_compembed.transforms.activations import ACTIVATIONS
from keras_compembed.transforms.dense_rows import DenseRows
from keras_compembed.transforms.lazy_rows import LazyRows
from keras_compembed.transforms.sparse_rows import SparseRows
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number

STORAGES = {"dense": DenseRows, "lazy": LazyRows, "sparse": SparseRows}
# Numbers of T up to which a whole pass in each step, and memory for it and
# for the optimizer's slots, go unnoticed.
_DENSE_NUMBERS = 4_000_000
_LAZY_NUMBERS = 100_000_000


def choose_storage(input_dim, num_anchors):
    """The form of the transform where the user names none."""
    size = input_dim * num_anchors
    if size <= _DENSE_NUMBERS:
        return "dense"
    return "lazy" if size <= _LAZY_NUMBERS else "sparse"


def check_arguments(arguments):
    """Raises if arguments do not fit; returns `relations`.

    Args:
        arguments: Dict of the constructor's.
    """
    input_dim = arguments["input_dim"]
    num_anchors = check_positive_int("num_anchors", arguments["num_anchors"])
    if num_anchors > input_dim:
        raise ValueError(
            "`num_anchors` must be at most `input_dim`. "
            f"Received: {num_anchors=}, {input_dim=}."
        )
    for name in ("l1", "negative_weight", "orthogonality"):
        check_positive_number(name, arguments[name], zero=True)
    for name in ("max_nonzeros", "target_nonzeros", "softmax_rows"):
        if arguments[name] is not None:
            check_positive_int(name, arguments[name])
    check_choice(
        "threshold", arguments["threshold"], ("coordinate", "learning_rate")
    )
    storage = arguments["storage"]
    if arguments["num_nonzeros"] is None:
        check_choice("storage", storage, (None, *STORAGES))
    activation = arguments["activation"]
    check_choice("activation", activation, (None, *ACTIVATIONS))
    _check_target(arguments)
    _check_room(arguments, storage or choose_storage(input_dim, num_anchors))
    if arguments["softmax_rows"] is not None and activation is not None:
        raise ValueError(
            "`softmax_rows` must be None with an `activation`. Received: "
            f"softmax_rows={arguments['softmax_rows']}, {activation=}."
        )
    return _check_relations(arguments)


def _check_target(arguments):
    if arguments["target_nonzeros"] is None:
        return
    if not arguments["l1"] or arguments["activation"] in (
        "sparsemax",
        "entmax",
    ):
        raise ValueError(
            "`target_nonzeros` must come with a positive `l1` to begin with, "
            "and without 'sparsemax' or 'entmax', whose zeros do not come "
            f"from l1. Received: l1={arguments['l1']}, "
            f"activation={arguments['activation']!r}."
        )


def _check_room(arguments, storage):
    room = arguments["max_nonzeros"]
    if room is None:
        return
    if storage != "sparse" or room > arguments["num_anchors"]:
        raise ValueError(
            "`max_nonzeros` must be at most `num_anchors`, and is for "
            f"storage='sparse'. Received: max_nonzeros={room}, "
            f"num_anchors={arguments['num_anchors']}, {storage=}."
        )


def _check_relations(arguments):
    relations = arguments["relations"]
    if isinstance(relations, dict):
        relations = keras.saving.deserialize_keras_object(relations)
    mixtures = check_positive_int("num_mixtures", arguments["num_mixtures"])
    if relations is None:
        return None
    if not isinstance(relations, Relations):
        raise ValueError(
            "`relations` must be a `keras_compembed.anchors.Relations`. "
            f"Received: an object of type {type(relations).__name__}."
        )
    initializer = arguments["anchors_initializer"]
    if mixtures > 1 or isinstance(initializer, (list, tuple, Mixed)):
        raise ValueError(
            "`relations` must be None with several sets of anchors: T has a "
            "column for an object in each of them. Received: "
            f"num_mixtures={mixtures}, anchors_initializer={initializer!r}."
        )
    if relations.input_dim != arguments["input_dim"]:
        raise ValueError(
            "`relations` must be between ids below `input_dim`. Received: "
            f"relations of {relations.input_dim} ids, "
            f"input_dim={arguments['input_dim']}."
        )
    return relations


def check_use_of_relations(relations, anchor_ids, negative_weight):
    """Raises if relations would have no effect."""
    if relations is None or negative_weight or (anchor_ids >= 0).any():
        return
    raise ValueError(
        "`relations` must come with anchors that stand for ids, such as "
        "`keras_compembed.anchors.Frequency(counts)`, or with a positive "
        "`negative_weight`: they have no effect otherwise. Received: anchors "
        "that stand for no ids, negative_weight=0."
    )
