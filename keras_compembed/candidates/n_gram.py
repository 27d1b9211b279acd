"""Candidates looked up by a context, such as the word before."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.candidates.follower_counts import most_frequent
from keras_compembed.candidates.follower_counts import most_frequent_followers
from keras_compembed.candidates.selector import Selector
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.utils.packed_arrays import pack_array
from keras_compembed.utils.packed_arrays import unpack_array
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class NGram(Selector):
    """Looks candidates up by a context, such as the word before.

    What Han et al. suggest for language models (section 5). Nothing is
    scored, so that this is the fastest of all selectors.

    The layer is called with the context, an integer for each example:
    `head(features, context=ids)`. Contexts that the table does not have, such
    as -1, get the candidates of `fallback`; so do all without a context.
    Prediction scores all classes.

    Example:

    >>> text = np.random.default_rng(0).integers(1000, size=(100, 50))
    >>> selector = NGram.from_text(text, num_classes=1000)
    >>> head = kc.CANESoftmax(num_classes=1000, selector=selector)
    >>> ids = keras.Input((49,), dtype="int32")
    >>> features = keras.layers.Embedding(1000, 16)(ids)
    >>> outputs = head(features, context=ids)

    Args:
        table: Integer array `(num_contexts, best)`: classes for each context,
            the most probable first, which differ within a row; -1 where there
            are no more.
        fallback: Optional integer array `(best,)`, classes for contexts that
            are not known. Defaults to `None`, no candidates.
        **kwargs: `name` of `keras.layers.Layer`.

    Raises:
        ValueError: if `table` is not a matrix of integers of at least -1, a
            class comes twice in a row, or `fallback` is not as one row of it;
            by `attach`, if there are classes of `num_classes` or above, or
            fewer than `num_candidates` columns.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), section 5
    """

    def __init__(self, table, fallback=None, **kwargs):
        super().__init__(**kwargs)
        # Its last row is the fallback.
        self._table = _check_table(table, fallback)

    @classmethod
    def from_text(cls, ids, num_classes, num_best=100, order=2, **kwargs):
        """Counts what follows each class in a text.

        Classes that follow come first, by how often they do; then the most
        frequent of all classes, which are also the fallback.

        Args:
            ids: Integer array `(tokens,)` or `(sequences, tokens)`, below
                `num_classes`: a text that the model is trained on. Negative
                ones, as padding, count as nothing, and nothing follows them.
            num_classes: Integer.
            num_best: Integer, classes to keep for each context: at least
                `num_candidates` of the layer. The table takes
                `4 * num_classes * num_best` bytes. Defaults to `100`.
            order: `2`, for the class before as the context, or `1`, for the
                most frequent classes in all contexts. Defaults to `2`.
            **kwargs: `name` of `keras.layers.Layer`.

        Raises:
            ValueError: if `ids` are not such an array, or a number is out of
                range.
        """
        check_positive_int("num_classes", num_classes, maximum=2**31 - 1)
        check_positive_int("num_best", num_best)
        check_choice("order", order, (1, 2))
        ids = np.asarray(ids)
        if ids.ndim not in (1, 2) or ids.dtype.kind not in "iu":
            raise ValueError(
                "`ids` must be an integer array (tokens,) or (sequences, "
                f"tokens). Received: an array of shape {ids.shape} and dtype "
                f"{ids.dtype}."
            )
        if ids.size and ids.max() >= num_classes:
            raise ValueError(
                f"`ids` must be below num_classes={num_classes}. "
                f"Received: ids of up to {ids.max()}."
            )
        number = min(num_best, num_classes)
        frequent = most_frequent(ids, num_classes, number)
        table = np.zeros((0, number), "int32")
        if order == 2:
            table = most_frequent_followers(ids, num_classes, frequent)
        return cls(table, frequent, **kwargs)

    def attach(self, num_classes, num_candidates):
        if self._table.max() >= num_classes:
            raise ValueError(
                "`table` and `fallback` must hold classes below "
                f"num_classes={num_classes}. "
                f"Received: classes of up to {self._table.max()}."
            )
        if self._table.shape[1] < num_candidates:
            raise ValueError(
                "`table` must have a column for each candidate, "
                f"num_candidates={num_candidates}. "
                f"Received: {self._table.shape[1]} columns."
            )
        super().attach(num_classes, num_candidates)

    def build(self, input_shape=None):
        if self.built:
            return
        self.table = self.add_weight(
            name="table",
            shape=self._table.shape,
            dtype="int32",
            initializer=lambda shape, dtype: self._table,
            trainable=False,
        )
        self.built = True

    def select(self, scores, features, context=None):
        last = len(self._table) - 1
        if context is None:
            rows = tf.constant([last])
        else:
            context = tf.cast(context, "int32")
            known = (context >= 0) & (context < last)
            rows = tf.where(known, context, last)
        candidates = gather_rows(self.table, rows)[:, : self.num_candidates]
        return candidates[0] if context is None else candidates

    def get_config(self):
        return {
            **super().get_config(),
            "table": pack_array(self._table[:-1]),
            "fallback": pack_array(self._table[-1]),
        }

    @classmethod
    def from_config(cls, config):
        parts = {
            name: unpack_array(config[name]) for name in ("table", "fallback")
        }
        return cls(**{**config, **parts})


def _check_table(table, fallback):
    """The table with the fallback as its last row, as int32."""
    table = np.asarray(table)
    if table.ndim != 2 or not table.shape[1] or table.dtype.kind not in "iu":
        raise ValueError(
            "`table` must be an integer array (num_contexts, best). Received: "
            f"an array of shape {table.shape} and dtype {table.dtype}."
        )
    if fallback is None:
        fallback = np.full(table.shape[1], -1)
    fallback = np.asarray(fallback)
    if fallback.shape != table.shape[1:] or fallback.dtype.kind not in "iu":
        raise ValueError(
            "`fallback` must be an integer array as wide as `table`, "
            f"({table.shape[1]},). Received: an array of shape "
            f"{fallback.shape} and dtype {fallback.dtype}."
        )
    table = np.concatenate([table, fallback[None]])
    if table.min() < -1 or table.max() >= 2**31:
        raise ValueError(
            "`table` and `fallback` must hold classes, or -1. Received: "
            f"numbers from {table.min()} to {table.max()}."
        )
    table = table.astype("int32")
    ordered = np.sort(table, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        row = int(np.argmax(twice.any(axis=1)))
        name = "fallback" if row == len(table) - 1 else f"row {row} of `table`"
        raise ValueError(
            "`table` and `fallback` must hold each class once in a row. "
            f"Received: a class twice in {name}."
        )
    return table
