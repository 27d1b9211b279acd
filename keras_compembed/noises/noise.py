"""The base of distributions of noise classes."""

import keras
import tensorflow as tf

from keras_compembed.utils.validation import check_positive_int


class Noise(keras.layers.Layer):
    """Base of the distributions that noise classes are sampled from.

    A noise belongs to one `keras_compembed.CANESoftmax`, which calls
    `attach`, then `build`. Classes have integer weights; those of a row that
    are excluded, its candidates, are cut out of the line that weights lie on,
    end to end, and a class is where a random number falls. No draw is ever
    rejected, and `log_prob` is that of the integers, not of what they were
    made from.

    A noise is a layer so that its table is saved with the model.

    For a distribution of your own write `weight_below` and `class_at`:

    >>> @keras.saving.register_keras_serializable()
    ... class EvenClasses(kc.noises.Noise):
    ...     def weight_below(self, ids):
    ...         return (tf.cast(ids, "int64") + 1) // 2
    ...     def class_at(self, weights):
    ...         return tf.cast(2 * weights, "int32")

    Attributes:
        num_classes: Integer, from `attach`.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.num_classes = None

    def attach(self, num_classes):
        """Tells the number of classes, before `build`.

        Raises:
            ValueError: if the noise is for another number of classes.
        """
        num_classes = check_positive_int("num_classes", num_classes)
        if self.num_classes not in (None, num_classes):
            raise ValueError(
                "A noise must belong to one layer. Received: "
                f"num_classes={num_classes} and a noise of a layer with "
                f"{self.num_classes} classes."
            )
        self.num_classes = num_classes

    def build(self, input_shape=None):
        self.built = True

    def weight_below(self, ids):
        """The weight of all classes below each id.

        Args:
            ids: int32 tensor of any shape, from 0 to `num_classes`, for which
                it is the total: at most about 2 ** 38, so that random bits
                fall on weights evenly to 2 ** -25 of a probability.

        Returns:
            int64 tensor.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must have a method `weight_below`."
        )

    def class_at(self, weights):
        """The class that a place on the line of weights belongs to.

        Args:
            weights: int64 tensor of any shape, from 0 to below the total.

        Returns:
            int32 tensor: the last class of which `weight_below` is at most
            that.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must have a method `class_at`."
        )

    def sample(self, bits, excluded=None):
        """Classes outside the excluded ones, with replacement.

        Args:
            bits: int64 tensor of random bits, `(rows, noises)`, or
                `(noises,)` for noises that all rows share.
            excluded: Optional int32 tensor `(rows, excluded)`, or
                `(excluded,)` for the same in all rows: ids that differ within
                a row, -1 where there are fewer.

        Returns:
            int32 tensor of the shape of `bits`. Where no class that can be
            drawn is left, -1.

        Raises:
            ValueError: if noises are shared and what they exclude is not.
        """
        weights, starts = self._excluded_weights(excluded)
        shared = bits.shape.rank == 1
        if shared and excluded is not None and excluded.shape.rank > 1:
            raise ValueError(
                "`excluded` must have one axis if `bits` has. Received: "
                f"excluded of shape {excluded.shape}, bits of shape "
                f"{bits.shape}."
            )
        if shared:
            bits = bits[None]
        left = self._total() - tf.reduce_sum(weights, axis=-1, keepdims=True)
        # The sign of the modulus is that of the divisor.
        places = tf.math.floormod(bits, tf.maximum(left, 1))
        # Where excluded classes were cut out, before this place.
        cuts = starts - tf.cumsum(weights, axis=-1, exclusive=True)
        passed = cuts[:, None, :] <= places[:, :, None]
        places += tf.reduce_sum(
            tf.where(passed, weights[:, None, :], tf.zeros((), "int64")),
            axis=-1,
        )
        places = tf.where(left > 0, places, tf.zeros_like(places))
        ids = tf.where(left > 0, self.class_at(places), -1)
        return ids[0] if shared else ids

    def log_prob(self, ids, excluded=None):
        """Logarithms of the probabilities that `sample` draws by.

        A class that is never drawn, because it has no weight, is given the
        probability of the least weight there can be, so that a label that was
        never counted has a finite loss.

        Args:
            ids: int32 tensor `(rows, ids)` or `(ids,)`.
            excluded: See `sample`. Of ids among them the result is finite
                and means nothing.

        Returns:
            float32 tensor of the shape of `ids`, or `(rows, ids)` if what is
            excluded differs between rows. 0 where an id is -1.
        """
        weights, _ = self._excluded_weights(excluded)
        left = self._total() - tf.reduce_sum(weights, axis=-1, keepdims=True)
        if ids.shape.rank == 1 and (
            excluded is None or excluded.shape.rank == 1
        ):
            left = left[0]
        known = ids >= 0
        logarithms = _log(self._weights(tf.maximum(ids, 0))) - _log(left)
        return tf.where(known, tf.cast(logarithms, "float32"), 0.0)

    def draws(self, ids):
        """Which classes `sample` may draw.

        Args:
            ids: int32 tensor of any shape. Negative ones are no classes.

        Returns:
            Boolean tensor of the shape of `ids`.
        """
        return (ids >= 0) & (self._weights(tf.maximum(ids, 0)) > 0)

    def observe(self, labels, candidates_hit):
        """Called once in each step of training.

        Args:
            labels: int32 tensor `(rows,)`; those out of range are ignored.
            candidates_hit: Boolean tensor `(rows,)`, whether the candidates
                held the label.
        """
        # AutoGraph warns of a body that is a docstring alone.
        return

    def _total(self):
        return self.weight_below(tf.constant(self.num_classes))

    def _weights(self, ids):
        after = tf.minimum(ids + 1, self.num_classes)
        return self.weight_below(after) - self.weight_below(ids)

    def _excluded_weights(self, excluded):
        """Weights of excluded classes by id, and the weights below them."""
        if excluded is None:
            excluded = tf.zeros((1, 0), "int32")
        excluded = tf.where(excluded >= 0, excluded, self.num_classes)
        if excluded.shape.rank == 1:
            excluded = excluded[None]
        excluded = tf.sort(excluded, axis=-1)
        return self._weights(excluded), self.weight_below(excluded)

    def get_build_config(self):
        # Who holds the noise builds it.
        return None


def _log(weights):
    # float32 would be off by 1e-6 of numbers of size 20.
    return tf.math.log(tf.cast(tf.maximum(weights, 1), "float64"))
