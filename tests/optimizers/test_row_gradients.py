"""Rows that a step reads several times have one gradient each."""

import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc

IDS = np.array([3, 0, 3, 5, 7, 3])
UPSTREAM = np.arange(1.0, 49.0).reshape(6, 8)
LAYERS = {
    "latents": lambda: kc.CodeEmbedding(9, 8, 2, 4, codes="follow"),
    "rows": lambda: kc.QuantizedEmbedding(9, 8, learn_rows=True),
    "anchors": lambda: kc.ANTEmbedding(9, 8, 4, transform="sparse"),
}


def gradients_of(layer, ids, upstream):
    with tf.GradientTape() as tape:
        vectors = layer(ids, training=True)
        loss = tf.reduce_sum(vectors * tf.cast(upstream, vectors.dtype))
    return tape.gradient(loss, [x.value for x in layer.trainable_weights])


def dense(gradients):
    """Sums of gradients of one device or several; no row comes twice."""
    total, seen = 0, set()
    for gradient in gradients:
        if isinstance(gradient, tf.IndexedSlices):
            rows = gradient.indices.numpy()
            moved = rows[np.any(gradient.values.numpy() != 0, axis=-1)]
            assert len(set(moved)) == len(moved) and seen.isdisjoint(moved)
            assert set(moved) <= set(IDS)
            seen.update(moved)
        total = total + np.asarray(tf.convert_to_tensor(gradient))
    return total


@pytest.mark.parametrize("name", LAYERS)
def test_rows_come_once(name, strategy):
    """On a device, and over two."""
    layer = LAYERS[name]()
    layer.build()
    singles = [
        gradients_of(layer, IDS[[i]], UPSTREAM[[i]]) for i in range(len(IDS))
    ]
    expected = [
        sum(np.asarray(tf.convert_to_tensor(x)) for x in parts)
        for parts in zip(*singles, strict=True)
    ]
    if name != "anchors":
        # Straight through to what is rounded or looked for.
        np.add.at(wanted := np.zeros((9, 8)), IDS, UPSTREAM)
        assert any(x.shape == (9, 8) and (x == wanted).all() for x in expected)
    found = gradients_of(layer, IDS, UPSTREAM)
    assert any(isinstance(x, tf.IndexedSlices) for x in found)
    for gradient, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(dense([gradient]), wanted, rtol=1e-4)
    with strategy.scope():
        two = LAYERS[name]()
        two.build()
    two.set_weights(layer.get_weights())

    @tf.function
    def step():
        context = tf.distribute.get_replica_context()
        first = tf.equal(context.replica_id_in_sync_group, 0)
        # Four ids and two, of which one is on both.
        start, stop = tf.unstack(tf.where(first, [0, 4], [4, 6]))
        ids, upstream = tf.constant(IDS), tf.constant(UPSTREAM)
        return gradients_of(two, ids[start:stop], upstream[start:stop])

    for gradient, wanted in zip(strategy.run(step), expected, strict=True):
        parts = strategy.experimental_local_results(gradient)
        np.testing.assert_allclose(dense(parts), wanted, rtol=1e-4)
