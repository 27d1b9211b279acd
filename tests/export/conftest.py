"""Fixtures of the tests of files."""

import functools

import pytest
import tensorflow as tf


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.tflite"


@pytest.fixture
def meanwhile(monkeypatch):
    """`meanwhile(change)` calls it when a model is converted, before checks.

    So the file holds what `change` changes as it was before.
    """
    load = tf.lite.TFLiteConverter.from_saved_model

    def meanwhile(change):
        def from_saved_model(*args, **kwargs):
            converter = load(*args, **kwargs)
            convert = converter.convert

            def convert_and_change():
                content = convert()
                change()
                return content

            converter.convert = convert_and_change
            return converter

        monkeypatch.setattr(
            tf.lite.TFLiteConverter, "from_saved_model", from_saved_model
        )

    return meanwhile


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
