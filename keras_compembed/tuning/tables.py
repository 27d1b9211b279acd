"""The tables of a model that a search is about."""

import keras

from keras_compembed.compression.no_tables import why_no_tables
from keras_compembed.compression.replaceable_layers import reason_to_skip
from keras_compembed.compression.table_choice import layers_that_hold
from keras_compembed.compression.table_choice import read_names
from keras_compembed.methods.codes import Codes
from keras_compembed.utils.layer_names import named_layers
from keras_compembed.utils.sizes import count_bytes

_OWN = ("pooled", "sample_weight")
_SMALLEST = Codes(1, 2)


class Tables:
    """Embedding layers of a model, all stored by one method."""

    def __init__(self, model, layers, layer_settings, min_bytes):
        self.settings = dict(layer_settings or {})
        for name, own in self.settings.items():
            unknown = sorted(set(own) - set(_OWN))
            if unknown:
                raise ValueError(
                    f"`layer_settings` may set {' and '.join(_OWN)} here; the "
                    f"search sets the rest. Received: {unknown} for the layer "
                    f"{name!r}."
                )
        wanted, _ = read_names(model, layers, self.settings)
        self._held = layers_that_hold(model)
        self.layers, reasons = {}, []
        for name, layer in named_layers(model, keras.layers.Embedding).items():
            if layers is not None and id(layer) not in wanted:
                continue
            smallest = min_bytes if layers is None else 0
            reason = reason_to_skip(layer, _SMALLEST, smallest, self._held)
            if not reason:
                self.layers[name] = layer
                continue
            reasons.append(f"{name}: {reason}")
            if layers is not None:
                raise ValueError(
                    "`layers` must name layers that can be replaced. "
                    f"Received: {name!r}, but {reason}."
                )
        if not self.layers:
            raise ValueError(
                f"The model {model.name!r} must have a table to compress. "
                "Received: a model of which none is replaced: "
                + ("; ".join(reasons) or why_no_tables(model))
                + "."
            )

    def bytes_of(self, method, quantize):
        """Bytes of all tables in a LiteRT file, or None if one is not held."""
        total = 0
        for layer in self.layers.values():
            if reason_to_skip(layer, method, 0, self._held):
                return None
            shape = layer.input_dim, layer.output_dim
            count = _count_tables(layer)
            if count * method.litert_bytes(*shape) >= count_bytes(
                layer.weights
            ):
                return None
            size = method.litert_bytes(*shape, quantize)
            if size >= table_bytes(*shape, quantize):
                return None
            total += count * size
        return total

    def original_bytes(self, quantize):
        """Bytes of all tables as they are, in a LiteRT file."""
        return sum(
            _count_tables(layer)
            * table_bytes(layer.input_dim, layer.output_dim, quantize)
            for layer in self.layers.values()
        )


def table_bytes(input_dim, output_dim, quantize):
    """Bytes of a table as it is, in a LiteRT file."""
    number = {"float16": 2, "int8": 1}.get(quantize, 4)
    return input_dim * output_dim * number


def _count_tables(layer):
    """Two where reverse calls have a table of their own."""
    return 1 if getattr(layer, "tie_weights", True) else 2
