"""Options of layers: combining vectors, and logits."""

import dataclasses
import math
import numbers
import types
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.utils.saving import Settings
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require

COMBINERS = ("mean", "sum", "sqrtn")
# Replaces `SplitRows` for dense tensors, which need no splits.
_WHOLE_ROWS = types.SimpleNamespace(spread=lambda x: x, join=lambda x: x)


class SplitRows:
    """Rows of a ragged tensor, with long rows split into parts."""

    def __init__(self, ragged):
        starts = ragged.row_starts()
        lengths = ragged.row_lengths()
        number = ragged.nrows()
        self._total = tf.shape(ragged.flat_values, out_type=starts.dtype)[0]
        longest = tf.reduce_max(tf.pad(lengths, [[0, 1]], constant_values=1))
        mean = self._total // tf.maximum(number, 1) + 1
        length = tf.minimum(longest, 2 * mean)
        # Empty rows are one part each.
        parts = tf.maximum((lengths + length - 1) // length, 1)
        self._number = number
        self._rows = rows = tf.repeat(tf.range(number), parts)
        before = tf.gather(tf.cumsum(parts, exclusive=True), rows)
        inside = tf.range(tf.shape(rows, out_type=starts.dtype)[0]) - before
        inside = inside[:, None] * length + tf.range(length)
        self.exists = inside < tf.gather(lengths, rows)[:, None]
        places = tf.gather(starts, rows)[:, None] + inside
        self._places = tf.where(self.exists, places, self._total)

    def lay_out(self, flat_values, default):
        """`(parts, length)` from the flat values of a ragged tensor."""
        default = tf.cast(default, flat_values.dtype)
        return tf.gather(
            tf.concat([flat_values, [default]], axis=0), self._places
        )

    def spread(self, values):
        """Values `(parts, width)` of values `(rows, width)`."""
        return tf.gather(values, self._rows)

    def join(self, sums):
        """Sums `(rows, width)` of sums `(parts, width)`."""
        return tf.math.unsorted_segment_sum(sums, self._rows, self._number)


@keras.saving.register_keras_serializable(package="keras_compembed")
@dataclasses.dataclass(frozen=True)
class Combiner(Settings):
    """Options of a layer that combines the vectors of each row of ids.

    Example:

    >>> combiner = Combiner("mean", empty_value=float("nan"))
    >>> layer = kc.CodeEmbedding(1000, 64, combiner=combiner)
    >>> layer(np.array([[4, 20, 7], [1, 1, 0]])).shape
    TensorShape([2, 64])

    Args:
        name: `"mean"`, `"sum"` or `"sqrtn"`. `"mean"` divides the weighted sum
            of vectors by the sum of the weights, `"sqrtn"` by the root of the
            sum of squared weights. Defaults to `"mean"`.
        empty_value: Number, the result of `"mean"` and `"sqrtn"` for a row
            without ids or with a total weight of 0. Use `float("nan")` for the
            result of `GlobalAveragePooling1D`. Defaults to `0.0`.

    Raises:
        ValueError: If `name` is unknown, or `empty_value` is not a number.
    """

    name: str = "mean"
    empty_value: float = 0.0

    def __post_init__(self):
        check_choice("combiner", self.name, COMBINERS)
        value = self.empty_value
        if isinstance(value, str) and value == "nan":
            value = math.nan
        require(
            isinstance(value, numbers.Real) and not isinstance(value, bool),
            "`empty_value` must be a number, or 'nan'.",
            empty_value=value,
        )
        object.__setattr__(self, "empty_value", float(value))

    def get_config(self):
        # JSON has no NaN.
        is_nan = math.isnan(self.empty_value)
        value = "nan" if is_nan else self.empty_value
        return {"name": self.name, "empty_value": value}

    def check_shapes(
        self,
        inputs: tf.Tensor,
        weights: tf.Tensor | None = None,
        mask: tf.Tensor | None = None,
    ) -> None:
        """Raises an error if the shapes do not match."""
        shape = tf.TensorShape(inputs.shape)
        require(
            shape.rank in (1, 2),
            "`inputs` must be ids of rank 1, or of rank 2 to combine the "
            "second axis.",
            shape=shape,
        )
        if weights is not None:
            received = tf.TensorShape(weights.shape)
            rank = received.rank
            require(
                rank in (1, shape.rank)
                and received.is_compatible_with(shape[:rank]),
                "`weights` must have the shape of `inputs`, or one number for "
                f"each row of `inputs`, {shape}.",
                shape=received,
            )
        if mask is not None:
            require(
                tf.TensorShape(mask.shape).is_compatible_with(shape),
                f"`mask` must have the shape of `inputs`, {shape}.",
                shape=mask.shape,
            )

    def combine(
        self,
        inputs: tf.Tensor,
        weights: tf.Tensor | None,
        mask: tf.Tensor | None,
        dtype: str,
        mask_zero: bool,
        sum_rows: Callable,
    ) -> tf.Tensor:
        """The combined vectors, with `sum_rows(ids, weights, counts)`."""
        if mask is None:
            # Keras passes masks to layers that are called with one tensor.
            mask = getattr(inputs, "_keras_mask", None)
        inputs, weights, mask = map(_as_tensor, (inputs, weights, mask))
        self.check_shapes(inputs, weights, mask)
        if inputs.shape.rank < 2:
            return sum_rows(*self._weigh_each(inputs, weights, dtype), None)
        is_ragged = isinstance(inputs, tf.RaggedTensor)
        rows = SplitRows(inputs) if is_ragged else _WHOLE_ROWS
        ids, counts = _dense_ids(inputs, rows)
        if mask_zero:
            counts = _both(counts, tf.not_equal(ids, 0))
        if mask is not None:
            mask = _dense(mask, inputs, rows, ids, "mask")
            counts = _both(counts, tf.cast(mask, tf.bool))
        if weights is not None:
            weights = _dense(weights, inputs, rows, ids, "weights")
            weights = tf.cast(weights, dtype)
        if self.name != "sum" and self.empty_value:
            ids, weights, counts = _not_without_columns(ids, weights, counts)
        weights, is_empty = self._weigh(rows, ids, weights, counts, dtype)
        sums = rows.join(sum_rows(ids, weights, counts))
        if is_empty is None:
            return sums
        return tf.where(is_empty, tf.cast(self.empty_value, sums.dtype), sums)

    def _weigh_each(self, inputs, weights, dtype):
        """Ids of rank 1, which are not combined, and their weights."""
        ids, counts = _dense_ids(inputs, None)
        ids = tf.reshape(ids, (-1, 1))
        ones = tf.ones_like(ids, dtype)
        if counts is not None:
            ones = tf.cast(tf.reshape(counts, (-1, 1)), dtype)
        if weights is not None and self.name == "sum":
            weights = _dense(weights, inputs, None, ids[:, 0], "weights")
            ones *= tf.cast(weights[:, None], dtype)
        return ids, ones

    def _weigh(self, rows, ids, weights, counts, dtype):
        """Weights of ids, and which rows are empty if that matters."""
        if weights is None and counts is None:
            length = ids.shape[1]
            if length is None:
                length = tf.shape(ids)[1]
            length = tf.cast(tf.maximum(length, 1), dtype)
            if self.name == "sum":
                value = tf.ones_like(length)
            else:
                value = 1 / (length if self.name == "mean" else tf.sqrt(length))
            return tf.fill(tf.shape(ids), value), None
        of_rows = None
        if weights is None:
            weights = tf.cast(counts, dtype)
        else:
            if weights.shape.rank == 1:
                of_rows = weights[:, None]
                weights = tf.broadcast_to(rows.spread(of_rows), tf.shape(ids))
            if counts is not None:
                weights = tf.where(counts, weights, tf.zeros_like(weights))
        if self.name == "sum":
            return weights, None
        if self.name == "sqrtn":
            tf.debugging.assert_non_negative(
                weights, "`weights` must not be negative with combiner='sqrtn'"
            )
        if of_rows is not None:
            # As in keras-rs, divide by the weight of a row once.
            divisor = of_rows
            if counts is not None:
                number = _add_up(rows, tf.cast(counts, dtype))
                divisor = tf.where(number > 0, of_rows, tf.zeros_like(of_rows))
        elif self.name == "mean":
            divisor = _add_up(rows, weights)
        else:
            divisor = _safe_sqrt(_add_up(rows, tf.square(weights)))
        if math.isnan(self.empty_value):
            # Weights that are NaN make the sums of empty rows NaN.
            return weights / rows.spread(divisor), None
        weights = tf.math.divide_no_nan(weights, rows.spread(divisor))
        return weights, tf.equal(divisor, 0) if self.empty_value else None

    def output_mask(
        self, inputs: tf.Tensor, mask: tf.Tensor | None
    ) -> tf.Tensor | None:
        """The mask of combined vectors: only rank-1 masks remain."""
        if mask is None:
            return None
        rank = len(mask.shape) if hasattr(mask, "shape") else np.ndim(mask)
        return mask if rank < len(inputs.shape) else None


def get_combiner(identifier, empty_value=0.0):
    """Returns a `Combiner` of an argument or its serialized form, or None."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if identifier is None or isinstance(identifier, Combiner):
        return identifier
    return Combiner(identifier, empty_value)


def serialize_combiner(combiner):
    """The inverse of `get_combiner`."""
    if combiner is None or combiner.empty_value == 0:
        return combiner and combiner.name
    return keras.saving.serialize_keras_object(combiner)


def _as_tensor(values):
    kinds = tf.RaggedTensor, tf.SparseTensor
    if values is None or isinstance(values, kinds):
        return values
    return tf.convert_to_tensor(values)


def _dense_ids(inputs, rows):
    """Dense integer ids, and which of them exist; None for all."""
    if inputs.dtype not in (tf.int32, tf.int64):
        inputs = tf.cast(inputs, tf.int32)
    if isinstance(inputs, tf.RaggedTensor):
        flat = inputs.flat_values
        return rows.lay_out(flat, _some_id(flat)), rows.exists
    if isinstance(inputs, tf.SparseTensor):
        inputs = tf.sparse.reorder(inputs)
        exist = tf.SparseTensor(
            inputs.indices,
            tf.ones_like(inputs.values, tf.bool),
            inputs.dense_shape,
        )
        shape = inputs.shape
        ids = tf.sparse.to_dense(inputs, _some_id(inputs.values))
        ids = tf.ensure_shape(ids, shape)
        return ids, tf.ensure_shape(tf.sparse.to_dense(exist), shape)
    return inputs, None


def _some_id(ids):
    """One of the ids, as padding that touches no other row."""
    return tf.reduce_max(tf.pad(ids, [[0, 1]]))


def _dense(values, inputs, rows, ids, name):
    """Weights or mask of ids as a dense tensor."""
    is_ragged = isinstance(values, tf.RaggedTensor)
    require(
        values.shape.rank != 2
        or is_ragged == isinstance(inputs, tf.RaggedTensor),
        f"`{name}` of rank 2 must be ragged if and only if `inputs` are.",
        inputs=type(inputs).__name__,
    )
    if is_ragged:
        same_rows = tf.debugging.assert_equal(
            values.row_splits,
            tf.cast(inputs.row_splits, values.row_splits.dtype),
            f"`{name}` must have the row lengths of `inputs`.",
        )
        with tf.control_dependencies([same_rows]):
            return rows.lay_out(tf.identity(values.flat_values), 0)
    if isinstance(values, tf.SparseTensor):
        values = tf.sparse.to_dense(tf.sparse.reorder(values))
    rank = values.shape.rank
    shape = tf.shape(ids)[:rank]
    if isinstance(inputs, tf.RaggedTensor):
        shape = tf.cast(inputs.nrows(), tf.int32)[None]
    same_shape = tf.debugging.assert_equal(
        tf.shape(values),
        shape,
        f"`{name}` must have the shape of `inputs`.",
    )
    with tf.control_dependencies([same_shape]):
        return tf.ensure_shape(tf.identity(values), inputs.shape[:rank])


def _add_up(rows, values):
    """Sums `(rows, 1)` of values in the layout of ids."""
    return rows.join(tf.reduce_sum(values, axis=1, keepdims=True))


def _both(first, second):
    return second if first is None else first & second


def _not_without_columns(ids, weights, counts):
    """Adds a padding id if there are no columns."""
    if ids.shape[1]:
        return ids, weights, counts
    missing = tf.cast(tf.equal(tf.shape(ids)[1], 0), tf.int32)
    if counts is None:
        counts = tf.ones_like(ids, tf.bool)
    paddings = tf.convert_to_tensor([[0, 0], [0, missing]])
    # LiteRT pads booleans from version 2.20 on.
    counts = tf.cast(tf.pad(tf.cast(counts, tf.int32), paddings), tf.bool)
    ids = tf.pad(ids, paddings)
    if weights is not None and weights.shape.rank == 2:
        weights = tf.pad(weights, paddings)
    return ids, weights, counts


def _safe_sqrt(values):
    """Square root with a gradient of 0 at 0."""
    positive = values > 0
    root = tf.sqrt(tf.where(positive, values, tf.ones_like(values)))
    return tf.where(positive, root, tf.zeros_like(root))


@keras.saving.register_keras_serializable(package="keras_compembed")
@dataclasses.dataclass(frozen=True)
class Reverse(Settings):
    """Options of calls with `reverse=True`, as in `ReversibleEmbedding`.

    With these options, the layer sets the mask of ids on vectors within the
    call, as `keras.layers.ReversibleEmbedding` does.

    Example:

    >>> layer = kc.CodeEmbedding(1000, 64, reverse=Reverse(logit_soft_cap=30))
    >>> hidden = layer(np.array([[4, 20, 7]]))
    >>> layer(hidden, reverse=True).shape
    TensorShape([1, 3, 1000])

    Args:
        tie_weights: Boolean. Whether logits use the table of the lookup.
            Otherwise the layer has a second table of the same kind,
            `reverse_embedding`. Defaults to `True`.
        dtype: Optional float dtype, in which logits are computed and returned.
            Defaults to `None`: computed in the variable dtype, and returned in
            the dtype of a product of vectors and weights.
        logit_soft_cap: Optional positive number. Logits become
            `tanh(logits / logit_soft_cap) * logit_soft_cap`. Defaults to
            `None`: no cap.

    Raises:
        ValueError: If an argument is invalid.

    References:
        - [Press & Wolf, 2017](https://arxiv.org/abs/1608.05859)
    """

    tie_weights: bool = True
    dtype: str | None = None
    logit_soft_cap: float | None = None

    def __post_init__(self):
        check_boolean("tie_weights", self.tie_weights)
        if self.dtype is not None:
            name = keras.backend.standardize_dtype(self.dtype)
            require(
                keras.backend.is_float_dtype(name),
                "`dtype` of logits must be None or a floating dtype.",
                dtype=self.dtype,
            )
            object.__setattr__(self, "dtype", name)
        if self.logit_soft_cap is not None:
            check_positive_number("logit_soft_cap", self.logit_soft_cap)

    def cap(self, logits: tf.Tensor) -> tf.Tensor:
        """Logits with the soft cap applied."""
        cap = self.logit_soft_cap
        return logits if cap is None else tf.tanh(logits / cap) * cap


def get_reverse(identifier):
    """Returns a `Reverse` of an argument or its serialized form, or None."""
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    require(
        identifier is None or isinstance(identifier, Reverse),
        "`reverse` must be None or a `keras_compembed.Reverse`.",
        reverse=identifier,
    )
    return identifier


def check_reverse_table(table, reverse_table, arguments):
    """Checks `reverse` for a layer that is made from one or two tables."""
    reverse = get_reverse(arguments.get("reverse"))
    if reverse_table is None:
        require(
            reverse is None or reverse.tie_weights,
            "`reverse_table` must be given if weights are not tied.",
            reverse=reverse,
        )
        return
    require(
        reverse is None or not reverse.tie_weights,
        "`reverse_table` must be None if weights are tied.",
        reverse=reverse,
    )
    shape = check_table(reverse_table, "reverse_table").shape
    require(
        shape == table.shape,
        f"`reverse_table` must have the shape of `table`, {table.shape}.",
        shape=shape,
    )
    arguments["reverse"] = reverse or Reverse(tie_weights=False)
