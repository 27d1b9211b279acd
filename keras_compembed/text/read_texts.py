"""Texts to learn or to count tokens from."""

import numpy as np
import tensorflow as tf


def read_texts(texts):
    """Yields the strings of a list, an array or a data set."""
    if isinstance(texts, (str, bytes)) or not hasattr(texts, "__iter__"):
        raise ValueError(
            "`texts` must be an iterable of strings. Received: one object of "
            f"type {type(texts).__name__}."
        )
    is_empty = True
    for text in _flat(texts):
        if isinstance(text, bytes):
            text = text.decode("utf-8", errors="replace")
        if not isinstance(text, str):
            raise ValueError(
                "`texts` must hold strings. "
                f"Received: an object of type {type(text).__name__}."
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                "`texts` must hold text that UTF-8 can hold. "
                f"Received: {text[:80]!r} ({error})."
            ) from error
        is_empty = False
        yield text
    if is_empty:
        raise ValueError("`texts` must hold a text. Received: none.")


def _flat(texts):
    """Strings, also of tensors and arrays among them."""
    for text in [texts] if tf.is_tensor(texts) else texts:
        if tf.is_tensor(text):
            text = text.numpy()
        if isinstance(text, np.ndarray):
            yield from text.ravel().tolist()
        else:
            yield text
