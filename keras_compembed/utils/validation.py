"""Argument checks with messages in Keras's style."""

import numbers
import re
import warnings
from collections.abc import Mapping
from collections.abc import Set

import numpy as np

MAX_CODEBOOK_SIZE = 65536
_CHUNK_ELEMENTS = 1 << 22
# Beyond these, float32 cannot hold squares and their sums.
_LARGEST, _SMALLEST = 1e12, 1e-12
# A row longer than most by more than this factor costs the others float32
# precision: at 1e4, they become worse than zeros.
_UNEVEN = 1e3


def require(condition, rule, **received):
    """Raises a ValueError with the rule and the received values."""
    if not condition:
        # Cut long lists; print arrays in one line.
        values = ", ".join(
            f"{key}={' '.join(repr(x)[:1000].split())}"
            for key, x in received.items()
        )
        raise ValueError(f"{rule} Received: {values}.")


def check_positive_int(name, value, minimum=1, maximum=None, optional=False):
    """Returns `value` as an `int`, or raises if it is out of range."""
    if optional and value is None:
        return None
    if maximum is not None:
        rule = f"an integer from {minimum} to {maximum}"
    elif minimum == 1:
        rule = "a positive integer"
    else:
        rule = f"an integer of at least {minimum}"
    require(
        _is_a(numbers.Integral, value)
        and minimum <= value <= (value if maximum is None else maximum),
        f"`{name}` must be {rule}.",
        **{name: value},
    )
    return int(value)


def check_code_shape(num_codebooks, codebook_size):
    """Returns both as integers, or raises if out of range."""
    return (
        check_positive_int("num_codebooks", num_codebooks),
        check_positive_int(
            "codebook_size", codebook_size, 2, MAX_CODEBOOK_SIZE
        ),
    )


def check_version(name, text):
    """Returns `"2.17"` as `(2, 17, 0)`, or raises."""
    require(
        isinstance(text, str) and re.fullmatch(r"[0-9]+(\.[0-9]+){1,2}", text),
        f"`{name}` must be a version such as '2.17'.",
        **{name: text},
    )
    return (*map(int, text.split(".")), 0)[:3]


def check_positive_number(name, value, zero=False):
    """Returns `value` as a `float`, or raises if it is not above zero."""
    rule = "a number of at least 0" if zero else "a positive number"
    require(
        _is_a(numbers.Real, value)
        and np.isfinite(value)
        and (value > 0 or (zero and value == 0)),
        f"`{name}` must be {rule}.",
        **{name: value},
    )
    return float(value)


def check_sparsity(name, value):
    """Returns a share of zeros as a `float`, or raises."""
    require(
        _is_a(numbers.Real, value) and 0 <= value < 1,
        f"`{name}` must be a number from 0 to below 1.",
        **{name: value},
    )
    return float(value)


def check_seed(seed):
    """Returns a seed as an `int` or None, or raises."""
    require(
        seed is None or (_is_a(numbers.Integral, seed) and seed >= 0),
        "`seed` must be None or an integer of at least 0.",
        seed=seed,
    )
    return None if seed is None else int(seed)


def check_label(name, value):
    """Returns `value`, or raises unless it is None or an integer."""
    require(
        value is None or _is_a(numbers.Integral, value),
        f"`{name}` must be None or an integer.",
        **{name: value},
    )
    return None if value is None else int(value)


def _is_a(kind, value):
    """Whether a value is a number of a kind, and no boolean."""
    return isinstance(value, kind) and not isinstance(value, bool)


def check_order(name, items):
    """Returns a list, or raises if items have no order."""
    if isinstance(items, Mapping | Set):
        hint = ""
        if isinstance(items, Mapping):
            hint = (
                " If its values are row numbers, pass "
                f"`sorted({name}, key={name}.get)`."
            )
        raise ValueError(
            f"`{name}` must be a list, in the order of the rows. "
            f"Received: an object of type {type(items).__name__}.{hint}"
        )
    return list(items)


def check_boolean(name, value):
    """Returns `value` as a `bool`, or raises."""
    require(
        isinstance(value, bool | np.bool_),
        f"`{name}` must be True or False.",
        **{name: value},
    )
    return bool(value)


def check_new_rows(vectors, width, name="vectors"):
    """Returns vectors of new ids, or raises."""
    require(
        np.ndim(vectors) != 2 or len(vectors),
        f"`{name}` must have a row for each new id.",
        shape=np.shape(vectors),
    )
    return check_table(vectors, name, width)


def check_choice(name, value, choices):
    """Returns the item of `choices` equal to `value`, or raises."""
    # Floats equal integers, and arrays compare by element.
    is_word = isinstance(value, (str, int, np.integer, type(None)))
    found = [each for each in choices if is_word and value == each]
    allowed = ", ".join(map(repr, choices))
    require(found, f"`{name}` must be one of {allowed}.", **{name: value})
    return found[0]


def check_table(table, name="table", width=None, shards=False):
    """Checks a table without copying it."""
    if shards and isinstance(table, list) and table:
        if all(isinstance(x, np.ndarray) and x.ndim == 2 for x in table):
            table = TableShards(table)
    kinds = (np.ndarray, TableShards) if shards else np.ndarray
    if not isinstance(table, kinds):
        table = _as_array(name, table)
    require(
        table.ndim == 2 and 0 not in table.shape,
        f"`{name}` must have two non-empty axes, (rows, columns).",
        shape=table.shape,
    )
    require(
        table.dtype.kind in "fiub" or table.dtype.name == "bfloat16",
        f"`{name}` must hold real numbers.",
        dtype=str(table.dtype),
    )
    require(
        width in (None, table.shape[1]),
        f"`{name}` must have {width} columns.",
        shape=table.shape,
    )
    for start, chunk in float_chunks(table):
        bad = ~np.isfinite(chunk).all(axis=1)
        if bad.any():
            raise ValueError(
                f"`{name}` must be finite in float32. Received: NaN or "
                f"infinity in row {start + int(np.argmax(bad))} "
                f"(and {int(bad.sum()) - 1} more rows near it)."
            )
    return table


def check_fitted_table(
    table, width=None, smallest=_SMALLEST, shards=False, warn=True
):
    """Returns a table, or raises if float32 cannot fit it."""
    table = check_table(table, width=width, shards=shards)
    rows = max(1, _CHUNK_ELEMENTS // table.shape[1])
    sizes = np.zeros(len(table))
    for start in range(0, len(table), rows):
        part = np.asarray(table[start : start + rows])
        sizes[start : start + rows] = np.maximum(
            part.max(axis=1).astype("float64"),
            -part.min(axis=1).astype("float64"),
        )
    largest = sizes.max()
    if largest > _LARGEST or 0 < largest < smallest:
        raise ValueError(
            f"The largest entry of `table` must be from {_SMALLEST:g} to "
            f"{_LARGEST:g}, for squares in float32. Received: a table with the "
            f"largest entry {largest:g}. Multiply the table by a constant."
        )
    half = np.median(sizes[sizes > 0]) if warn and largest else largest
    if largest > _UNEVEN * half:
        warnings.warn(
            f"The largest entry of `table` is {largest:g}, but half of its "
            f"rows have none above {half:g}. Squared error favors the longest "
            "row, and the others may be lost. Leave the longest row out, or "
            "scale it down.",
            stacklevel=3,
        )
    return table


def _as_array(name, value):
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"`{name}` must be an array. "
            f"Received: {type(value).__name__} ({error})."
        ) from error


def float_chunks(table, rows=None):
    """Yields `(start, float32 rows)` of a table, in bounded parts."""
    rows = rows or max(1, _CHUNK_ELEMENTS // table.shape[1])
    for start in range(0, table.shape[0], rows):
        with np.errstate(over="ignore"):
            yield (
                start,
                np.asarray(table[start : start + rows], "float32", order="C"),
            )


def check_sample_weight(sample_weight, num_rows):
    """Returns `sample_weight` as float32 with mean 1, or None."""
    if sample_weight is None:
        return None
    weight = check_scores("sample_weight", sample_weight, "row of the table")
    require(
        len(weight) == num_rows,
        "`sample_weight` must hold one number for each row of the table, "
        f"shape ({num_rows},).",
        shape=weight.shape,
    )
    require(
        weight.any(),
        "`sample_weight` must not be zero for every row.",
        sample_weight="all zeros",
    )
    return (weight / weight.mean()).astype("float32")


def check_scores(name, scores, owner="id"):
    """Returns finite numbers of at least 0, one for each id, as float64."""
    scores = _as_array(name, scores)
    require(
        scores.ndim == 1 and scores.size and scores.dtype.kind in "fiub",
        f"`{name}` must hold one number for each {owner}.",
        shape=scores.shape,
        dtype=str(scores.dtype),
    )
    scores = scores.astype("float64")
    require(
        np.isfinite(scores).all() and (scores >= 0).all(),
        f"`{name}` must be finite and not negative.",
        smallest=float(scores.min()),
        largest=float(scores.max()),
    )
    return scores


def check_one_a_class(name, values, num_classes):
    """Raises unless `values` has one entry for each class."""
    require(
        len(values) == num_classes,
        f"`{name}` must have one entry for each class.",
        num_classes=num_classes,
        **{name: len(values)},
    )


def check_unattached(part):
    """Raises if a selector or noise distribution already has a layer."""
    require(
        part.num_classes is None,
        "A selector or noise distribution must belong to one layer. Make a "
        "copy for each layer: `part.from_config(part.get_config())`.",
        part=part,
    )


def check_class_counts(class_counts, num_classes):
    """Returns positive counts, one for each class, or None."""
    if class_counts is None:
        return None
    class_counts = check_scores("class_counts", class_counts)
    require(
        len(class_counts) == num_classes,
        "`class_counts` must have one entry for each class, "
        f"num_classes={num_classes}.",
        entries=len(class_counts),
    )
    # Classes without a count may still occur.
    return np.maximum(class_counts, 0.5)


def check_text(name, text):
    """Raises if a string cannot be UTF-8 in a file."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"`{name}` must be valid UTF-8. Received: {text!r}."
        ) from error


def on_one_line(error):
    """The message of an error in one line, or the error's class."""
    # Keras prints some words in bold.
    message = re.sub(r"\x1b\[\d*m", "", str(error))
    return " ".join(message.split()) or type(error).__name__


class TableShards:
    """A table with its rows in several arrays, one after the other."""

    ndim = 2

    def __init__(self, shards):
        kinds = {(shard.shape[1], shard.dtype) for shard in shards}
        if len(kinds) != 1:
            raise ValueError(
                "A list of tables must have as many columns and one dtype in "
                f"each table. Received: {kinds or 'none'}."
            )
        ((columns, self.dtype),) = kinds
        self._shards = shards
        # The first row of each array, and the end.
        self._starts = np.cumsum([0, *map(len, shards)])
        self.shape = (int(self._starts[-1]), columns)

    def __len__(self):
        return self.shape[0]

    def __array__(self, dtype=None, copy=None):
        table = np.concatenate(self._shards)
        return table.astype(dtype or self.dtype, copy=False)

    def __getitem__(self, rows):
        """Rows of a slice or of indices; a view if one array has all."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            parts = [
                shard[max(0, start - begin) : max(0, stop - begin)]
                for shard, begin in zip(
                    self._shards, self._starts, strict=False
                )
                if start < begin + len(shard) and begin < stop
            ]
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        found = np.empty((len(rows), self.shape[1]), self.dtype)
        shards = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(shards):
            here = shards == number
            places = rows[here] - self._starts[number]
            found[here] = self._shards[number][places]
        return found
