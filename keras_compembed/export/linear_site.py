"""Places in a traced model where layers took codes instead of vectors."""

import dataclasses

import tensorflow as tf

from keras_compembed.export.marks import MarkedLookup
from keras_compembed.export.vectors import Vectors


@dataclasses.dataclass(eq=False)
class LinearSite:
    """A place where a layer took something else than its input."""

    key: tuple
    owner: object
    source: Vectors
    output: tf.Tensor | None = None
    width: int = 0
    lookup: MarkedLookup | None = None
