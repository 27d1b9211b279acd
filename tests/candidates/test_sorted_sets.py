import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.candidates.sorted_sets import is_in


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9])
def test_as_one_by_one(size):
    rng = np.random.default_rng(size)
    sets = np.array([rng.permutation(20)[:size] for _ in range(4)], "int32")
    sets[::2, -2:] = -1
    of_rows = rng.integers(4, size=30)
    ids = rng.integers(-1, 20, size=(30, 5))

    def right(ids, of_rows):
        return [
            [k >= 0 and k in sets[own] for k in row]
            for row, own in zip(ids, of_rows, strict=True)
        ]

    sets = tf.constant(sets)
    ids, of_rows = (tf.constant(part, "int32") for part in (ids, of_rows))
    np.testing.assert_array_equal(
        is_in(sets, ids, of_rows), right(ids.numpy(), of_rows.numpy())
    )
    # Each set, for one row of ids each, and for one row of all.
    np.testing.assert_array_equal(
        is_in(sets, ids[:4]), right(ids[:4].numpy(), range(4))
    )
    np.testing.assert_array_equal(
        is_in(sets, ids[:1]), right(4 * [ids[0].numpy()], range(4))
    )
