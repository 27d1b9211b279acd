import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.optimizers.device_rows import unique_places


@pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.apart)]
)
# Small tables are marked, for large ones ids are sorted.
@pytest.mark.parametrize("num_rows", [50, 1 << 23])
@pytest.mark.parametrize("size, lowest", [(0, 0), (40, -20)])
def test_different_places(size, lowest, num_rows, jit_compile):
    ids = np.random.default_rng(0).integers(lowest, 50, size=size)

    @tf.function(jit_compile=jit_compile)
    def find(ids):
        firsts, places = unique_places(ids, num_rows)
        # XLA returns as many as there might be.
        return firsts, places, tf.size(firsts)

    firsts, places, number = find(tf.constant(ids, "int32"))
    firsts = firsts.numpy()[: number.numpy()]
    known = ids[ids >= 0]
    right = known[np.sort(np.unique(known, return_index=True)[1])]
    np.testing.assert_array_equal(ids[firsts], right)
    assert (np.diff(firsts) > 0).all()
    places = places.numpy()
    assert (places[ids < 0] == -1).all()
    np.testing.assert_array_equal(right[places[ids >= 0]], known)
