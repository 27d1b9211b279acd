"""The base of losses over many classes."""

import keras
import tensorflow as tf

from keras_compembed.layers.class_head import read_examples
from keras_compembed.layers.flat_rows import unflat
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_label


class ClassLoss(keras.losses.Loss):
    """Base of losses that find their layer by the output they are given."""

    # What layers know these losses by.
    reads_class_output = True

    def __init__(
        self,
        evaluation="exact",
        ignore_class=None,
        name=None,
        reduction="sum_over_batch_size",
        **kwargs,
    ):
        super().__init__(name=name, reduction=reduction, **kwargs)
        self.evaluation = check_choice(
            "evaluation", evaluation, ("exact", "sampled")
        )
        self.ignore_class = check_label("ignore_class", ignore_class)

    def training_losses(self, examples):
        """Losses `(rows,)` of examples in training; a mask leaves some out."""
        return examples.draw().losses

    def __call__(self, y_true, y_pred, sample_weight=None):
        losses = self._losses(y_true, y_pred, sample_weight)
        return super().__call__(losses, losses, sample_weight)

    def call(self, y_true, y_pred):
        # What `__call__` hands over.
        return y_pred

    def _losses(self, y_true, y_pred, sample_weight):
        examples = read_examples(y_true, y_pred, type(self).__name__)
        if examples is None:
            return tf.zeros(tf.shape(y_pred)[:-1])
        mask = getattr(y_pred, "_keras_mask", None)
        if self.ignore_class is not None:
            counted = examples.counted(self.ignore_class)
            mask = _both(mask, unflat(counted, y_pred))
        valid = check_labels(examples, mask)
        if examples.training or self.evaluation == "sampled":
            counted = _both(mask, _has_weight(sample_weight, y_pred))
            examples.mask = (
                None if counted is None else tf.reshape(counted, (-1,))
            )
            losses = self.training_losses(examples)
            of_rows = getattr(losses, "_keras_mask", None)
            if of_rows is not None:
                mask = _both(mask, unflat(of_rows, y_pred))
        else:
            losses, _ = examples.exact()
        losses = tf.where(valid, losses, float("nan"))
        losses = unflat(losses, y_pred)
        if mask is not None:
            losses._keras_mask = mask
        return losses

    def get_config(self):
        return {
            **super().get_config(),
            "evaluation": self.evaluation,
            "ignore_class": self.ignore_class,
        }


def _both(mask, other):
    """What is in both of two masks, each of which may be None."""
    if mask is None or other is None:
        return other if mask is None else mask
    return mask & other


def _has_weight(sample_weight, y_pred):
    """Which examples have a weight other than 0, or None if all may have."""
    if sample_weight is None:
        return None
    weights = tf.convert_to_tensor(sample_weight)
    rank = y_pred.shape.rank - 1
    if weights.shape.rank < rank:
        return None
    if weights.shape.rank > rank:
        weights = weights[..., 0]
    return tf.not_equal(weights, 0)


def check_labels(examples, mask):
    """Whether labels are of classes that exist, or of examples left out."""
    valid = examples.in_range
    if mask is not None:
        valid |= tf.logical_not(tf.reshape(mask, (-1,)))
    received = [
        "Received labels from, to:",
        tf.reduce_min(examples.received),
        tf.reduce_max(examples.received),
    ]
    if examples.not_whole is not None:
        rows = valid if examples.lists is None else valid[:, None]
        fractions = tf.where(
            rows, tf.zeros_like(examples.not_whole), examples.not_whole
        )
        received += [
            "and of those that are not whole numbers, from, to:",
            tf.reduce_min(fractions),
            tf.reduce_max(fractions),
        ]
    if examples.lists is not None:
        received += ["Lists must hold a label, and are padded by -1."]
    check = tf.debugging.Assert(
        tf.reduce_all(valid),
        [
            "Labels must be whole numbers from 0 to "
            f"{examples.head.num_classes - 1} (`num_classes` - 1).",
            *received,
        ],
    )
    # Eager calls have raised by now.
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(valid)
