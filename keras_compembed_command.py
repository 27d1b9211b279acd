"""Starts the command `keras-compembed`, which checks arguments first.

`import keras_compembed` imports TensorFlow, for seconds: Keras finds the
layers of a file by what that import registers. So this module is outside of
the package. It makes the package known by its folder, as a module that has
not run. That is enough for `keras_compembed.cli` and the checks that it uses;
`keras_compembed.cli.package` runs the package once arguments are right.
"""

import importlib.util
import os
import sys

_PACKAGE = "keras_compembed"


def main():
    """Runs the command with the arguments of the process.

    Returns:
        The exit status, see `keras_compembed.cli.main`.
    """
    _open_missing_streams()
    is_known = _PACKAGE in sys.modules
    try:
        if not is_known:
            spec = importlib.util.find_spec(_PACKAGE)
            sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
        from keras_compembed.cli.stops import Stops

        stops = Stops()
        stops.listen()
        from keras_compembed.cli import main

        return main(stops=stops)
    except KeyboardInterrupt:
        # Before anything listened.
        print("keras-compembed: error: interrupted", file=sys.stderr)
        return 130
    finally:
        if not is_known:
            _forget_unless_whole()


def _forget_unless_whole():
    """Leaves no package that has not run to what imports it later."""
    if not hasattr(sys.modules.get(_PACKAGE), "__version__"):
        for name in list(sys.modules):
            if f"{name}.".startswith(f"{_PACKAGE}."):
                del sys.modules[name]


def _open_missing_streams():
    """Gives the process what it was started without, as by `2>&-`.

    The first files that it opens would take these places otherwise, and get
    its messages.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
