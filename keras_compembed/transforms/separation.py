"""Loss of unrelated ids that share anchors."""

import tensorflow as tf

# Random partners of each id of a batch.
_PARTNERS = 4
_PRIME, _FACTOR = 2**31 - 1, 1_000_003


class Separation:
    """Mean of `|t_u| . |t_v|` over random pairs of a batch, not related."""

    def __init__(self, negative_weight, relations=None, mask_zero=False):
        self.negative_weight = negative_weight
        self.relations = relations
        self.mask_zero = mask_zero

    def __call__(self, ids, rows):
        """Scalar tensor."""
        # In an order that is the same on all devices and changes with the
        # batch: multiples of the ids modulo a prime.
        ids = tf.cast(ids, tf.int64)
        factor = _FACTOR + tf.math.floormod(tf.reduce_sum(ids), _FACTOR)
        order = tf.argsort(tf.math.floormod(ids * factor, _PRIME))
        ids = tf.gather(ids, order)
        rows = tf.abs(tf.gather(rows, order))
        number = tf.size(ids)
        total = count = 0.0
        for shift in range(1, _PARTNERS + 1):
            # Not `tf.roll`: XLA does it wrong on axes of unknown size.
            others = tf.math.floormod(tf.range(number) + shift, number)
            partners = tf.gather(ids, others)
            counts = tf.cast(tf.not_equal(ids, partners), rows.dtype)
            if self.mask_zero:
                counts *= tf.cast(tf.not_equal(ids * partners, 0), rows.dtype)
            if self.relations is not None:
                related = self._related(ids, partners)
                counts *= 1 - tf.cast(related, rows.dtype)
            shared = tf.reduce_sum(rows * tf.gather(rows, others), axis=1)
            total += tf.reduce_sum(counts * shared)
            count += tf.reduce_sum(counts)
        return self.negative_weight * total / tf.maximum(count, 1)

    def _related(self, ids, partners):
        keys = tf.constant(self.relations.keys)
        if not len(self.relations.keys):
            return tf.zeros_like(ids, tf.bool)
        wanted = ids * self.relations.input_dim + partners
        places = tf.searchsorted(keys, wanted)
        places = tf.minimum(places, tf.size(keys) - 1)
        return tf.equal(tf.gather(keys, places), wanted)
