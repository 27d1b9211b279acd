"""Searches with keras-tuner for the best method to store tables.

They need the extra `tune`.
"""

import typing

from keras_compembed.utils.extras import import_extra

if typing.TYPE_CHECKING:
    from keras_compembed.tuning.compressed_hyper_model import (
        CompressedHyperModel,
    )

__all__ = ["CompressedHyperModel"]


def __getattr__(name):
    # Its base class is from keras-tuner, which may not be installed.
    if name == "CompressedHyperModel":
        import_extra("keras_tuner", "tune")
        from keras_compembed.tuning import compressed_hyper_model

        return compressed_hyper_model.CompressedHyperModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
