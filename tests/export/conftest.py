"""Fixtures of the tests of files."""

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
