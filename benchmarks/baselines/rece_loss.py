"""RECE as a loss (Gusak et al., 2024, https://arxiv.org/abs/2408.02354).

Examples, and classes, are sorted by the number of the random direction in
which they lie furthest, and cut into chunks. The loss of an example is the
cross-entropy of its label among the classes of its chunk and of those next to
it, over all rounds.
"""

import keras
import tensorflow as tf

from keras_compembed.classes.losses import ClassLoss
from keras_compembed.classes.sampling import Draw
from keras_compembed.utils.tensor_ops import MOST_NUMBERS
from keras_compembed.utils.tensor_ops import in_parts
from keras_compembed.utils.tensor_ops import log_sum_exp


@keras.saving.register_keras_serializable(package="benchmarks")
class RECELoss(ClassLoss):
    """Trains a `CANESoftmax` by reduced cross-entropy (RECE)."""

    def __init__(
        self,
        num_buckets,
        num_chunks=None,
        num_extra_chunks=1,
        num_rounds=1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_buckets = num_buckets
        if num_chunks is None:
            num_chunks = self.num_buckets
        self.num_chunks = num_chunks
        self.num_extra_chunks = num_extra_chunks
        self.num_rounds = num_rounds

    def training_losses(self, examples):
        head = examples.head
        rows, classes = self._chunks(head, examples)
        windows = _with_neighbours(classes.members, self.num_extra_chunks)
        chunked = tf.reshape(rows.members, (-1,))
        chunked = tf.maximum(chunked, 0)
        size = tf.shape(rows.members)[2]
        label, others = head.scores.shared(
            tf.gather(examples.features, chunked),
            [tf.gather(examples.labels, chunked)[:, None]],
            [tf.reshape(windows, (-1, windows.shape[2]))],
            neighbors=size,
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


class EvenChunks:
    """Rows in the order of their codes, cut into chunks, several times over."""

    def __init__(self, codes, num_chunks, count=None):
        rows, rounds = codes.shape[0], codes.shape[1]
        if rows is None:
            rows = tf.shape(codes)[0]
        steps = tf.range(rows)
        # As one number, as XLA knows no other stable order.
        wide = tf.cast(tf.transpose(codes), "int64") * tf.cast(rows, "int64")
        order = tf.sort(wide + tf.cast(steps, "int64"), axis=1)
        order = tf.cast(order % tf.cast(rows, "int64"), "int32")
        first = rows * tf.range(rounds)[:, None]
        ranks = tf.scatter_nd(
            tf.reshape(order + first, (-1, 1)),
            tf.tile(steps, [rounds]),
            [rounds * rows],
        )
        ranks = tf.reshape(ranks, (rounds, rows))
        # Products of rows and chunks may be beyond int32.
        count = tf.cast(rows if count is None else count, "int64")
        count = tf.maximum(count, 1)
        starts = tf.range(num_chunks + 1, dtype="int64") * count // num_chunks
        starts = tf.cast(starts, "int32")
        size = (rows + num_chunks - 1) // num_chunks
        within = starts[:-1, None] + tf.range(size)
        members = tf.gather(order, tf.minimum(within, rows - 1), axis=1)
        self.members = tf.where(within < starts[1:, None], members, -1)
        chunks = (tf.cast(ranks, "int64") + 1) * num_chunks - 1
        chunks = tf.cast(chunks // count, "int32")
        self.chunks = tf.minimum(chunks, num_chunks - 1)
        places = ranks - tf.gather(starts, self.chunks)
        self.places = tf.minimum(places, size - 1)


def nearest_directions(vectors, directions):
    """In which direction of each group vectors lie furthest."""
    groups, number, width = directions.shape
    products = tf.matmul(
        vectors, tf.reshape(directions, (-1, width)), transpose_b=True
    )
    products = tf.reshape(products, (-1, groups, number))
    return tf.argmax(products, axis=2, output_type="int32")


def nearest_directions_of_classes(scores, directions):
    """`nearest_directions` of the vectors of all classes."""
    groups, number, width = directions.shape
    ids = tf.range(scores.num_classes)
    (nearest,) = in_parts(
        lambda ids: (
            nearest_directions(scores.class_vectors(ids), directions),
        ),
        (ids,),
        (tf.zeros((scores.num_classes, groups), "int32"),),
        max(1, MOST_NUMBERS // max(width, groups * number)),
    )
    return nearest
