"""Rows of groups side by side in blocks, for products of matrices."""

import tensorflow as tf

# Rows of a block: the more, the fewer class vectors are copied, and the more
# products are of nothing.
BLOCK = 8


class GroupBlocks:
    """Where each row of a batch is, in blocks of rows of one group."""

    def __init__(self, groups, num_groups):
        rows = groups.shape[0]
        if rows is None:
            rows = tf.shape(groups)[0]
            most = tf.minimum(rows, rows // BLOCK + num_groups)
        else:
            most = min(rows, rows // BLOCK + num_groups)
        self._blocks = most
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
        numbers = tf.range(most)
        passed = tf.cast(ends[None] <= numbers[:, None], "int32")
        passed = tf.reduce_sum(passed, axis=1)
        self.of_blocks = tf.minimum(passed, num_groups - 1)

    def products(self, rows, matrices):
        """Products of rows with the matrices of their blocks."""
        width, number = rows.shape[1], matrices.shape[1]
        padded = tf.scatter_nd(
            self._places[:, None], rows, (self._blocks * BLOCK, width)
        )
        found = tf.matmul(
            tf.reshape(padded, (self._blocks, BLOCK, width)),
            matrices,
            transpose_b=True,
        )
        found = tf.reshape(found, (self._blocks * BLOCK, number))
        return tf.gather(found, self._places)
