"""Optional dependencies."""

import importlib


def import_extra(module, extra):
    """Imports `module`, or says which extra of this package brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"This needs `{module.partition('.')[0]}`, which is not installed. "
            f"Run: pip install 'keras-compembed[{extra}]'"
        ) from error


def import_tensorflow_text():
    """Imports tensorflow-text, or says which version tokenizers need."""
    module = import_extra("tensorflow_text", "text")
    # That of 2.18 writes beyond its memory in large batches.
    if tuple(map(int, module.__version__.split(".")[:2])) < (2, 21):
        raise ImportError(
            "Tokenizers need tensorflow-text 2.21 or newer, whose "
            "FastSentencepieceTokenizer keeps to its memory in large batches, "
            "and TensorFlow of the same version. Received: tensorflow-text "
            f"{module.__version__}."
        )
    return module
