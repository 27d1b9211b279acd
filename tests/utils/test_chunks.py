import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.utils.chunks import chunk_sizes
from keras_compembed.utils.chunks import in_parts


def test_chunk_sizes():
    """Bounded numbers of scores, and not less than a useful product."""
    assert chunk_sizes(10, 100, 8) == (2**22 // 100, 100)
    assert chunk_sizes(1024, 10**6, 8) == (1024, 4096)
    assert chunk_sizes(None, 10**6, 8) == (1024, 4096)
    assert chunk_sizes(10**6, 10**6, 8) == (1024, 4096)
    # Vectors of classes, and features of rows, count as well.
    assert chunk_sizes(1, 10**7, 256) == (256, 2**14)
    assert chunk_sizes(1, 10, 2**30) == (1, 1)


@pytest.mark.parametrize("rows", [1, 7, 8, 20])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("jit_compile", [True, False])
def test_in_parts(rows, known, jit_compile):
    sizes = []

    def compute(values, ids):
        sizes.append(values.shape[0])
        return 2 * values, ids + 1

    spec = [
        tf.TensorSpec((rows if known else None, 3)),
        tf.TensorSpec((rows if known else None,), "int32"),
    ]

    @tf.function(input_signature=spec, jit_compile=jit_compile)
    def run(*inputs):
        results = [tf.zeros_like(values) for values in inputs]
        return in_parts(compute, inputs, results, 8)

    values = np.random.default_rng(0).normal(size=(rows, 3)).astype("float32")
    doubled, after = run(values, np.arange(rows, dtype="int32"))
    np.testing.assert_array_equal(doubled, 2 * values)
    np.testing.assert_array_equal(after, np.arange(rows) + 1)
    if known and rows <= 8:
        assert set(sizes) == {rows}


def test_no_rows_at_a_time_that_are_not_there():
    sizes = []

    def compute(values):
        sizes.append(len(values))
        return (values,)

    for rows, right in ((20, [8, 8, 8]), (8, [8]), (3, [3]), (0, [])):
        sizes.clear()
        values = tf.range(rows)
        (same,) = in_parts(compute, (values,), (tf.zeros_like(values),), 8)
        np.testing.assert_array_equal(same, values)
        assert sizes == right
