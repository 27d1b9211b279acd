"""Lists of classes whose vectors are near each other, made inside a graph."""

import numpy as np
import tensorflow as tf

# Numbers held at a time.
_ENTRIES = 1 << 22
# Of k-means: classes per list that centres are fitted to, and steps.
_SAMPLE = 32
_FIRST_STEPS = 10
_STEPS = 2
# Lists that a class may ask for before it is put where there is room.
_CHOICES = 8


def make_lists(vectors_of, num_classes, lists, first):
    """Assigns all classes to lists by k-means."""
    num_lists, capacity = lists.shape
    size = min(num_classes, _SAMPLE * num_lists)
    sample = np.arange(size, dtype="int64") * num_classes // size
    points = vectors_of(tf.constant(sample, "int32"))
    seeds = np.arange(num_lists, dtype="int64") * size // num_lists
    centres = tf.cond(
        first,
        lambda: tf.gather(points, tf.constant(seeds, "int32")),
        lambda: list_moments(vectors_of, lists)[0],
    )
    steps = tf.where(first, _FIRST_STEPS, _STEPS)
    centres = k_means(points, centres, steps)
    choices, costs = _in_chunks(
        lambda ids: nearest(vectors_of(ids), centres, min(_CHOICES, num_lists)),
        num_classes,
        max(1, _ENTRIES // num_lists),
        (tf.int32, tf.float32),
    )
    places = deal(choices, costs, num_lists, capacity)
    counts = _counts(places, num_lists)
    starts = tf.cumsum(counts, exclusive=True)
    within = tf.range(capacity)
    index = tf.minimum(starts[:, None] + within, num_classes - 1)
    ids = tf.gather(tf.argsort(places, stable=True), index)
    return tf.where(within < counts[:, None], ids, -1)


def list_moments(vectors_of, lists):
    """Means and variances of vectors over lists of ids padded with -1."""
    capacity = lists.shape[1]

    def moments(rows):
        ids = tf.gather(lists, rows)
        there = (ids >= 0)[..., None]
        vectors = vectors_of(tf.maximum(tf.reshape(ids, (-1,)), 0))
        vectors = tf.reshape(vectors, (-1, capacity, vectors.shape[1]))
        counts = tf.reduce_sum(tf.cast(there, "float32"), axis=1)
        counts = tf.maximum(counts, 1)

        def mean(values):
            # What is missing counts 0 times, even if it is NaN.
            values = tf.where(there, values, 0)
            return tf.reduce_sum(values, axis=1) / counts

        means = mean(vectors)
        return means, mean((vectors - means[:, None]) ** 2)

    size = max(1, _ENTRIES // (64 * capacity))
    dtypes = tf.float32, tf.float32
    return _in_chunks(moments, lists.shape[0], size, dtypes)


def k_means(points, centres, steps):
    rows, number = points.shape[0], centres.shape[0]
    spread = np.arange(number, dtype="int64") * rows // number
    spread = tf.constant(spread, "int32")

    def step(index, centres):
        own, _ = _in_chunks(
            lambda ids: nearest(tf.gather(points, ids), centres, 1),
            rows,
            max(1, _ENTRIES // number),
            (tf.int32, tf.float32),
        )
        own = own[:, 0]
        sums = tf.math.unsorted_segment_sum(points, own, number)
        counts = _counts(own, number)[:, None]
        means = sums / tf.maximum(tf.cast(counts, "float32"), 1)
        # A centre without points starts anew, at some point.
        others = tf.gather(points, (spread + 7 * index + 1) % rows)
        return index + 1, tf.where(counts > 0, means, others)

    return tf.while_loop(
        lambda index, _: index < steps,
        step,
        (0, centres),
        parallel_iterations=1,
    )[1]


def nearest(points, centres, number):
    costs = tf.reduce_sum(centres**2, axis=1)
    costs -= 2 * tf.matmul(points, centres, transpose_b=True)
    # Vectors that are not finite may go anywhere.
    costs = tf.where(tf.math.is_finite(costs), costs, costs.dtype.max / 4)
    costs, indices = tf.math.top_k(-costs, number)
    return indices, -costs


def deal(choices, costs, num_lists, capacity):
    """Gives each class a list, with at most `capacity` classes in each."""
    num_classes, number = choices.shape
    losses = costs[:, 1:] - costs[:, :-1]
    losses = tf.pad(losses, [[0, 0], [0, 1]])
    # Below 1, so that one sort is by list and then by loss.
    losses = tf.cast(losses, "float64")
    most = tf.maximum(tf.reduce_max(losses), np.finfo("float32").tiny)
    urgency = 0.999 * (1 - losses / most)

    def ask(turn, places, room):
        wanted = tf.gather(choices, turn, axis=1)
        wanted = tf.where(places < 0, wanted, num_lists)
        key = tf.cast(wanted, "float64") + tf.gather(urgency, turn, axis=1)
        order = tf.argsort(key, stable=True)
        wanted = tf.gather(wanted, order)
        counts = _counts(wanted, num_lists + 1)
        before = tf.cumsum(counts, exclusive=True)
        rank = tf.range(num_classes) - tf.gather(before, wanted)
        taken = rank < tf.gather(tf.pad(room, [[0, 1]]), wanted)
        found = tf.where(taken, wanted, tf.gather(places, order))
        places = tf.scatter_nd(order[:, None], found, (num_classes,))
        return turn + 1, places, room - tf.minimum(room, counts[:-1])

    _, places, room = tf.while_loop(
        lambda turn, places, _: (turn < number) & tf.reduce_any(places < 0),
        ask,
        (0, tf.fill((num_classes,), -1), tf.fill((num_lists,), capacity)),
        parallel_iterations=1,
    )
    # List of each place that is free: as many lists are full before it.
    full = _counts(tf.cumsum(room), num_lists * capacity + 1)
    free = tf.cumsum(full)
    left = places < 0
    turn = tf.cumsum(tf.cast(left, "int32")) - 1
    return tf.where(left, tf.gather(free, tf.maximum(turn, 0)), places)


def _counts(values, number):
    """How often each of so many integers comes."""
    ones = tf.ones_like(values)
    return tf.math.unsorted_segment_sum(ones, values, number)


def _in_chunks(function, number, size, dtypes):
    """Results of a function for 0, 1 and so on, with so many at a time."""
    size = min(size, number)
    parts = tf.map_fn(
        lambda start: function(tf.minimum(start + tf.range(size), number - 1)),
        tf.range(0, number, size),
        fn_output_signature=dtypes,
        parallel_iterations=1,
    )
    return tf.nest.map_structure(
        lambda part: tf.reshape(part, (-1, part.shape[2]))[:number], parts
    )
