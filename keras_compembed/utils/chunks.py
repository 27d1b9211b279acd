"""Rows and classes that are scored at a time."""

import tensorflow as tf

from keras_compembed.utils.custom_gradient import custom_gradient

# Numbers in the largest of tensors that are held while classes are scored.
MOST_NUMBERS = 1 << 22
# Classes to be scored at a time, if there are many rows.
_CLASSES = 4096
# Parts of a table that a graph has one behind the other.
_MOST_PARTS = 16


def chunk_sizes(rows, num_classes, *numbers):
    """How many rows, and for these how many classes, to score at a time."""
    numbers = max(1, *numbers)
    most = max(1, MOST_NUMBERS // numbers)
    classes = _CLASSES if rows is None else MOST_NUMBERS // max(1, rows)
    classes = min(num_classes, most, max(_CLASSES, classes))
    return min(most, MOST_NUMBERS // classes), classes


def in_parts(compute, inputs, results, size):
    """Results for all rows, computed for so many rows at a time."""
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


def of_all_ids(compute, number, size=None):
    """Rows of ids from 0 to `number - 1`, computed for some at a time."""
    size = max(size or number, -(-number // _MOST_PARTS))
    one = _one_at_run_time()
    parts = []
    for start in range(0, number, size):
        length = min(size, number - start)
        # One after the other, else all are in memory.
        with tf.control_dependencies(parts[-1:]):
            ids = tf.range(start, start + length * one)
        rows = compute(ids)
        rows.set_shape((length, *rows.shape[1:]))
        parts.append(rows)
    return tf.concat(parts, axis=0) if len(parts) > 1 else parts[0]


def in_xla():
    """Whether XLA compiles what is being traced."""
    # What TensorFlow exports for Keras.
    return tf.__internal__.get_enclosing_xla_context() is not None


def _one_at_run_time():
    """1, which a converter does not know before the file runs."""
    if tf.executing_eagerly() or in_xla():
        return 1
    return tf.while_loop(lambda one: one < 1, lambda one: [one + 1], [0])[0]


def of_all_ids_again(compute, number, size, sources):
    """Rows `compute(ids, *sources)`, whose gradient computes parts again."""

    @custom_gradient
    def compute_parts(*sources):
        rows = of_all_ids(lambda ids: compute(ids, *sources), number, size)

        def gradient(upstream):
            def add(totals, part):
                ids, upstream = part
                with tf.GradientTape() as tape:
                    tape.watch(sources)
                    rows = compute(ids[:, 0], *sources)
                gradients = tape.gradient(
                    rows,
                    sources,
                    upstream,
                    unconnected_gradients=tf.UnconnectedGradients.ZERO,
                )
                return [
                    total + tf.convert_to_tensor(gradient)
                    for total, gradient in zip(totals, gradients, strict=True)
                ]

            ids = tf.expand_dims(tf.range(number), 1)
            ids, upstream = (
                split_rows(each, number, size) for each in (ids, upstream)
            )
            totals = [tf.zeros_like(source) for source in sources]
            return tf.foldl(add, (ids, upstream), totals, parallel_iterations=1)

        return rows, gradient

    return compute_parts(*sources)


def split_rows(rows, number, size):
    """`number` rows as parts `(parts, size, ...)`; the last ends in zeros."""
    rows = tf.pad(rows, [[0, -number % size], [0, 0]])
    return tf.reshape(rows, (-1, size, tf.shape(rows)[1]))
