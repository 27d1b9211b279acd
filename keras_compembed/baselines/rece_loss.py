"""Reduced cross-entropy as a loss."""

import keras
import tensorflow as tf

from keras_compembed.baselines.cane_head import check_cane_softmax
from keras_compembed.baselines.class_projections import nearest_directions
from keras_compembed.baselines.class_projections import (
    nearest_directions_of_classes,
)
from keras_compembed.baselines.even_chunks import EvenChunks
from keras_compembed.candidates.candidates_vs_noises import Draw
from keras_compembed.losses.class_loss import ClassLoss
from keras_compembed.utils.log_sums import log_sum_exp
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class RECELoss(ClassLoss):
    """Trains a `keras_compembed.CANESoftmax` by reduced cross-entropy (RECE).

    Draws random directions in each step. Examples, and classes, are sorted by
    the number of the direction in which their features, or vectors, lie
    furthest, and both lists are cut into as many chunks. The loss of an
    example is the cross-entropy of its label among the classes of the chunk
    that has its own chunk's number, and of the chunks next to it. With several
    rounds, each with directions of its own, the classes of all are taken
    together, each counting once however many rounds it comes in. The label
    counts once, in these chunks or not.

    A step reads the vectors of all classes for a product of
    `num_classes * width * num_buckets * num_rounds`, and trains nearly all of
    them: each chunk of classes meets some examples. Tensors hold
    `num_rounds * (1 + 2 num_extra_chunks)` times the class vectors, and as
    many times the scores of all examples as the full softmax has, divided by
    `num_chunks`.

    Biases count in the scores, not in the order: the paper has none. On
    several devices, chunks of examples are those of each device.

    In training, metrics are of the label among the classes of its chunks.

    Example:

    >>> model = keras.Sequential([keras.Input((8,)), kc.CANESoftmax(1000)])
    >>> model.compile("adam", loss=kc.baselines.RECELoss(num_buckets=16))

    Args:
        num_buckets: Integer, directions of a round.
        num_chunks: Optional integer, chunks of examples, and of classes; at
            most `num_buckets`. Defaults to `num_buckets`.
        num_extra_chunks: Integer of at least 0, chunks on either side of an
            example's own. Defaults to `1`.
        num_rounds: Integer. Defaults to `1`.
        evaluation: Same as for `keras_compembed.CANELoss`.
        ignore_class: Same as for `keras_compembed.CANELoss`.
        name: Optional string.
        reduction: Same as for `keras.losses.Loss`.

    Call arguments:
        y_true: Same as for `keras_compembed.CANELoss`.
        y_pred: Same as for `keras_compembed.CANELoss`.
        sample_weight: Same as for `keras_compembed.CANELoss`.

    Raises:
        ValueError: Same as for `keras_compembed.CANELoss`; if a number is out
            of range; or if the layer is not a `CANESoftmax`, or has fewer than
            `num_chunks` classes.

    References:
        - [Gusak et al., 2024](https://arxiv.org/abs/2408.02354)
    """

    def __init__(
        self,
        num_buckets,
        num_chunks=None,
        num_extra_chunks=1,
        num_rounds=1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_buckets = check_positive_int("num_buckets", num_buckets)
        if num_chunks is None:
            num_chunks = self.num_buckets
        self.num_chunks = check_positive_int(
            "num_chunks", num_chunks, maximum=self.num_buckets
        )
        self.num_extra_chunks = check_positive_int(
            "num_extra_chunks", num_extra_chunks, 0
        )
        self.num_rounds = check_positive_int("num_rounds", num_rounds)

    def training_losses(self, examples):
        head = check_cane_softmax(examples.head, self)
        if self.num_chunks > head.num_classes:
            raise ValueError(
                "`num_chunks` must be at most the number of classes, "
                f"{head.num_classes}. Received: num_chunks={self.num_chunks}."
            )
        rows, classes = self._chunks(head, examples)
        windows = _with_neighbours(classes.members, self.num_extra_chunks)
        chunked = tf.reshape(rows.members, (-1,))
        chunked = tf.maximum(chunked, 0)
        size = tf.shape(rows.members)[2]
        label, others = head.scores.score(
            tf.gather(examples.features, chunked),
            tf.gather(examples.labels, chunked)[:, None],
            tf.reshape(windows, (-1, 1, windows.shape[2])),
            block=size,
        )
        # Back from the order of chunks to that of examples.
        chunk = (
            rows.chunks + self.num_chunks * tf.range(self.num_rounds)[:, None]
        )
        places = tf.transpose(chunk * size + rows.places)
        label = tf.gather(label[:, 0], places[:, 0])
        others = tf.gather(others, places)
        windows = tf.reshape(windows, (-1, windows.shape[2]))
        ids = tf.gather(windows, tf.transpose(chunk))
        left_out = (ids < 0) | tf.equal(ids, examples.labels[:, None, None])
        others = tf.where(left_out, float("-inf"), others)
        best = tf.reduce_all(label[:, None, None] >= others, axis=(1, 2))
        if self.num_rounds > 1:
            others -= tf.math.log(self._rounds_that_have(ids, rows, classes))
        width = self.num_rounds * windows.shape[1]
        scores = [label[:, None], tf.reshape(others, (-1, width))]
        losses = log_sum_exp(*scores) - label
        if examples.training:
            examples.keep(Draw(losses, tf.zeros_like(best), best))
        return losses

    def _chunks(self, head, examples):
        """`EvenChunks` of examples, and of classes."""
        features = tf.stop_gradient(examples.features)
        directions = tf.random.stateless_normal(
            (self.num_rounds, self.num_buckets, features.shape[1]),
            tf.cast(examples.seed(), "int32"),
        )
        nearest, count = nearest_directions(features, directions), None
        if examples.mask is not None:
            # They come last.
            mask = examples.mask
            nearest = tf.where(mask[:, None], nearest, self.num_buckets)
            count = tf.reduce_sum(tf.cast(mask, "int32"))
        of_classes = nearest_directions_of_classes(head.scores, directions)
        return (
            EvenChunks(nearest, self.num_chunks, count),
            EvenChunks(of_classes, self.num_chunks),
        )

    def _rounds_that_have(self, ids, rows, classes):
        """In how many rounds classes are in the chunks of examples."""
        counts = tf.zeros(tf.shape(ids))
        for of_rows, of_classes in zip(
            tf.unstack(rows.chunks), tf.unstack(classes.chunks), strict=True
        ):
            chunks = tf.gather(of_classes, tf.maximum(ids, 0))
            apart = tf.abs(chunks - of_rows[:, None, None])
            counts += tf.cast(apart <= self.num_extra_chunks, "float32")
        # Where there is no class there may be none.
        return tf.maximum(counts, 1.0)

    def get_config(self):
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "num_chunks": self.num_chunks,
            "num_extra_chunks": self.num_extra_chunks,
            "num_rounds": self.num_rounds,
        }


def _with_neighbours(members, extra):
    """Chunks, each together with those next to it."""
    chunks = members.shape[1]
    extra = min(extra, chunks - 1)
    padded = tf.pad(
        members, [[0, 0], [extra, extra], [0, 0]], constant_values=-1
    )
    shifted = [padded[:, k : k + chunks] for k in range(2 * extra + 1)]
    return tf.concat(shifted, axis=2)
