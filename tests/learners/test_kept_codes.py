"""Finished codes of tables, kept in a folder."""

import numpy as np
import pytest
from small_learners import interrupted

import keras_compembed as kc

TABLE = np.random.default_rng(0).normal(size=(300, 12)).astype("float32")
WEIGHT = np.random.default_rng(1).random(300)


def train(cache, table=TABLE, weight=WEIGHT, seed=0, effort=0.2):
    learner = kc.learners.AdditiveQuantizer(
        4, 8, effort=effort, seed=seed, verbose=0, cache=cache
    )
    return learner.train(table, weight)


def check_equal(found, expected):
    assert found.history["loss"] == expected.history["loss"]
    np.testing.assert_array_equal(found.codes, expected.codes)
    np.testing.assert_array_equal(found.codebooks, expected.codebooks)


def test_same_work_is_done_once(tmp_path, monkeypatch):
    folder = tmp_path / "codes"
    shards = [TABLE[:100], TABLE[100:] + 1]
    calls = (
        {},
        {"effort": 0.1},
        {"seed": 1},
        {"table": TABLE.astype("float16")},
        {"table": shards},
        {"weight": None},
    )
    expected = [train(None, **options) for options in calls]
    for options, other in zip(calls, expected, strict=True):
        check_equal(train(folder, **options), other)
    assert len(list(folder.iterdir())) == len(calls)
    run = "keras_compembed.learners.quantizer_run.QuantizerRun.run"
    monkeypatch.delattr(run)
    for options, other in zip(calls, expected, strict=True):
        check_equal(train(folder, **options), other)


def test_what_differs_from_run_to_run_is_not_kept(tmp_path):
    train(tmp_path, seed=None)
    found, was_interrupted = interrupted(lambda: train(tmp_path), 150)
    assert was_interrupted and found.codes is not None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["cut", "other"])
def test_damaged_files_are_made_again(damage, tmp_path):
    expected = train(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:300])
    if damage == "other":
        np.savez(path, codes=np.zeros(3))
    with pytest.warns(UserWarning, match="cannot be read"):
        check_equal(train(tmp_path), expected)
    check_equal(train(tmp_path), expected)
