"""Results as JSON, with what made them."""

import json
import os
import pathlib
import platform

import keras
import tensorflow as tf

from keras_compembed.utils.files import replacing


def write_record(path, command, **parts):
    """Writes results to a file, whole or not at all.

    Args:
        path: The file, which may exist.
        command: String, what made them.
        **parts: What else the file is to hold, e.g. `settings` and `rows`.
    """
    record = {
        "command": command,
        "cpu_count": os.cpu_count(),
        "machine": platform.machine(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        **parts,
    }
    with replacing(path, overwrite=True) as beside:
        pathlib.Path(beside).write_text(json.dumps(record, indent=1) + "\n")
