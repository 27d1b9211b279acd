"""Layers within layers: their configs, and whether they are frozen."""

import keras


def serialize_part(part):
    """The config of a part of a layer, which may be a part of others too.

    Keras marks what comes twice in a model, so that it is one object again
    when the model is loaded: in the config that it made of it the first time,
    of which a config within a config is a copy by then. Made twice, it is
    marked before it is copied.

    Args:
        part: Keras layer, or what else Keras makes configs of.

    Returns:
        What `keras.saving.serialize_keras_object` returns.
    """
    config = keras.saving.serialize_keras_object(part)
    if "shared_object_id" in config:
        return config
    return keras.saving.serialize_keras_object(part)


def freeze_part(layer, part):
    """Freezes a part of a layer whose constructor got `trainable=False`.

    Keras freezes parts only where the attribute is set later.

    Args:
        layer: Keras layer.
        part: Keras layer within it.
    """
    if not layer.trainable:
        part.trainable = False
