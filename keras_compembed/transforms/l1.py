"""Settings of the loss that makes the transform sparse."""

import keras
import tensorflow as tf

from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import require

# The power of `count / target_nonzeros` that l1 is multiplied by, and the
# largest factor.
_TARGET_POWER = 0.5
_TARGET_FACTOR = 1.5


@keras.saving.register_keras_serializable(package="keras_compembed")
class L1:
    """The loss `l1 * sum |T|`, and how `ANTEmbedding` shrinks T by it.

    **Thresholds.** A step of size eta shrinks by `eta * l1`. Adam and its
    kin have a step size for each coordinate, `learning_rate / (sqrt(v) +
    epsilon)`, and so has the threshold with `threshold="coordinate"`: an
    entry stays 0 where the loss's gradient is below `l1`. `"learning_rate"`
    shrinks by `learning_rate * l1` everywhere, and so do optimizers with one
    step size for all coordinates (SGD, Lion), or that do not tell them
    (Adadelta, Adafactor, Lamb). With many rare ids, whose v fades between
    their occurrences, try it with `l1` from 0.03 to 0.3. Coordinates that had
    no gradient yet are left alone.

    Example:

    >>> l1 = L1(1e-5, target_nonzeros=20_000)
    >>> layer = kc.ANTEmbedding(1000, 64, l1=l1)

    Args:
        l1: Number of at least 0. Weight of the sum of absolute values of T
            in the loss. Defaults to `1e-5`.
        non_negative: Boolean. Whether numbers of T must not be negative, so
            that anchors do not cancel each other out. Defaults to `True`.
        threshold: `"coordinate"` or `"learning_rate"`. Defaults to
            `"coordinate"`.
        target_nonzeros: Optional integer. Non-zeros of T wanted. `l1`, which
            must then be positive, is only where it begins: every 20 steps it
            is multiplied by the root of `nnz / target_nonzeros`, by 1.5 and
            1 / 1.5 at most. That takes some hundred steps, in which rows must
            have been looked up. `kc.strip` drops the smallest numbers of what
            is still too many. Defaults to `None`.
        negative_weight: Number of at least 0. Weight, in the loss, of the mean
            of `|t_u| . |t_v|` over pairs of ids of a batch that are not
            related, drawn at random. Defaults to `0.0`.
    """

    def __init__(
        self,
        l1=1e-5,
        non_negative=True,
        threshold="coordinate",
        target_nonzeros=None,
        negative_weight=0.0,
    ):
        self.l1 = check_positive_number("l1", l1, zero=True)
        self.non_negative = check_boolean("non_negative", non_negative)
        self.threshold = check_choice(
            "threshold", threshold, ("coordinate", "learning_rate")
        )
        self.target_nonzeros = check_positive_int(
            "target_nonzeros", target_nonzeros, optional=True
        )
        rule = "`target_nonzeros` must come with a positive `l1`."
        require(target_nonzeros is None or self.l1, rule, l1=l1)
        self.negative_weight = check_positive_number(
            "negative_weight", negative_weight, zero=True
        )

    @property
    def by_coordinate(self):
        """Whether each coordinate has a threshold of its own."""
        return self.threshold == "coordinate"

    def follow_target(self, l1, count):
        """The next `l1`, nearer to what gives `target_nonzeros`."""
        ratio = tf.cast(count + 1, "float32") / self.target_nonzeros
        factor = tf.clip_by_value(
            ratio**_TARGET_POWER, 1 / _TARGET_FACTOR, _TARGET_FACTOR
        )
        return l1 * factor

    def get_config(self):
        return dict(vars(self))

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def get_l1(identifier, non_negative=True):
    """A new `L1`, of a number, another one or a serialized form."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, L1):
        return type(identifier).from_config(identifier.get_config())
    return L1(identifier, non_negative)
