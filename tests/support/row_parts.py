"""Ways to hold a transform, built without a layer."""

import keras
import numpy as np

from keras_compembed.transforms import L1
from keras_compembed.transforms.free_entries import FreeEntries
from keras_compembed.transforms.transform_start import TransformStart

NUM_ROWS, NUM_ANCHORS = 12, 5


def add_weight(name, shape, initializer, dtype, trainable):
    return keras.Variable(
        keras.initializers.get(initializer),
        shape,
        dtype=dtype,
        trainable=trainable,
        name=name,
    )


def build_rows(rows, l1=None, relations=None, anchor_ids=None):
    """Gives `TransformRows` a shape and variables."""
    l1 = l1 or L1()
    if anchor_ids is None:
        anchor_ids = np.full(NUM_ANCHORS, -1)
    rows.set_shape(NUM_ROWS, NUM_ANCHORS)
    rows.build(
        add_weight,
        "float32",
        TransformStart(anchor_ids, l1.non_negative, seed=0),
        l1,
        keras.Variable(l1.l1, dtype="float32", trainable=False),
        FreeEntries.from_relations(relations, anchor_ids),
    )
    return rows
