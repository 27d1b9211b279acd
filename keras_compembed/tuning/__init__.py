"""Searches with keras-tuner for how to store a model's tables.

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
    # A subclass of one of keras-tuner's, which may not be there.
    if name == "CompressedHyperModel":
        import_extra("keras_tuner", "tune")
        from keras_compembed.tuning import compressed_hyper_model

        return compressed_hyper_model.CompressedHyperModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
