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


def all_ids(number):
    """`tf.range(number)`, which converters do not take for a constant.

    A file then holds what rows are computed from, and not all the rows.
    """
    ids = tf.range(number)
    if tf.executing_eagerly():
        return ids
    return tf.while_loop(
        lambda step, _: step < 1,
        lambda step, ids: (step + 1, ids + step),
        (0, ids),
    )[1]


def of_all_ids(compute, number, size, width, dtype):
    """Rows of ids from 0 to `number - 1`, computed for so many at a time.

    A graph collects them in one tensor: LiteRT has lists of tensors only where
    all shapes are known.

    Args:
        compute: Function from an int32 tensor of ids to `(ids, width)`.
        number: Integer.
        size: Integer, ids at a time.
        width: Integer, or an integer tensor.
        dtype: Dtype of the result.

    Returns:
        Tensor `(number, width)`.
    """
    if number <= size:
        return compute(all_ids(number))
    count = -(-number // size)
    offsets = tf.range(size)

    def part(step):
        # The last part is as large as others, and repeats the last row.
        return compute(tf.minimum(step * size + offsets, number - 1))

    def add(step, parts):
        place = tf.reshape(step, (1, 1))
        new = tf.expand_dims(part(step), 0)
        return step + 1, tf.tensor_scatter_nd_update(parts, place, new)

    if tf.executing_eagerly():
        # Each update would copy the whole.
        parts = tf.concat([part(step) for step in range(count)], axis=0)
    else:
        _, parts = tf.while_loop(
            lambda step, _: step < count,
            add,
            (0, tf.zeros((count, size, width), dtype)),
            parallel_iterations=1,
        )
    return tf.reshape(parts, (-1, width))[:number]


def split_rows(rows, size):
    """Rows as parts `(parts, size, ...)`; the last ends in zeros."""
    number, width = rows.shape[0], tf.shape(rows)[1]
    size = min(size, number)
    rows = tf.pad(rows, [[0, -number % size], [0, 0]])
    return tf.reshape(rows, (-1, size, width))
