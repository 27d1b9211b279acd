"""What errors and warnings say, without their sentences."""

import contextlib
import warnings

import pytest


@contextlib.contextmanager
def refused(argument=None, received=None, error=ValueError):
    """Expects an error that names an argument in backticks, if given.

    And what was received, or a part of it, behind "Received:".
    """
    with pytest.raises(error) as caught:
        yield caught
    message = str(caught.value)
    if argument is not None:
        assert f"`{argument}`" in message, message
    if received is not None:
        _, found, shown = message.rpartition("Received")
        assert found and str(received) in shown, message


@contextlib.contextmanager
def warned(text):
    """Asserts that a warning says so.

    `pytest.warns` would raise what Keras warns of its own use of NumPy.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        yield
    assert any(text in str(each.message) for each in said)
