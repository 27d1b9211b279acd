"""Sparse transforms: the L1 loss and its proximal step."""

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

# l1 is multiplied by this power of `count / target_nonzeros`, up to this
# factor.
_TARGET_POWER = 0.5
_TARGET_FACTOR = 1.5
# Steps between adjustments of l1.
_TARGET_INTERVAL = 20
# Random partners of each id of a batch.
_PARTNERS = 4
_PRIME, _FACTOR = 2**31 - 1, 1_000_003


@keras.saving.register_keras_serializable(package="keras_compembed")
class L1(Settings):
    """The loss `l1 * sum |T|`, which makes the transform T sparse.

    After each optimizer step, entries of T move towards 0 by a threshold. It
    is `l1` times a step size: that of each coordinate with
    `threshold="coordinate"`, which for Adam and similar optimizers is
    `learning_rate / (sqrt(v) + epsilon)`. With `threshold="learning_rate"` it
    is the learning rate. The two are the same for optimizers without step
    sizes for coordinates (SGD, Lion), or with unknown ones (Adadelta,
    Adafactor, Lamb). With many rare ids, try it with an `l1` of 0.03 to 0.3.

    Example:

    >>> l1 = L1(1e-5, target_nonzeros=20_000)
    >>> layer = kc.ANTEmbedding(1000, 64, l1=l1)

    Args:
        l1: Number, at least 0. Weight of `sum |T|`. Defaults to `1e-5`.
        non_negative: Boolean. Whether T must be >= 0. Defaults to `True`.
        threshold: `"coordinate"` or `"learning_rate"`. Defaults to
            `"coordinate"`.
        target_nonzeros: Optional integer, the target number of non-zeros of T.
            Every 20 steps, `l1` (which must be positive) is multiplied by the
            root of `nnz / target_nonzeros`, limited to 1.5 and 1 / 1.5.
            `kc.strip` drops the smallest entries above the target.
        negative_weight: Number, at least 0. Weight in the loss of the mean of
            `|t_u| . |t_v|` over random pairs of unrelated ids of a batch.
            Defaults to `0.0`.

    Raises:
        ValueError: If an argument is invalid.
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
        rule = "`l1` must be positive with `target_nonzeros`."
        require(target_nonzeros is None or self.l1, rule, l1=l1)
        self.negative_weight = check_positive_number(
            "negative_weight", negative_weight, zero=True
        )

    @property
    def by_coordinate(self) -> bool:
        """Whether each coordinate has a separate threshold."""
        return self.threshold == "coordinate"

    def follow_target(self, l1: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        """The next `l1`, which leads towards `target_nonzeros`."""
        ratio = tf.cast(count + 1, "float32") / self.target_nonzeros
        factor = tf.clip_by_value(
            ratio**_TARGET_POWER, 1 / _TARGET_FACTOR, _TARGET_FACTOR
        )
        return l1 * factor


def get_l1(identifier, non_negative=True):
    """A new `L1` from a number, an `L1` or a serialized one."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, L1):
        return type(identifier).from_config(identifier.get_config())
    return L1(identifier, non_negative)


def proximal_step(rows, l1, l1_value, anchors, optimizer):
    """The proximal step after an optimizer step that moved T."""
    check_optimizer(optimizer)
    # XLA skips this check; `get_transform` and saving repeat it.
    tf.debugging.check_numerics(
        anchors.value,
        f"`{anchors.path}` must be finite after a step. Use a lower learning "
        "rate, or check for NaN in the inputs and the loss. Received",
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
    # Infinite thresholds would multiply 0 by infinity.
    shrunk = rows - tf.clip_by_value(rows, -threshold, threshold)
    return tf.maximum(shrunk, 0) if non_negative else shrunk


def check_optimizer(optimizer):
    """Raises if the optimizer would undo proximal steps."""
    # `SparseRowOptimizer` wraps another optimizer.
    optimizer = getattr(optimizer, "inner", optimizer)
    name = type(optimizer).__name__
    kinds = (getattr(keras.optimizers, kind, None) for kind in ("Ftrl", "Muon"))
    require(
        not isinstance(optimizer, tuple(filter(None, kinds))),
        "The optimizer of an `ANTEmbedding` must update each weight separately "
        "from its current value, as Adam and SGD do.",
        optimizer=name,
    )
    require(
        not getattr(optimizer, "use_ema", False),
        "`use_ema` must be False with an `ANTEmbedding`, as averages of sparse "
        "weights are not sparse.",
        use_ema=True,
    )


def separation(ids, rows, weight, relations=None, mask_zero=False):
    """`weight` times the mean of `|t_u| . |t_v|` over random other pairs."""
    # The order is the same on all devices and differs between batches:
    # multiples of the ids modulo a prime.
    ids = tf.cast(ids, tf.int64)
    factor = _FACTOR + tf.math.floormod(tf.reduce_sum(ids), _FACTOR)
    order = tf.argsort(tf.math.floormod(ids * factor, _PRIME))
    ids = tf.gather(ids, order)
    rows = tf.abs(tf.gather(rows, order))
    number = tf.size(ids)
    total = count = 0.0
    for shift in range(1, _PARTNERS + 1):
        # XLA computes `tf.roll` wrongly on axes of unknown size.
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
