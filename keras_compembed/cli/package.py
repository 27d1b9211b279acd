"""The package as a whole, and TensorFlow with it."""

import os
import sys

from keras_compembed.cli.lines import show


def load_package():
    """Imports what `keras_compembed_command` left for later."""
    package = sys.modules["keras_compembed"]
    if hasattr(package, "__version__"):
        return
    # TensorFlow tells of the machine; what fails is raised all the same.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    show("importing TensorFlow")
    package.__spec__.loader.exec_module(package)
