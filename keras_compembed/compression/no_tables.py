"""Why there is no table to compress in a model."""

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.utils.layer_names import named_layers


def why_no_tables(model):
    """What to say of a model without Embedding layers."""
    names = ", ".join(named_layers(model, LookupLayer))
    if not names:
        return "it has no Embedding layers"
    return (
        f"it has no Embedding layers, and is compressed already: {names}. "
        "Begin with the model that has their tables"
    )
