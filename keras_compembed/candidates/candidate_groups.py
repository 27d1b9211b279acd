"""Candidates that groups of examples share, and look-ups in sets of ids."""

import dataclasses

import tensorflow as tf

# Rows of a block: the more, the fewer class vectors are copied, and the more
# products are of nothing.
BLOCK = 8


@dataclasses.dataclass(frozen=True)
class CandidateGroups:
    """Candidates of groups of examples: what a `Selector` may return.

    Class vectors are read once for each group that occurs in a batch, and
    scores are matrix products.

    The group of an example may depend on its own features, and on what was
    learned in earlier steps, and on nothing else. In a language model the
    features of the next position hold the label of this one: groups made
    from the features of the whole batch would tell it.

    Example:

    >>> sides = kc.candidates.CandidateGroups(
    ...     groups=tf.constant([0, 1, 1]),
    ...     ids=tf.constant([[3, 5], [2, 3]]),
    ... )
    >>> sides.of_rows().numpy()
    array([[3, 5],
           [2, 3],
           [2, 3]], dtype=int32)

    Args:
        groups: int32 tensor `(rows,)`, the group of each example.
        ids: int32 tensor `(num_groups, number)`, of a static shape: classes
            of each group, which differ within a row, -1 where there are fewer.
    """

    groups: tf.Tensor
    ids: tf.Tensor

    def of_rows(self):
        """The candidates of each example, `(rows, number)`."""
        return tf.gather(self.ids, self.groups)


def ids_of(selected):
    """Ids of candidates, which may be `CandidateGroups`."""
    is_grouped = isinstance(selected, CandidateGroups)
    return selected.ids if is_grouped else selected


class GroupBlocks:
    """Where each row of a batch is, in blocks of rows of one group."""

    def __init__(self, groups, num_groups):
        rows = groups.shape[0]
        smaller = min if rows is not None else tf.minimum
        rows = tf.shape(groups)[0] if rows is None else rows
        most = self._blocks = smaller(rows, rows // BLOCK + num_groups)
        # By group, then by place.
        order = tf.argsort(groups, stable=True)
        ordered = tf.gather(groups, order)
        sizes = tf.math.unsorted_segment_sum(
            tf.ones_like(groups), groups, num_groups
        )
        blocks = (sizes + BLOCK - 1) // BLOCK
        ends = tf.cumsum(blocks)
        # From places among ordered rows to places in blocks.
        shifts = (ends - blocks) * BLOCK - (tf.cumsum(sizes) - sizes)
        places = tf.range(rows) + tf.gather(shifts, ordered)
        self._places = tf.scatter_nd(order[:, None], places, (rows,))
        self.occurs = sizes > 0
        passed = tf.cast(ends[None] <= tf.range(most)[:, None], "int32")
        passed = tf.reduce_sum(passed, axis=1)
        self.of_blocks = tf.minimum(passed, num_groups - 1)

    def products(self, rows, matrices):
        """Products of rows with the matrices of their blocks."""
        width, number = rows.shape[1], matrices.shape[1]
        padded = tf.scatter_nd(
            self._places[:, None], rows, (self._blocks * BLOCK, width)
        )
        padded = tf.reshape(padded, (self._blocks, BLOCK, width))
        found = tf.matmul(padded, matrices, transpose_b=True)
        found = tf.reshape(found, (self._blocks * BLOCK, number))
        return tf.gather(found, self._places)


def is_in(sets, ids, rows=None):
    """Whether ids are in sets, without a comparison of each with each."""
    size = sets.shape[1]
    number = tf.shape(sets)[0]
    if not size:
        shape = tf.maximum(tf.shape(ids), tf.stack([number, 1]))
        return tf.zeros(shape, "bool")
    flat = tf.reshape(tf.sort(sets, axis=1), (-1,))
    start = size * (tf.range(number) if rows is None else rows)[:, None]
    # How many of the set are at most the id.
    below = tf.zeros_like(start + ids)
    for power in reversed(range(size.bit_length())):
        further = below + (1 << power)
        entry = tf.gather(flat, start + tf.minimum(further, size) - 1)
        below = tf.where((further <= size) & (entry <= ids), further, below)
    last = tf.gather(flat, start + tf.maximum(below - 1, 0))
    return (below > 0) & (last == ids) & (ids >= 0)
