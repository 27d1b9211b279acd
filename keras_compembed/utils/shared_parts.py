"""Layers within layers: their configs, and whether they are frozen."""

import keras


def serialize_part(part):
    """The config of a part of a layer, which may be a part of others too."""
    config = keras.saving.serialize_keras_object(part)
    if "shared_object_id" in config:
        return config
    return keras.saving.serialize_keras_object(part)


def freeze_part(layer, part):
    """Freezes a part of a layer whose constructor got `trainable=False`."""
    if not layer.trainable:
        part.trainable = False
