"""Tables of a model that `compress_model` would leave, and why."""

import dataclasses

import keras

from keras_compembed.compression.replaceable_layers import reason_against
from keras_compembed.compression.replaceable_layers import reason_to_skip
from keras_compembed.compression.table_choice import SMALLEST_BYTES
from keras_compembed.compression.table_choice import layers_that_hold
from keras_compembed.methods.codes import Codes
from keras_compembed.utils.layer_names import named_layers
from keras_compembed.utils.sizes import count_bytes


@dataclasses.dataclass(frozen=True)
class LeftTable:
    """A plain table of a model."""

    name: str
    input_dim: int
    output_dim: int
    stored_bytes: int
    reason: str | None


def left_tables(model):
    """The Embedding layers of a model, and why some cannot be replaced."""
    method, held = Codes(), layers_that_hold(model)
    tables = []
    for name, layer in named_layers(model, keras.layers.Embedding).items():
        size = count_bytes(layer.weights)
        shape = layer.input_dim, layer.output_dim
        reason = reason_to_skip(layer, SMALLEST_BYTES, held)
        reason = reason or reason_against(layer, method)
        if not reason and method.litert_bytes(*shape) >= size:
            reason = f"{method.name} would be no smaller than it is"
        tables.append(LeftTable(name, *shape, size, reason))
    return tables
