"""Finds functions, classes, layers and variables that objects hold."""

import functools
import inspect
import types

import keras

_LIBRARIES = ("builtins", "keras", "numpy", "tensorflow")


def held_objects(root):
    """Yields an object and what it holds, however deep, each thing once."""
    seen, rest = set(), [root]
    while rest:
        item = rest.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        rest.extend(_parts(item))


def custom_objects(root):
    """Functions and classes of the user that an object's config may name."""
    found = {}
    for item in held_objects(root):
        if not isinstance(item, types.FunctionType):
            if not hasattr(item, "get_config"):
                continue
            item = item if isinstance(item, type) else type(item)
        if not (_is_of_library(item) and _is_found(item)):
            found.setdefault(item.__name__, item)
    return found


def _parts(item):
    if isinstance(item, (list, tuple, set)):
        return list(item)
    if isinstance(item, dict):
        return list(item.values())
    if isinstance(item, functools.partial):
        return [item.func, *item.args, *item.keywords.values()]
    if isinstance(item, types.MethodType):
        return [item.__self__, item.__func__]
    if isinstance(item, types.FunctionType):
        return [] if _is_of_library(item) else _read_from_outside(item)
    if isinstance(item, (type, types.ModuleType)):
        return []
    if hasattr(item, "get_config") or not _is_of_library(type(item)):
        return list(getattr(item, "__dict__", {}).values())
    return []


def _read_from_outside(function):
    try:
        outside = inspect.getclosurevars(function)
    except ValueError:
        # A variable of its closure has no value yet.
        return []
    return [
        *outside.nonlocals.values(),
        *outside.globals.values(),
        *(function.__defaults__ or ()),
    ]


def _is_of_library(item):
    return (item.__module__ or "").split(".")[0] in _LIBRARIES


def _is_found(item):
    """Whether Keras knows the name of something of a library."""
    if not isinstance(item, types.FunctionType):
        return True
    config = keras.saving.serialize_keras_object(item)
    try:
        return keras.saving.deserialize_keras_object(config) is item
    except (TypeError, ValueError):
        return False
