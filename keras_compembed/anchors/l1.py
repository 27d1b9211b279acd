"""What makes the transform sparse: its loss, and the proximal step."""

import keras
import tensorflow as tf

from keras_compembed.optimizers.device_rows import write
from keras_compembed.optimizers.running_optimizer import StepSize
from keras_compembed.utils.saving import Settings
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import require

# The power of `count / target_nonzeros` that l1 is multiplied by, and the
# largest factor.
_TARGET_POWER = 0.5
_TARGET_FACTOR = 1.5
# Steps from one adjustment of l1 to the next.
_TARGET_INTERVAL = 20
# Random partners of each id of a batch.
_PARTNERS = 4
_PRIME, _FACTOR = 2**31 - 1, 1_000_003


@keras.saving.register_keras_serializable(package="keras_compembed")
class L1(Settings):
    """The loss `l1 * sum |T|`, and how `ANTEmbedding` shrinks T by it.

    A step of size eta shrinks by `eta * l1`. Adam and its kin have a step
    size for each coordinate, `learning_rate / (sqrt(v) + epsilon)`, and so
    has the threshold with `threshold="coordinate"`: an entry stays 0 where
    the loss's gradient is below `l1`. `"learning_rate"` shrinks by
    `learning_rate * l1` everywhere, and so do optimizers with one step size
    for all coordinates (SGD, Lion), or that do not tell them (Adadelta,
    Adafactor, Lamb). With many rare ids try it with `l1` from 0.03 to 0.3.

    Example:

    >>> l1 = L1(1e-5, target_nonzeros=20_000)
    >>> layer = kc.ANTEmbedding(1000, 64, l1=l1)

    Args:
        l1: Number of at least 0. Weight of the sum of absolute values of T
            in the loss. Defaults to `1e-5`.
        non_negative: Boolean. Whether numbers of T must not be negative.
            Defaults to `True`.
        threshold: `"coordinate"` or `"learning_rate"`. Defaults to
            `"coordinate"`.
        target_nonzeros: Optional integer. Non-zeros of T wanted. `l1`, which
            must then be positive, is only where it begins: every 20 steps it
            is multiplied by the root of `nnz / target_nonzeros`, by 1.5 and
            1 / 1.5 at most. `kc.strip` drops the smallest numbers of what is
            still too many. Defaults to `None`.
        negative_weight: Number of at least 0. Weight, in the loss, of the mean
            of `|t_u| . |t_v|` over pairs of ids of a batch that are not
            related, drawn at random. Defaults to `0.0`.
    """

    def __init__(
        self,
        l1: float = 1e-5,
        non_negative: bool = True,
        threshold: str = "coordinate",
        target_nonzeros: int | None = None,
        negative_weight: float = 0.0,
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
    def by_coordinate(self) -> bool:
        """Whether each coordinate has a threshold of its own."""
        return self.threshold == "coordinate"

    def follow_target(self, l1: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        """The next `l1`, nearer to what gives `target_nonzeros`."""
        ratio = tf.cast(count + 1, "float32") / self.target_nonzeros
        factor = tf.clip_by_value(
            ratio**_TARGET_POWER, 1 / _TARGET_FACTOR, _TARGET_FACTOR
        )
        return l1 * factor


def get_l1(identifier, non_negative=True):
    """A new `L1`, of a number, another one or a serialized form."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, L1):
        return type(identifier).from_config(identifier.get_config())
    return L1(identifier, non_negative)


def proximal_step(rows, l1, l1_value, anchors, optimizer):
    """Follows a step of an optimizer that moved T."""
    check_optimizer(optimizer)
    # XLA leaves this out; there, `get_transform` and saving find it.
    tf.debugging.check_numerics(
        anchors.value,
        f"`{anchors.path}` must be finite after a step. Lower the learning "
        "rate, or look for NaN in the inputs and the loss. Received",
    )
    step = StepSize(optimizer, rows.variable, l1.by_coordinate)
    weight = tf.convert_to_tensor(l1_value.value)
    rows.after_step(step, step.scale * weight)
    if l1.target_nonzeros is not None:
        iterations = tf.cast(optimizer.iterations, "int64") + 1
        # Steps that only accumulate gradients do not advance `iterations`.
        due = (step.scale > 0) & (iterations % _TARGET_INTERVAL == 0)
        following = tf.cond(
            due,
            lambda: l1.follow_target(weight, rows.count()),
            lambda: weight,
        )
        write(l1_value, following)


def shrink(rows, threshold, non_negative, free=None):
    """Algorithm 1, line 10, of Liang et al."""
    threshold = tf.cast(threshold, rows.dtype)
    if free is not None:
        threshold = tf.where(free, tf.zeros_like(rows), threshold)
    # Infinite thresholds would make a product of 0 and infinity.
    shrunk = rows - tf.clip_by_value(rows, -threshold, threshold)
    return tf.maximum(shrunk, 0) if non_negative else shrunk


def check_optimizer(optimizer):
    """Raises if the optimizer's steps undo proximal steps."""
    # `SparseRowOptimizer` makes the steps of another.
    optimizer = getattr(optimizer, "inner", optimizer)
    name = type(optimizer).__name__
    kinds = (getattr(keras.optimizers, kind, None) for kind in ("Ftrl", "Muon"))
    require(
        not isinstance(optimizer, tuple(filter(None, kinds))),
        "The optimizer of an `ANTEmbedding` must move weights from where they "
        "are, each by itself, as Adam and SGD do.",
        optimizer=name,
    )
    require(
        not getattr(optimizer, "use_ema", False),
        "`use_ema` must be False with an `ANTEmbedding`: averages of sparse "
        "weights are not sparse.",
        use_ema=True,
    )


def separation(ids, rows, weight, relations=None, mask_zero=False):
    """The mean of `|t_u| . |t_v|` over random pairs, not related, weighted."""
    # In an order that is the same on all devices and changes with the
    # batch: multiples of the ids modulo a prime.
    ids = tf.cast(ids, tf.int64)
    factor = _FACTOR + tf.math.floormod(tf.reduce_sum(ids), _FACTOR)
    order = tf.argsort(tf.math.floormod(ids * factor, _PRIME))
    ids = tf.gather(ids, order)
    rows = tf.abs(tf.gather(rows, order))
    number = tf.size(ids)
    total = count = 0.0
    for shift in range(1, _PARTNERS + 1):
        # Not `tf.roll`: XLA does it wrong on axes of unknown size.
        others = tf.math.floormod(tf.range(number) + shift, number)
        partners = tf.gather(ids, others)
        counts = tf.cast(tf.not_equal(ids, partners), rows.dtype)
        if mask_zero:
            counts *= tf.cast(tf.not_equal(ids * partners, 0), rows.dtype)
        if relations is not None and len(relations):
            keys = tf.constant(relations.keys)
            wanted = ids * relations.input_dim + partners
            places = tf.searchsorted(keys, wanted)
            places = tf.minimum(places, tf.size(keys) - 1)
            related = tf.equal(tf.gather(keys, places), wanted)
            counts *= 1 - tf.cast(related, rows.dtype)
        shared = tf.reduce_sum(rows * tf.gather(rows, others), axis=1)
        total += tf.reduce_sum(counts * shared)
        count += tf.reduce_sum(counts)
    return weight * total / tf.maximum(count, 1)
