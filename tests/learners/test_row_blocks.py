"""Codes of blocks of rows, on one core or on several."""

import contextlib

import joblib
import numpy as np
import pytest

from keras_compembed.learners import AdditiveQuantizer
from keras_compembed.learners import row_blocks as blocks
from keras_compembed.learners.row_blocks import in_order
from keras_compembed.learners.row_blocks import row_blocks


@pytest.mark.parametrize("shape", [(4, 8), (16, 256), (2, 65536)])
@pytest.mark.parametrize("rows", [1, 16_384, 100_001])
def test_blocks_are_all_rows(rows, shape):
    parts = row_blocks(rows, *shape)
    ids = np.concatenate([np.arange(rows)[part] for part in parts])
    np.testing.assert_array_equal(ids, np.arange(rows))
    assert len(parts) == 1 or min(4 * np.prod(shape), 16_384) <= parts[0].stop


def test_results_come_in_order():
    taken = []

    def numbers():
        for number in range(100):
            taken.append(number)
            yield (number,)

    results = in_order(lambda number: -number, numbers())
    assert next(results) == 0 and taken == [0]
    with joblib.parallel_config("threading", n_jobs=2):
        results = in_order(lambda number: -number, numbers())
        assert list(results) == [-number for number in range(100)]


@contextlib.contextmanager
def two_jobs(backend):
    with contextlib.ExitStack() as stack:
        if backend == "dask":
            pytest.importorskip("distributed")
            from examples.large_table import cluster

            stack.enter_context(cluster(workers=2))
        else:
            stack.enter_context(joblib.parallel_config(backend, n_jobs=2))
        yield
        if backend == "loky":
            joblib.externals.loky.get_reusable_executor().shutdown()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed")
@pytest.mark.parametrize("backend", ["threading", "loky", "dask"])
def test_several_cores_give_the_codes_of_one(backend, monkeypatch):
    monkeypatch.setattr(blocks, "_CHUNKS", 1)
    rng = np.random.default_rng(0)
    table = rng.normal(size=(1800, 12)).astype("float32")
    weight = rng.random(1800)

    def learn():
        learner = AdditiveQuantizer(4, 8, effort=0.2, seed=0, verbose=0)
        learner.train(table, sample_weight=weight)
        return [learner.codes, learner.codebooks, learner.encode(table)]

    assert len(row_blocks(1800, 4, 8)) == 4
    expected = learn()
    with two_jobs(backend):
        for found, wanted in zip(learn(), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
