"""Tensor ops for rows and scores: in parts, deduplicated, stable."""

import functools
import weakref

import tensorflow as tf

# Vectors at a time, and rows for each.
_VECTORS = 1024
_ROWS = 4096, 1 << 18
# Elements of the largest tensor in memory.
MOST_NUMBERS = 1 << 22
# Classes to score at a time, if there are many rows.
_CLASSES = 4096
# The most parts of a table that a graph unrolls.
_MOST_PARTS = 16


def custom_gradient(function):
    """`tf.custom_gradient` without a leak of graphs and models."""
    differentiable = tf.custom_gradient(function)

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(function)
    def call(*args):
        if tf.executing_eagerly():
            return differentiable(*args)
        graph, results = tf.compat.v1.get_default_graph(), []

        # TensorFlow keeps this gradient function forever. Move it to the graph,
        # and take tensors out of the list.
        @tf.custom_gradient
        def compute(*args):
            result, gradient = function(*args)
            setattr(graph, f"gradient_{id(gradient)}", gradient)
            find = weakref.ref(gradient)
            results.append(result)
            return results, lambda *upstream: find()(*upstream)

        (result,) = compute(*args)
        results[:] = [None] * len(tf.nest.flatten(result))
        return result

    return call


def each_once(compose, ids):
    """Vectors of ids; repeated ids are composed once."""
    if in_xla():
        return compose(ids)
    different, places = tf.unique(ids)
    return repeat_rows(compose(different), places)


def repeat_rows(rows, places):
    """Like `tf.gather`, with gradients summed in float32."""
    if rows.dtype not in (tf.float16, tf.bfloat16):
        return tf.gather(rows, places)
    # Gradients are summed at this reshape.
    exact = tf.reshape(tf.cast(rows, "float32"), tf.shape(rows))
    return tf.cast(tf.gather(exact, places), rows.dtype)


def weighted_sums(rows, weights):
    """Weighted sums of the rows of each group."""
    width = rows.shape[-1]
    shape = tf.concat([tf.shape(weights), [width]], axis=0)
    rows = tf.reshape(tf.cast(rows, weights.dtype), shape)
    # LiteRT has no `weights[:, :, None]` of two unknown axes.
    return tf.reduce_sum(rows * tf.expand_dims(weights, 2), axis=1)


def top_rows(vectors, k, num_rows, make_score):
    """The `k` best rows for each vector, exactly."""

    def compute(part):
        return _top_rows(part, k, num_rows, make_score(part))

    count = tf.shape(vectors)[0]
    results = [
        tf.fill([count, k], tf.constant(-float("inf"), vectors.dtype)),
        tf.zeros([count, k], tf.int32),
    ]
    return tuple(in_parts(compute, [vectors], results, _VECTORS))


def _top_rows(vectors, k, num_rows, score):
    count = vectors.shape[0]
    if count is None:
        count = tf.shape(vectors)[0]
        most = tf.clip_by_value(MOST_NUMBERS // tf.maximum(count, 1), *_ROWS)
        size = tf.minimum(tf.maximum(most, k), num_rows)
    else:
        most = min(max(MOST_NUMBERS // max(count, 1), _ROWS[0]), _ROWS[1])
        size = min(max(most, k), num_rows)
    # XLA knows this size only outside the loop.
    offsets = tf.range(size)
    lowest = tf.constant(-float("inf"), vectors.dtype)

    def add(start, best, ids):
        exists = start + offsets < num_rows
        part = tf.minimum(start + offsets, num_rows - 1)
        scores = tf.where(exists, score(part), lowest)
        # Lower ids come first and win ties.
        every = tf.broadcast_to(part, tf.shape(scores))
        best, places = tf.math.top_k(tf.concat([best, scores], 1), k)
        ids = tf.gather(tf.concat([ids, every], 1), places, batch_dims=1)
        return start + size, best, ids

    # Start from real rows: scores may be minus infinity or NaN.
    best, ids = tf.math.top_k(score(offsets), k)
    _, best, ids = tf.while_loop(
        lambda start, *_: start < num_rows,
        add,
        (size, best, ids),
        parallel_iterations=1,
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([vectors.shape[0], k]),
            tf.TensorShape([vectors.shape[0], k]),
        ),
    )
    return best, ids


def chunk_sizes(rows, num_classes, *numbers):
    """Numbers of rows and of classes to score at a time."""
    numbers = max(1, *numbers)
    most = max(1, MOST_NUMBERS // numbers)
    classes = _CLASSES if rows is None else MOST_NUMBERS // max(1, rows)
    classes = min(num_classes, most, max(_CLASSES, classes))
    return min(most, MOST_NUMBERS // classes), classes


def in_parts(compute, inputs, results, size):
    """Results for all rows, computed for `size` rows at a time."""
    known = inputs[0].shape[0]
    if known and known <= size:
        return compute(*inputs)
    rows = tf.shape(inputs[0])[0]
    size = tf.minimum(size, rows)
    # XLA knows this size only outside the loop.
    offsets = tf.range(size)

    def add(start, *results):
        # The last part has the same size and overlaps the one before.
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
        # By default, ten parts would be in memory.
        parallel_iterations=1,
    )
    return results


def of_all_ids(compute, number, size=None):
    """Rows of ids from 0 to `number - 1`, computed in parts."""
    size = max(size or number, -(-number // _MOST_PARTS))
    one = _one_at_run_time()
    parts = []
    for start in range(0, number, size):
        length = min(size, number - start)
        # One part after the other, to save memory.
        with tf.control_dependencies(parts[-1:]):
            ids = tf.range(start, start + length * one)
        rows = compute(ids)
        rows.set_shape((length, *rows.shape[1:]))
        parts.append(rows)
    return tf.concat(parts, axis=0) if len(parts) > 1 else parts[0]


def in_xla():
    """Whether XLA compiles the current graph."""
    # TensorFlow exports this for Keras.
    return tf.__internal__.get_enclosing_xla_context() is not None


def _one_at_run_time():
    """The number 1, which the converter cannot fold."""
    if tf.executing_eagerly() or in_xla():
        return 1
    return tf.while_loop(lambda one: one < 1, lambda one: [one + 1], [0])[0]


def of_all_ids_again(compute, number, size, sources):
    """Rows `compute(ids, *sources)`; the gradient recomputes parts."""

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
    """`number` rows in parts `(parts, size, ...)`, padded with zeros."""
    rows = tf.pad(rows, [[0, -number % size], [0, 0]])
    return tf.reshape(rows, (-1, size, tf.shape(rows)[1]))


# TensorFlow's own gradient makes three more passes over the scores.
@custom_gradient
def log_sum_exp(*parts):
    """`log(sum(e^scores))` over the last axis; minus infinity if empty."""
    largest = functools.reduce(
        tf.maximum, [tf.reduce_max(part, axis=-1) for part in parts]
    )
    finite = tf.where(largest > float("-inf"), largest, 0.0)
    exponentials = [tf.exp(part - finite[..., None]) for part in parts]
    total = tf.add_n([tf.reduce_sum(part, axis=-1) for part in exponentials])
    # Not `total > 0`, which is false for NaN.
    positive = tf.logical_not(total <= 0)
    total = tf.where(positive, total, 1.0)
    logarithm = tf.where(positive, tf.math.log(total) + finite, float("-inf"))

    def gradients(upstream):
        factor = (upstream / total)[..., None]
        found = [factor * part for part in exponentials]
        return found if len(found) > 1 else found[0]

    return logarithm, gradients


def log_add_exp(first, second):
    """`log(e^first + e^second)`; both may be minus infinity."""
    first = tf.broadcast_to(first, tf.shape(second))
    return log_sum_exp(tf.stack([first, second], axis=-1))


def without_nan(scores):
    """Scores with NaN as minus infinity; `top_k` puts NaN anywhere."""
    return tf.where(tf.math.is_nan(scores), float("-inf"), scores)


def multiply_blocks(rows, scales, block_size):
    """Rows `(ids, width)` times scales `(ids, blocks)`, block by block."""
    if scales.shape[1] > 1:
        scales = tf.repeat(scales, block_size, axis=1)[:, : rows.shape[1]]
    return rows * scales


def sum_groups(rows, weights):
    """Weighted sums of rows, group by group."""
    shape = tf.concat([tf.shape(weights), [rows.shape[1]]], axis=0)
    rows = tf.reshape(tf.cast(rows, weights.dtype), shape)
    sums = tf.matmul(tf.expand_dims(weights, 1), rows)
    return tf.squeeze(sums, 1)
