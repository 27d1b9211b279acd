"""Other attributes of an object for a while."""

import contextlib

_MISSING = object()


@contextlib.contextmanager
def swapped(holder, **attributes):
    """Sets attributes for a while, past Keras's tracking."""
    state = vars(holder)
    before = {name: state.get(name, _MISSING) for name in attributes}
    state.update(attributes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is _MISSING:
                del state[name]
            else:
                state[name] = value
