import numpy as np

from keras_compembed.transforms.sparse_transform import SparseTransform


def sparse_matrix(rows=7, columns=300):
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(rows, columns)) * (
        rng.random((rows, columns)) < 0.1
    )
    dense[3] = 0
    return dense.astype("float32")


def test_there_and_back():
    dense = sparse_matrix()
    transform = SparseTransform.from_parts([dense[:2], dense[2:]], 300)
    np.testing.assert_array_equal(transform.dense_rows(), dense)
    np.testing.assert_array_equal(transform.dense_rows(2, 5), dense[2:5])
    np.testing.assert_array_equal(transform.dense_rows(5, 99), dense[5:])
    assert transform.num_rows == 7
    assert transform.nnz == np.count_nonzero(dense)
    assert transform.columns.dtype == "uint16"
    np.testing.assert_array_equal(
        transform.row_lengths, np.count_nonzero(dense, axis=1)
    )


def test_nothing_but_zeros():
    transform = SparseTransform.from_parts([np.zeros((3, 4))], 4)
    assert transform.nnz == 0
    np.testing.assert_array_equal(transform.dense_rows(), np.zeros((3, 4)))


def test_keep_largest():
    dense = sparse_matrix()
    transform = SparseTransform.from_parts([dense], 300)
    assert transform.keep_largest(transform.nnz) is transform
    kept = transform.keep_largest(10)
    threshold = np.sort(np.abs(dense), axis=None)[-10]
    np.testing.assert_array_equal(
        kept.dense_rows(), np.where(np.abs(dense) >= threshold, dense, 0)
    )


def test_fill():
    dense = sparse_matrix()
    transform = SparseTransform.from_parts([dense], 300)
    assert transform.fill(transform.nnz, 300) is transform
    longest = int(transform.row_lengths.max())
    filled = transform.fill(transform.nnz + longest, longest)
    assert filled.nnz == len(filled.columns) == transform.nnz + longest
    assert filled.row_lengths.max() == longest
    np.testing.assert_array_equal(filled.dense_rows(), dense)
    for start, stop in zip(filled.offsets, filled.offsets[1:], strict=False):
        assert (np.diff(filled.columns[start:stop].astype(int)) > 0).all()
