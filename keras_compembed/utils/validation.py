"""Checks of arguments, with messages in Keras's style."""

import numbers
import re
import warnings
from collections.abc import Mapping
from collections.abc import Set

import numpy as np

from keras_compembed.utils.table_shards import TableShards

MAX_CODEBOOK_SIZE = 65536
_CHUNK_ELEMENTS = 1 << 22
# Squares of larger and smaller numbers, and sums of them, are out of reach of
# float32.
_LARGEST, _SMALLEST = 1e12, 1e-12
# A row that is longer than most by more than this takes float32's digits from
# the others: with 1e4, they come out worse than zeros.
_UNEVEN = 1e3


def require(condition, rule, **received):
    """Raises a ValueError that gives the rule and what was received."""
    if not condition:
        values = ", ".join(
            f"{name}={value!r}" for name, value in received.items()
        )
        raise ValueError(f"{rule} Received: {values}.")


def check_positive_int(name, value, minimum=1, maximum=None):
    """Returns `value` as an `int`, or raises if it is out of range."""
    if (
        not isinstance(value, numbers.Integral)
        or isinstance(value, bool)
        or value < minimum
        or (maximum is not None and value > maximum)
    ):
        if maximum is not None:
            rule = f"an integer from {minimum} to {maximum}"
        elif minimum == 1:
            rule = "a positive integer"
        else:
            rule = f"an integer of at least {minimum}"
        raise ValueError(
            f"`{name}` must be {rule}. "
            f"Received: {name}={value!r} (of type {type(value).__name__})."
        )
    return int(value)


def check_code_shape(num_codebooks, codebook_size):
    """Returns both as integers, or raises if no code has that shape."""
    return (
        check_positive_int("num_codebooks", num_codebooks),
        check_positive_int(
            "codebook_size", codebook_size, 2, MAX_CODEBOOK_SIZE
        ),
    )


def check_version(name, text):
    """Returns `"2.17"` as `(2, 17, 0)`, or raises if it is no version."""
    if not isinstance(text, str) or not re.fullmatch(
        r"[0-9]+(\.[0-9]+){1,2}", text
    ):
        raise ValueError(
            f"`{name}` must be a version such as '2.17'. "
            f"Received: {name}={text!r}."
        )
    return (*map(int, text.split(".")), 0)[:3]


def check_positive_number(name, value, zero=False):
    """Returns `value` as a `float`, or raises if it is not above zero."""
    if (
        not isinstance(value, numbers.Real)
        or isinstance(value, bool)
        or not np.isfinite(value)
        or value < 0
        or (value == 0 and not zero)
    ):
        rule = "a number of at least 0" if zero else "a positive number"
        raise ValueError(
            f"`{name}` must be {rule}. Received: {name}={value!r}."
        )
    return float(value)


def check_sparsity(name, value):
    """Returns a share of zeros as a `float`, or raises if it is none."""
    if (
        not isinstance(value, numbers.Real)
        or isinstance(value, bool)
        or not 0 <= value < 1
    ):
        raise ValueError(
            f"`{name}` must be a number from 0 to below 1. "
            f"Received: {name}={value!r}."
        )
    return float(value)


def check_seed(seed):
    """Returns a seed as an `int`, or None, or raises if it is neither."""
    if seed is None:
        return None
    if (
        not isinstance(seed, numbers.Integral)
        or isinstance(seed, bool)
        or seed < 0
    ):
        raise ValueError(
            "`seed` must be None or an integer of at least 0. "
            f"Received: seed={seed!r} (of type {type(seed).__name__})."
        )
    return int(seed)


def check_label(name, value):
    """Returns `value`, or raises if it is neither None nor an integer."""
    is_boolean = isinstance(value, bool)
    if value is not None and (
        is_boolean or not isinstance(value, numbers.Integral)
    ):
        raise ValueError(
            f"`{name}` must be None or an integer. "
            f"Received: {name}={value!r} (of type {type(value).__name__})."
        )
    return value if value is None else int(value)


def check_order(name, items):
    """Returns a list, or raises if items have no order that rows could have."""
    if isinstance(items, Mapping | Set):
        hint = ""
        if isinstance(items, Mapping):
            hint = (
                " If it holds the rows of its keys, pass "
                f"`sorted({name}, key={name}.get)`."
            )
        raise ValueError(
            f"`{name}` must be a list, in the order of the rows. "
            f"Received: an object of type {type(items).__name__}.{hint}"
        )
    return list(items)


def check_boolean(name, value):
    """Returns `value` as a `bool`, or raises if it is none."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(
            f"`{name}` must be True or False. Received: {name}={value!r} "
            f"(of type {type(value).__name__})."
        )
    return bool(value)


def check_new_rows(vectors, width, name="vectors"):
    """Returns vectors of new ids, or raises if they are none."""
    if np.ndim(vectors) == 2 and not len(vectors):
        raise ValueError(
            f"`{name}` must have a row for each new id. Received: an array "
            f"of shape {np.shape(vectors)}."
        )
    return check_table(vectors, name, width)


def check_choice(name, value, choices):
    """Returns that of `choices` which is `value`, or raises if none is."""
    # A float equals integers, and an array is compared number by number.
    if isinstance(value, (str, int, np.integer, type(None))):
        for choice in choices:
            if value == choice:
                return choice
    allowed = ", ".join(repr(choice) for choice in choices)
    raise ValueError(
        f"`{name}` must be one of {allowed}. Received: {name}={value!r}."
    )


def check_table(table, name="table", width=None, shards=False):
    """Checks a matrix of vectors without copying it."""
    kinds = (np.ndarray, TableShards) if shards else np.ndarray
    if not isinstance(table, kinds):
        table = _as_array(name, table)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(
            f"`{name}` must have two axes, (rows, columns), neither of them "
            f"empty. Received: an array of shape {table.shape}."
        )
    if table.dtype.kind not in "fiub" and table.dtype.name != "bfloat16":
        raise ValueError(
            f"`{name}` must hold real numbers. "
            f"Received: an array of dtype {table.dtype}."
        )
    if width is not None and table.shape[1] != width:
        raise ValueError(
            f"`{name}` must have {width} columns. "
            f"Received: an array of shape {table.shape}."
        )
    for start, chunk in float_chunks(table):
        bad = ~np.isfinite(chunk).all(axis=1)
        if bad.any():
            row = start + int(np.argmax(bad))
            raise ValueError(
                f"`{name}` must be finite in float32. "
                f"Received: NaN or infinity in row {row} "
                f"(and {int(bad.sum()) - 1} more rows near it)."
            )
    return table


def check_fitted_table(
    table, width=None, smallest=_SMALLEST, shards=False, warn=True
):
    """Returns a table, or raises if nothing can be fitted to it."""
    table = check_table(table, width=width, shards=shards)
    rows = max(1, _CHUNK_ELEMENTS // table.shape[1])
    largest = 0.0
    sizes = np.zeros(len(table), "float32")
    for start in range(0, len(table), rows):
        part = np.asarray(table[start : start + rows])
        found = np.maximum(
            part.max(axis=1).astype("float64"),
            -part.min(axis=1).astype("float64"),
        )
        largest = max(largest, float(found.max()))
        with np.errstate(over="ignore"):
            sizes[start : start + rows] = found
    if largest > _LARGEST or 0 < largest < smallest:
        raise ValueError(
            "`table` must have numbers whose squares float32 can hold: the "
            f"largest from {_SMALLEST:g} to {_LARGEST:g}. Received: a table "
            f"whose largest is {largest:g}. Multiply the table by a constant."
        )
    if warn:
        _warn_if_uneven(sizes)
    return table


def _warn_if_uneven(sizes):
    """Warns where one row outweighs all others."""
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return
    half = np.median(sizes)
    if sizes.max() > _UNEVEN * half:
        warnings.warn(
            f"The largest number of `table` is {sizes.max():g}, while half of "
            f"its rows have none above {half:g}. What is fitted to squared "
            "errors fits the longest row, and can lose the others. Leave it "
            "out, or make it shorter.",
            stacklevel=4,
        )


def _as_array(name, value):
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"`{name}` must be an array. "
            f"Received: {type(value).__name__} ({error})."
        ) from error


def float_chunks(table, rows=None):
    """Yields `(start, float32 rows)` over a table, a bounded part at a time."""
    rows = rows or max(1, _CHUNK_ELEMENTS // table.shape[1])
    for start in range(0, table.shape[0], rows):
        with np.errstate(over="ignore"):
            yield (
                start,
                np.asarray(table[start : start + rows], "float32", order="C"),
            )


def check_sample_weight(sample_weight, num_rows):
    """Returns `sample_weight` as float32 of mean 1, or None."""
    if sample_weight is None:
        return None
    weight = _as_array("sample_weight", sample_weight)
    if weight.dtype.kind not in "fiub":
        raise ValueError(
            "`sample_weight` must hold real numbers. "
            f"Received: an array of dtype {weight.dtype}."
        )
    weight = weight.astype("float64")
    if weight.shape != (num_rows,):
        raise ValueError(
            "`sample_weight` must hold one number for each row of the table, "
            f"shape ({num_rows},). Received: an array of shape {weight.shape}."
        )
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError(
            "`sample_weight` must be finite and not negative. Received: "
            f"values from {np.min(weight)} to {np.max(weight)}."
        )
    if not weight.any():
        raise ValueError(
            "`sample_weight` must not be zero for every row. Received: "
            "all zeros."
        )
    return (weight / weight.mean()).astype("float32")


def check_scores(name, scores):
    """Returns finite numbers of at least 0, one per id, as float64."""
    scores = np.asarray(scores)
    if scores.ndim != 1 or not scores.size or scores.dtype.kind not in "fiub":
        raise ValueError(
            f"`{name}` must hold one number for each id. "
            f"Received: an array of shape {scores.shape} and dtype "
            f"{scores.dtype}."
        )
    scores = scores.astype("float64")
    if not np.isfinite(scores).all() or (scores < 0).any():
        raise ValueError(
            f"`{name}` must be finite and not negative. Received: values "
            f"from {scores.min()} to {scores.max()}."
        )
    return scores


def check_class_counts(class_counts, num_classes):
    """Returns positive counts, one for each class, or None."""
    if class_counts is None:
        return None
    class_counts = check_scores("class_counts", class_counts)
    if len(class_counts) != num_classes:
        raise ValueError(
            "`class_counts` must have one entry for each class, "
            f"num_classes={num_classes}. Received: {len(class_counts)} of them."
        )
    # What was never counted may still come.
    return np.maximum(class_counts, 0.5)
