"""Which tables of a model a search is about."""

import keras

from keras_compembed.compression.id_counts import weights_by_counts
from keras_compembed.compression.no_tables import why_no_tables
from keras_compembed.compression.only_readers import find_poolings
from keras_compembed.compression.pooling_choice import get_pooling
from keras_compembed.compression.replaceable_layers import reason_to_skip
from keras_compembed.compression.searched_table import SearchedTable
from keras_compembed.compression.table_choice import CODES
from keras_compembed.compression.table_choice import layers_that_hold
from keras_compembed.compression.table_choice import read_names
from keras_compembed.methods.codes import Codes
from keras_compembed.utils.layer_names import named_layers


def find_searched_tables(
    model, layers, layer_settings, min_bytes, seed, search, verbose
):
    """`SearchedTable`s of a model."""
    names = named_layers(model, keras.layers.Embedding)
    wanted, own_settings = read_names(model, layers, layer_settings or {})
    held = layers_that_hold(model)
    poolings = find_poolings(model)
    found, skipped = [], []
    for name, layer in names.items():
        settings = {
            "pooled": None,
            "sample_weight": None,
            "seed": seed,
            **own_settings.get(id(layer), {}),
        }
        if layers is not None and id(layer) not in wanted:
            reason = "not named in `layers`"
        else:
            smallest = min_bytes if layers is None else 0
            reason = reason_to_skip(layer, None, smallest, held)
        if not reason:
            if settings["sample_weight"] is None:
                settings["sample_weight"] = weights_by_counts(
                    model, layer, search.train_data
                )
            table = SearchedTable(
                name,
                layer,
                settings,
                get_pooling(
                    name, layer, {**settings, "method": Codes()}, poolings
                ),
                _own_methods(settings) or search.methods,
            )
            if not table.choices:
                reason = "no method can take its place"
        if not reason:
            found.append(table)
        elif id(layer) in wanted:
            raise ValueError(
                "`layers` must name layers that can be replaced. "
                f"Received: {name!r}, but {reason}."
            )
        else:
            skipped.append(f"{name}: left as it is, {reason}")
    if not found:
        raise ValueError(
            f"Nothing to compress in the model {model.name!r}: "
            + ("; ".join(skipped) or why_no_tables(model))
            + "."
        )
    if verbose:
        print(*skipped, sep="\n", end="\n" if skipped else "")
    return found


def _own_methods(settings):
    """A list of the method of a layer's own settings, or None."""
    if settings.get("method") is not None:
        return [settings["method"]]
    own = {name: settings[name] for name in CODES if name in settings}
    return [Codes(**own)] if own else None
