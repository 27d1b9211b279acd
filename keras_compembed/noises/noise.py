"""The base of distributions of noise classes, and the even one."""

import keras
import tensorflow as tf

from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require


class Noise(keras.layers.Layer):
    """Base of the distributions that noise classes are sampled from."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.num_classes = None

    def attach(self, num_classes):
        """Tells the number of classes, before `build`."""
        num_classes = check_positive_int("num_classes", num_classes)
        require(
            self.num_classes in (None, num_classes),
            "A noise must belong to one layer. Its own has "
            f"{self.num_classes} classes.",
            num_classes=num_classes,
        )
        self.num_classes = num_classes

    def build(self, input_shape=None):
        self.built = True

    def weight_below(self, ids):
        """int64 weights of all classes below each id, in total up to 2**38."""
        raise NotImplementedError

    def class_at(self, weights):
        """The last class of which `weight_below` is at most a weight."""
        raise NotImplementedError

    def sample(self, bits, excluded=None):
        """Classes outside the excluded ones, with replacement; -1 for none."""
        # Of `bits` `(rows, noises)`, or `(noises,)` that all rows share; with
        # -1 where a row of `excluded` has fewer ids.
        weights, starts, left = self._cut_out(excluded)
        shared = bits.shape.rank == 1
        if shared:
            bits = bits[None]
        # The sign of the modulus is that of the divisor.
        places = tf.math.floormod(bits, tf.maximum(left, 1))
        # Where excluded classes were cut out, before this place.
        cuts = starts - tf.cumsum(weights, axis=-1, exclusive=True)
        passed = cuts[:, None, :] <= places[:, :, None]
        passed = tf.where(passed, weights[:, None], tf.zeros((), "int64"))
        places += tf.reduce_sum(passed, axis=-1)
        places = tf.where(left > 0, places, tf.zeros_like(places))
        ids = tf.where(left > 0, self.class_at(places), -1)
        return ids[0] if shared else ids

    def log_prob(self, ids, excluded=None):
        """Log probabilities that `sample` draws by; 0 where an id is -1."""
        _, _, left = self._cut_out(excluded)
        if ids.shape.rank == 1 and left.shape[0] == 1:
            left = left[0]
        logarithms = _log(self._weights(tf.maximum(ids, 0))) - _log(left)
        return tf.where(ids >= 0, tf.cast(logarithms, "float32"), 0.0)

    def _may_draw(self, ids):
        """Which classes `sample` may draw; negative ids are no classes."""
        return (ids >= 0) & (self._weights(tf.maximum(ids, 0)) > 0)

    def observe(self, labels, candidates_hit):
        """Called once in each step of training; ignores labels out of range."""
        # AutoGraph warns of a body that is a docstring alone.
        return

    def _weights(self, ids):
        after = tf.minimum(ids + 1, self.num_classes)
        return self.weight_below(after) - self.weight_below(ids)

    def _cut_out(self, excluded):
        """Weights of excluded classes by id, those below them, and the rest."""
        if excluded is None:
            excluded = tf.zeros((1, 0), "int32")
        excluded = tf.where(excluded >= 0, excluded, self.num_classes)
        if excluded.shape.rank == 1:
            excluded = excluded[None]
        excluded = tf.sort(excluded, axis=-1)
        weights, starts = self._weights(excluded), self.weight_below(excluded)
        total = self.weight_below(tf.constant(self.num_classes))
        left = total - tf.reduce_sum(weights, axis=-1, keepdims=True)
        return weights, starts, left

    def get_build_config(self):
        # Who holds the noise builds it.
        return None


def _log(weights):
    # At least 1: a label that was never counted has a finite loss.
    # float32 would be off by 1e-6 of numbers of size 20.
    return tf.math.log(tf.cast(tf.maximum(weights, 1), "float64"))


@keras.saving.register_keras_serializable(package="keras_compembed")
class UniformNoise(Noise):
    """All classes but the excluded ones are drawn alike."""

    def weight_below(self, ids):
        return tf.cast(ids, "int64")

    def class_at(self, weights):
        return tf.cast(weights, "int32")
