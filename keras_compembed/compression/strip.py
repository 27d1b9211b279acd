"""Copies of models without training-only weights."""

import typing

import keras

from keras_compembed.exchange.copy_with import compile_like
from keras_compembed.exchange.copy_with import copy_with
from keras_compembed.exchange.model_copy import custom_objects
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.stores import KINDS
from keras_compembed.utils.model_parts import named_layers
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# A model, or a single layer.
Copied = typing.TypeVar("Copied", bound=keras.Layer)
# Parts of a layer that a user may freeze.
_PARTS = ("anchors", "codebooks", "composition", "projection", "transform")


def strip(
    model: Copied, max_nonzeros: int | None = None, trainable: bool = False
) -> Copied:
    """Returns a copy of a trained model without training-only weights.

    Learned codes and learned rows become fixed, and anchor transforms are
    stored sparse. Vectors of ids outside training do not change, unless entries
    of a transform are dropped. The given model does not change. If it is
    compiled, so is the copy, with a new optimizer. Use it like any model.

    Example:

    >>> layer = kc.ANTEmbedding(1000, 64, num_anchors=20, name="words")
    >>> model = keras.Sequential([keras.Input((3,), dtype="int32"), layer])
    >>> small = strip(model, max_nonzeros=500)
    >>> small.get_layer("words").nnz
    500

    Args:
        model: A built `keras.Model`, or a single built layer.
        max_nonzeros: Optional integer. The number of largest entries to keep in
            the transform of each `ANTEmbedding`. Defaults to `None`: the
            `target_nonzeros` of its `L1`, or all.
        trainable: Boolean. Whether the kept entries of transforms are
            trainable, in fixed places. Defaults to `False`.

    Returns:
        A new model, or a new layer.

    Raises:
        ValueError: If the model cannot be copied, or a weight is not finite.
    """
    check_positive_int("max_nonzeros", max_nonzeros, optional=True)
    check_boolean("trainable", trainable)
    layers = compressed_layers(model)
    with keras.utils.custom_object_scope(custom_objects(model)):
        stripped = {
            id(layer): layer._stripped(max_nonzeros, trainable)
            for layer in layers.values()
        }
    return copy_like(model, layers.values(), stripped)


def compressed_layers(model):
    """Layers of codes, anchors and quantized rows, by name or path."""
    require(model.built, "`model` must be built.", model=model.name)
    layers = named_layers(model, LookupLayer)
    second = {id(layer.reverse_embedding) for layer in layers.values()}
    return {
        name: layer
        for name, layer in layers.items()
        if id(layer) not in second and layer.store.kind in KINDS
    }


def copy_like(model, layers, replacements):
    """A copy with other layers, compiled like the model."""
    copy = replacements.get(id(model))
    if copy is None:
        copy = copy_with(model, [(x, replacements[id(x)]) for x in layers])
    for layer in layers:
        new = replacements[id(layer)]
        new.trainable = layer.trainable
        for name in _PARTS:
            old, part = (getattr(x, name, None) for x in (layer, new))
            if hasattr(part, "trainable") and hasattr(old, "trainable"):
                part.trainable = old.trainable
    if isinstance(copy, keras.Model):
        compile_like(copy, model)
    return copy
