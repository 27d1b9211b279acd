"""Finds the first place of each id."""

import tensorflow as tf

# Tables of more rows are not worth a look at each of them.
_MARKED_ROWS = 1 << 22


def unique_places(ids, num_rows):
    """First places of different ids, and which of them each id is."""
    steps = tf.range(tf.size(ids))
    exist = ids >= 0
    firsts = first_places(ids, num_rows)
    is_first = tf.cast(exist & tf.equal(firsts, steps), "int32")
    is_first = computed_once(is_first)
    numbers = tf.cumsum(is_first) - 1
    # Segments of negative ids hold what they do.
    firsts = tf.where(exist, firsts, 0)
    places = tf.where(exist, tf.gather(numbers, firsts), -1)
    return tf.where(is_first > 0)[:, 0], places


def first_places(ids, num_rows):
    """The first place that has the same id, for each place."""
    if num_rows > _MARKED_ROWS:
        return _find_by_order(ids)
    steps = tf.range(tf.size(ids))
    marks = tf.math.unsorted_segment_min(steps, ids, num_rows)
    return tf.gather(marks, tf.maximum(ids, 0))


def computed_once(values):
    """`values`, to be read by many: XLA would compute them for each anew."""
    # It does not merge what writes places of its own choice with what reads.
    return tf.scatter_nd(
        tf.range(tf.size(values))[:, None], values, tf.shape(values)
    )


def _find_by_order(ids):
    """The first place that has the same id, for each place."""
    size = tf.size(ids)
    wide = tf.cast(ids, "int64") * tf.cast(size, "int64")
    order = tf.sort(wide + tf.range(size, dtype="int64"))
    ordered = order // tf.cast(size, "int64")
    places = tf.cast(order - ordered * tf.cast(size, "int64"), "int32")
    begins = tf.concat(
        [tf.ones_like(ordered[:1], "bool"), ordered[1:] != ordered[:-1]], axis=0
    )
    runs = tf.cumsum(tf.cast(begins, "int32")) - 1
    firsts = tf.gather(tf.gather(places, tf.where(begins)[:, 0]), runs)
    return tf.scatter_nd(places[:, None], firsts, tf.shape(ids))
