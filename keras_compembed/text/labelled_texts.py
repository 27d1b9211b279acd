"""Checks of texts and labels as users have them, and what is made of them."""

import re

import numpy as np

from keras_compembed.text.tokenizer import Tokenizer


def check_texts(name, texts):
    """A list of strings."""
    found = [str(text) for text in _read(name, texts, "strings", str)]
    if not found:
        raise ValueError(f"`{name}` must hold texts. Received: none.")
    return found


def check_labels(name, labels, num_texts):
    """The labels of texts, as a list."""
    found = _read(
        name,
        labels,
        "labels",
        (str, int, np.integer, np.bool_),
        "strings or integers, one a text",
    )
    if len(found) != num_texts:
        raise ValueError(
            f"`{name}` must hold one label a text. Received: {len(found)} "
            f"labels and {num_texts} texts."
        )
    return found


def find_classes(name, labels):
    """The classes that labels name, and the place of each label among them."""
    kinds = {str(label): label for label in labels}
    numbers = all(not isinstance(label, str) for label in kinds.values())
    classes = sorted(kinds, key=int if numbers and _are_ints(kinds) else None)
    for each in classes:
        if not each.strip() or any(mark in each for mark in "\n\r\0"):
            raise ValueError(
                f"`{name}` must have names of one line. Received: {each!r} at "
                f"place {labels.index(kinds[each])}."
            )
    if len(classes) < 2:
        raise ValueError(
            f"`{name}` must be of at least two kinds, to tell them apart. "
            f"Received: only {classes[0]!r}."
        )
    places = {each: place for place, each in enumerate(classes)}
    return classes, np.array([places[str(x)] for x in labels], "int32")


def check_tokenizer(tokenizer):
    """Raises unless it is None or a tokenizer that phones run."""
    if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
        raise ValueError(
            "`tokenizer` must be a tokenizer of `keras_compembed.text`. "
            f"Received: an object of type {type(tokenizer).__name__}."
        )


def _read(name, items, what, kinds, rule=None):
    """A list of items, which must be of some kinds; bytes become strings."""
    if not _has_order(items):
        raise ValueError(
            f"`{name}` must be a list or an array of {what}. "
            f"Received: an object of type {type(items).__name__}."
        )
    found = []
    for place, item in enumerate(_flat(items)):
        if isinstance(item, bytes):
            item = item.decode("utf-8", errors="replace")
        if not isinstance(item, kinds):
            raise ValueError(
                f"`{name}` must hold {rule or what}. Received: {item!r} at "
                f"place {place}{_hint(item)}"
            )
        found.append(item)
    return found


def _has_order(items):
    """Whether items can be paired with others: sets cannot."""
    no_list = isinstance(items, (str, bytes, dict, set, frozenset))
    return hasattr(items, "__iter__") and not no_list


def _flat(items):
    """Items of an iterable, of an array `(n,)` or `(n, 1)`."""
    if hasattr(items, "numpy"):
        items = items.numpy()
    if isinstance(items, np.ndarray) and items.ndim == 2:
        if items.shape[1] == 1:
            items = items[:, 0]
    return items


def _are_ints(names):
    return all(re.fullmatch(r"-?\d+", name) for name in names)


def _hint(item):
    if item is None or (isinstance(item, float) and np.isnan(item)):
        return ", an empty cell of a table: leave such rows out."
    return "."
