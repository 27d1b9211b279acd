"""Optional dependencies."""

import importlib


def import_extra(module, extra):
    """Imports `module`, or raises with the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"This needs `{module.partition('.')[0]}`, which is not installed. "
            f"Run: pip install 'keras-compembed[{extra}]'"
        ) from error


def import_tensorflow_text():
    """Imports tensorflow-text, or raises with the version to install."""
    module = import_extra("tensorflow_text", "text")
    # In 2.18 it writes beyond its memory in large batches.
    if tuple(map(int, module.__version__.split(".")[:2])) < (2, 21):
        raise ImportError(
            "Tokenizers need tensorflow-text 2.21 or newer, and TensorFlow of "
            "the same version: older ones corrupt memory in large batches. "
            f"Received: tensorflow-text {module.__version__}."
        )
    return module
