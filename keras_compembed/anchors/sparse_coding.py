"""Anchors and sparse transforms fitted to a table."""

import keras
import numpy as np

from keras_compembed.anchors.anchor_initializer import check_num_anchors
from keras_compembed.anchors.pursuit import least_squares
from keras_compembed.anchors.pursuit import pursue
from keras_compembed.anchors.pursuit import pursue_non_negative
from keras_compembed.anchors.sparse_transform import SparseTransform
from keras_compembed.anchors.sparse_transform import column_dtype
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import float_chunks

# Products of rows with anchors to compute at a time.
_PART = 1 << 18
# Keeps anchors with hardly any rows close to their previous values.
_RIDGE = 1e-6


def sparse_code(
    table,
    anchors,
    max_nonzeros,
    non_negative=True,
    total_nonzeros=None,
    sample_weight=None,
):
    """Finds a sparse T such that T times the anchors is close to a table."""
    table = check_fitted_table(table, smallest=0, shards=True, warn=False)
    anchors = check_table(anchors, "anchors", table.shape[1])
    budget = _Budget(table, max_nonzeros, total_nonzeros, sample_weight)
    return _code(table, anchors, budget, non_negative)[0]


def learn_dictionary(
    table,
    num_anchors,
    max_nonzeros,
    non_negative=True,
    iterations=10,
    sample_weight=None,
    seed=None,
    verbose=1,
    total_nonzeros=None,
):
    """Learns anchors and a sparse T with a product close to a table."""
    table = check_fitted_table(table, shards=True)
    check_num_anchors(num_anchors, len(table))
    budget = _Budget(table, max_nonzeros, total_nonzeros, sample_weight)
    iterations = check_positive_int("iterations", iterations, minimum=0)
    rng = np.random.default_rng(check_seed(seed))
    rows = rng.choice(len(table), num_anchors, replace=False)
    anchors = _of_length_1(table[rows])
    bar = keras.utils.Progbar(
        iterations + 1, verbose=verbose, stateful_metrics=["loss"]
    )
    lowest = best = None
    try:
        for done in range(iterations + 1):
            transform, squares = _code(table, anchors, budget, non_negative)
            squares *= budget.weight
            loss = float(squares.mean(dtype="float64"))
            if best is None or loss < lowest:
                lowest, best = loss, (transform, anchors)
            if done < iterations:
                anchors = _fit_anchors(table, transform, anchors, budget.weight)
                used = np.bincount(transform.columns, minlength=num_anchors)
                unused = np.flatnonzero(used == 0)
                if len(unused):
                    # Move them to the rows with the largest errors.
                    rows = np.argsort(-squares, kind="stable")[: len(unused)]
                    anchors[unused] = _of_length_1(table[np.sort(rows)])
            bar.update(done + 1, [("loss", loss)])
    except KeyboardInterrupt:
        if best is None:
            raise
        print("\nInterrupted. Keeping the best anchors so far.")
    return best


class _Budget:
    """Limits of the number of non-zeros."""

    def __init__(self, table, of_row, total, sample_weight):
        check_positive_int("total_nonzeros", total, optional=True)
        weight = check_sample_weight(sample_weight, len(table))
        if weight is None:
            weight = np.ones(len(table), "float32")
        self.of_row, self.total, self.weight = of_row, total, weight

    def gains(self, explained, start):
        """The error decrease of each entry of rows, from row `start`."""
        gains = np.diff(explained, axis=1, prepend=np.float32(0))
        # An entry gains no more than the entries before it, as it needs them.
        gains = np.minimum.accumulate(gains, axis=1)
        return gains * self.weight[start : start + len(gains), None]

    def share(self, explained):
        """Non-zeros of each row, shared out by the largest gains."""
        gains = self.gains(explained, 0)
        if self.total >= gains.size:
            return np.count_nonzero(gains > 0, axis=1)
        order = np.argsort(-gains, axis=None, kind="stable")[: self.total]
        order = order[gains.ravel()[order] > 0]
        return np.bincount(order // gains.shape[1], minlength=len(gains))


def _code(table, anchors, budget, non_negative):
    """A `SparseTransform` and the squared error of each row."""
    units = _Units(anchors, non_negative)
    limits = known = None
    if budget.total is not None:
        explained, known = _explained(table, units, budget)
        limits = budget.share(explained)
    columns, values, in_row, squares = [], [], [], []
    for start, chunk in float_chunks(table, units.rows_at_a_time):
        most, width = None, budget.of_row
        if limits is not None:
            most = limits[start : start + len(chunk)]
            width = max(1, most.max())
        if known is None:
            found, weights, _ = units.pursue(chunk, width, most)
        else:
            found = known[start : start + len(chunk), :width]
            weights = units.fit(chunk, found, most)
        order = np.argsort(found, axis=1)
        found = np.take_along_axis(found, order, 1)
        weights = np.take_along_axis(weights, order, 1)
        kept = weights != 0
        in_row.append(kept.sum(axis=1))
        columns.append(found[kept].astype(column_dtype(len(anchors))))
        values.append(weights[kept])
        for place in range(found.shape[1]):
            part = units.anchors[found[:, place]]
            chunk = chunk - part * weights[:, place, None]
        squares.append(np.einsum("ij,ij->i", chunk, chunk))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(in_row))])
    transform = SparseTransform(
        offsets.astype("int64"),
        np.concatenate(columns),
        np.concatenate(values),
        len(anchors),
    )
    return transform, np.concatenate(squares)


def _explained(table, units, budget):
    """The error decrease by entries of rows, at least the best `total`."""
    explained, columns, best = [], [], np.zeros(0, "float32")
    for start, chunk in float_chunks(table, units.rows_at_a_time):
        least = None
        # Gains decrease within a row. Below the best `total` so far, further
        # entries of the row cannot be among the best.
        if not units.non_negative and len(best) == budget.total:
            weights = budget.weight[start : start + len(chunk)]
            with np.errstate(divide="ignore", invalid="ignore"):
                least = np.where(weights > 0, best.min() / weights, np.inf)
        found, _, part = units.pursue(chunk, budget.of_row, least=least)
        explained.append(part)
        if not units.non_negative:
            columns.append(found.astype(column_dtype(len(units.anchors))))
        best = np.concatenate([best, budget.gains(part, start).ravel()])
        if len(best) > budget.total:
            best = -np.partition(-best, budget.total - 1)[: budget.total]
    return (
        np.concatenate(explained),
        np.concatenate(columns) if columns else None,
    )


class _Units:
    """Anchors scaled to length 1, for the pursuit."""

    def __init__(self, anchors, non_negative):
        self.anchors = anchors.astype("float32")
        anchors = anchors.astype("float64")
        lengths = np.linalg.norm(anchors, axis=1)
        # No row agrees with a zero anchor, so any length will do.
        lengths[lengths == 0] = 1
        units = anchors / lengths[:, None]
        self._gram = units @ units.T
        self._units = units.T.astype("float32")
        self._lengths = lengths
        self.non_negative = non_negative
        self.rows_at_a_time = max(1, _PART // len(anchors))

    def pursue(self, rows, max_nonzeros, limits=None, least=None):
        """Anchors of rows, float32 weights, and the error decrease."""
        arguments = (
            rows @ self._units,
            np.linalg.norm(rows, axis=1),
            self._gram,
            max_nonzeros,
        )
        if self.non_negative:
            found, weights, explained = pursue_non_negative(*arguments, limits)
        else:
            found, weights, explained = pursue(*arguments, least)
        return found, self._of_anchors(found, weights), explained

    def fit(self, rows, known, counts):
        """Weights of the first anchors of each row."""
        used = np.arange(known.shape[1]) < counts[:, None]
        goal = used * np.take_along_axis(rows @ self._units, known, axis=1)
        weights = least_squares(self._gram, known, used, goal)
        return self._of_anchors(known, weights)

    def _of_anchors(self, found, weights):
        return (weights / self._lengths[found]).astype("float32")


def _fit_anchors(table, transform, anchors, weight):
    """Fits anchors by least squares, starting from the current ones."""
    gram = np.zeros((len(anchors), len(anchors)))
    products = np.zeros(anchors.shape)
    rows = max(1, _PART // max(anchors.shape))
    for start, chunk in float_chunks(table, rows):
        part = transform.dense_rows(start, start + rows)
        weighted = part * weight[start : start + len(part), None]
        gram += weighted.T @ part
        products += weighted.T @ chunk
    ridge = _RIDGE * max(np.trace(gram) / len(gram), np.finfo("float32").tiny)
    products += ridge * anchors
    gram[np.diag_indices_from(gram)] += ridge
    return _of_length_1(np.linalg.solve(gram, products))


def _of_length_1(rows):
    rows = np.asarray(rows, "float64")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths == 0, 1, lengths)).astype("float32")
