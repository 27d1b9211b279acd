import numpy as np
import pytest

from keras_compembed.utils import validation


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "3", None])
def test_positive_int(value):
    with pytest.raises(ValueError, match="`n` must be a positive integer"):
        validation.check_positive_int("n", value)
    assert validation.check_positive_int("n", np.int64(3)) == 3


@pytest.mark.parametrize("value", [0, -1.5, True, "3", None, np.nan, np.inf])
def test_positive_number(value):
    with pytest.raises(ValueError, match="`x` must be a positive number"):
        validation.check_positive_number("x", value)
    assert validation.check_positive_number("x", 2) == 2.0


@pytest.mark.parametrize(
    "table, message",
    [
        (np.zeros(3), "must have two axes"),
        (np.zeros((0, 3)), "neither of them"),
        (np.zeros((3, 2), complex), "must hold real numbers"),
        (np.array([["a"]]), "must hold real numbers"),
        (np.array([[0.0], [np.nan]]), "infinity in row 1"),
        (np.array([[0.0], [np.inf]]), "infinity in row 1"),
        (np.array([[1e300]]), "finite in float32"),
    ],
)
def test_bad_tables(table, message):
    with pytest.raises(ValueError, match=message):
        validation.check_table(table)


def test_table_width():
    with pytest.raises(ValueError, match="`table` must have 3 columns"):
        validation.check_table(np.zeros((2, 2)), width=3)


def test_tables_are_not_copied(tmp_path):
    path = tmp_path / "table.npy"
    np.save(path, np.ones((5, 4), "float16"))
    mapped = np.load(path, mmap_mode="r")
    assert validation.check_table(mapped) is mapped
    assert validation.check_table([[1, 2], [3, 4]]).shape == (2, 2)


def test_one_row_outweighs_the_others():
    table = np.random.default_rng(0).uniform(-1, 1, size=(9, 50))
    table[4] *= 2000
    # Rows without numbers are not counted for short.
    table[6:] = 0
    with pytest.warns(UserWarning, match=r"is [12]...*none above (1|0\.9)"):
        validation.check_fitted_table(table)
    table[4] /= 4
    for fine in (table, np.zeros((3, 2)), np.eye(3, dtype="uint8") - 128):
        validation.check_fitted_table(fine)
    # Each is coded by itself.
    table[4] *= 1e5
    validation.check_fitted_table(table, warn=False)


def test_sample_weight():
    weight = validation.check_sample_weight([1, 3], 2)
    np.testing.assert_allclose(weight, [0.5, 1.5])
    assert validation.check_sample_weight(None, 2) is None
    for bad in ([1], [1, np.nan], [1, -1], [0, 0]):
        with pytest.raises(ValueError, match="`sample_weight` must"):
            validation.check_sample_weight(bad, 2)
