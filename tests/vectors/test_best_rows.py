"""The best rows of many, of scores that come in parts."""

import numpy as np
import pytest

from keras_compembed.vectors.best_rows import BestRows


@pytest.mark.parametrize("most", [1, 3, 40, 500])
@pytest.mark.parametrize("sizes", [[300], [1, 7, 200, 92], [100, 100, 100]])
@pytest.mark.parametrize("values", [2, 60, 10**6])
def test_same_as_sorting(most, sizes, values):
    """Also where many scores are equal, and some rows are left out."""
    rng = np.random.default_rng(0)
    scores = rng.integers(-values, values, size=(6, 300)).astype("float32")
    scores[0] = 0
    scores[1] = np.sort(scores[1])
    scores[rng.random(scores.shape) < 0.1] = -np.inf
    scores[2] = -np.inf
    best, start = BestRows(most), 0
    for size in sizes:
        best.add(scores[:, start : start + size])
        start += size
    found = list(best.found())
    assert len(found) == len(scores)
    for (rows, numbers), line in zip(found, scores, strict=True):
        wanted = np.lexsort((np.arange(300), -line))[:most]
        wanted = wanted[np.isfinite(line[wanted])]
        np.testing.assert_array_equal(rows, wanted)
        np.testing.assert_array_equal(numbers, line[wanted])
