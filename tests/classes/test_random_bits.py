import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.classes.noise import random_bits
from keras_compembed.classes.noise import random_order

SEED = (3, 4)


def test_whole_range():
    bits = random_bits(SEED, 50, 400)
    assert bits.dtype == tf.int64 and bits.shape == (400, 50)
    values = bits.numpy().ravel()
    # Each of 64 bits is set in half of 20,000 numbers, within 5 deviations.
    for place in range(64):
        share = np.mean(values >> place & 1)
        assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(values.size)
    assert len(np.unique(values)) == values.size


def test_seeds():
    first = random_bits(SEED, 5, 4)
    np.testing.assert_array_equal(first, random_bits(SEED, 5, 4))
    assert np.all(first != random_bits((3, 5), 5, 4))
    # Keras's seed generators give unsigned numbers.
    unsigned = tf.constant(SEED, "uint32")
    np.testing.assert_array_equal(first, random_bits(unsigned, 5, 4))
    shared = random_bits(SEED, 7)
    assert shared.shape == (7,) and shared.dtype == tf.int64


@pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.apart)]
)
def test_graphs(jit_compile):
    @tf.function(jit_compile=jit_compile)
    def run(features):
        return random_bits(SEED, 5, tf.shape(features)[0])

    right = random_bits(SEED, 5, 4)
    np.testing.assert_array_equal(run(tf.zeros((4, 2))), right)


def test_two_devices_get_what_one_gets(strategy):
    """Whichever way a batch is divided, even into nothing for one of them."""
    alone = random_bits(SEED, 3, 7).numpy()

    @tf.function
    def run(rows):
        def each(rows):
            return random_bits(SEED, 3, rows), random_bits(SEED, 3)

        return strategy.run(each, args=(rows,))

    for first in (4, 3, 1, 7):
        rows = tf.constant([first, 7 - first])
        divided = strategy.experimental_distribute_values_from_function(
            lambda context, rows=rows: rows[context.replica_id_in_sync_group]
        )
        of_rows, shared = run(divided)
        parts = strategy.experimental_local_results(of_rows)
        assert [len(part) for part in parts] == [first, 7 - first]
        np.testing.assert_array_equal(np.concatenate(parts), alone)
        for part in strategy.experimental_local_results(shared):
            np.testing.assert_array_equal(part, random_bits(SEED, 3))


def test_random_order():
    """Each place once, in an order by seed; those to come first do."""
    first = np.arange(60) % 3 == 0
    orders = [random_order((3, seed), first).numpy() for seed in (4, 4, 5)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(60))
        assert first[order[:20]].all()
        assert (np.diff(order[:20]) < 0).any()
    np.testing.assert_array_equal(orders[0], orders[1])
    assert (orders[0] != orders[2]).any()
