"""Rows and classes that are scored at a time."""

import tensorflow as tf

# Numbers in the largest of tensors that are held while classes are scored.
MOST_NUMBERS = 1 << 22
# Classes to be scored at a time, if there are many rows.
_CLASSES = 4096


def chunk_sizes(rows, num_classes, *numbers):
    """How many rows, and for these how many classes, to score at a time.

    Args:
        rows: Integer, or None if it is not known.
        num_classes: Integer.
        *numbers: Integers, what else is held of each row or class, as the
            width of vectors.

    Returns:
        Integers. The second is at most `num_classes`.
    """
    numbers = max(1, *numbers)
    most = max(1, MOST_NUMBERS // numbers)
    classes = _CLASSES if rows is None else MOST_NUMBERS // max(1, rows)
    classes = min(num_classes, most, max(_CLASSES, classes))
    return min(most, MOST_NUMBERS // classes), classes


def in_parts(compute, inputs, results, size):
    """Results for all rows, computed for so many rows at a time.

    Args:
        compute: Function from some rows of the inputs to a sequence of
            tensors with as many rows.
        inputs: Sequence of tensors `(rows, ...)`.
        results: Sequence of tensors `(rows, ...)`, to be written over.
        size: Integer, the most rows at a time.

    Returns:
        Sequence of tensors like `results`.
    """
    known = inputs[0].shape[0]
    if known and known <= size:
        return compute(*inputs)
    rows = tf.shape(inputs[0])[0]
    size = tf.minimum(size, rows)
    # Of a size that XLA knows, but only outside the loop.
    offsets = tf.range(size)

    def add(start, *results):
        # The last part is as large as others, and repeats the last row.
        part = tf.minimum(start + offsets, rows - 1)
        computed = compute(*(tf.gather(values, part) for values in inputs))
        return start + size, *(
            tf.tensor_scatter_nd_update(result, part[:, None], values)
            for result, values in zip(results, computed, strict=True)
        )

    _, *results = tf.while_loop(
        lambda start, *_: start < rows,
        add,
        (0, *results),
        # Else ten parts are in memory.
        parallel_iterations=1,
    )
    return results
