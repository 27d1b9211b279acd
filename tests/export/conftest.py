"""Fixtures of the tests of files."""

import functools

import pytest


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.tflite"


@pytest.fixture
def wrong_rows(monkeypatch):
    """`wrong_rows(layer, change)` makes files with other rows of a layer.

    `change(rows, ids)` gives them, where `rows(ids)` are the right ones.
    """

    def wrong_rows(layer, change):
        litert = type(layer.store).litert
        right = getattr(litert, "right", litert)

        def wrong(store, options, path):
            form = right(store, options, path)
            form.look_up = functools.partial(change, form.look_up)
            return form

        wrong.right = right
        monkeypatch.setattr(type(layer.store), "litert", wrong)

    return wrong_rows
