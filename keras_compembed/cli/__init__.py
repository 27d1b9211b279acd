"""The command `keras-compembed`: compress, export, report, inspect, page.

Nothing that these modules import at their top needs TensorFlow, so that bad
arguments are found at once.
"""

from keras_compembed.cli.command import main

__all__ = ["main"]
