"""Which tables of a model are replaced."""

import collections
import dataclasses

import keras

from keras_compembed.compression.replaceable_layers import is_embed_reduce
from keras_compembed.compression.replaceable_layers import reason_against
from keras_compembed.compression.replaceable_layers import reason_to_skip
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.methods.codes import Codes
from keras_compembed.utils.model_parts import layer_paths
from keras_compembed.utils.model_parts import named_layers
from keras_compembed.utils.model_parts import own_variables
from keras_compembed.utils.sizes import count_bytes
from keras_compembed.utils.validation import require

# Smaller tables stay where nobody names them.
SMALLEST_BYTES = 65_536


def find_layers(model, argument, names):
    """Dict from the `id` of each Embedding layer that is named to its name."""
    if names is None:
        return None
    require(
        not isinstance(names, str),
        f"`{argument}` must be a list of names.",
        **{argument: names},
    )
    paths = {
        path: layer
        for path, layer in layer_paths(model).items()
        if isinstance(layer, keras.layers.Embedding)
    }
    found = {}
    for name in names:
        layer = _find(argument, name, paths)
        require(
            id(layer) not in found,
            f"`{argument}` must name each layer once.",
            names=[found.get(id(layer)), name],
        )
        found[id(layer)] = name
    return found


def _find(argument, name, paths):
    """The Embedding layer of a path, or of a name that is one layer's."""
    if name in paths:
        return paths[name]
    found = {path: x for path, x in paths.items() if x.name == name}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise ValueError(
            f"`{argument}` must name layers by path where several have one "
            f"name. Received: {name!r}, the name of {sorted(found)}."
        )
    names = sorted({layer.name for layer in paths.values()})
    raise ValueError(
        f"`{argument}` must name Embedding layers of the model, "
        f"which are {names}. Received: {name!r}."
    )


def layers_that_hold(model):
    """Dict from the `id` of a variable to the layers that have it as theirs."""
    found = {}
    for path, layer in layer_paths(model).items():
        for variable in own_variables(layer):
            found.setdefault(id(variable), {})[id(layer)] = path
    return found


def choose_tables(model, wanted, argument, make, verbose):
    """What `make(name, layer)` makes of tables: it gives a reason against one.

    `wanted` is what `find_layers` found by an argument, or None.
    """
    held = layers_that_hold(model)
    found, skipped = [], []
    for name, layer in named_layers(model, keras.layers.Embedding).items():
        is_wanted = wanted is not None and id(layer) in wanted
        if is_wanted or wanted is None:
            smallest = 0 if is_wanted else SMALLEST_BYTES
            made = reason_to_skip(layer, smallest, held) or make(name, layer)
        else:
            made = f"not named in `{argument}`"
        if not isinstance(made, str):
            found.append(made)
            continue
        if is_wanted:
            raise ValueError(
                f"`{argument}` must name layers that can be replaced. "
                f"Received: {name!r}, but {made}."
            )
        skipped.append(f"{name}: left as it is, {made}")
    if not found:
        raise ValueError(
            f"Nothing to compress in the model {model.name!r}: "
            + ("; ".join(skipped) or _why_no_tables(model))
            + "."
        )
    if verbose:
        print(*skipped, sep="\n", end="\n" if skipped else "")
    return found


def _why_no_tables(model):
    """What to say of a model without Embedding layers."""
    names = ", ".join(named_layers(model, LookupLayer))
    if not names:
        return "it has no Embedding layers"
    return (
        f"it has no Embedding layers, and is compressed already: {names}. "
        "Begin with the model that has their tables"
    )


def get_pooling(layer, method, poolings):
    """The `Pooling` that rows of a method can do, or None."""
    if is_embed_reduce(layer) or not (method.combines and method.pooled):
        return None
    return poolings.get(id(layer))


def keep_shared_poolings(tables, poolings):
    """Lets tables give rows whose pooling is that of others too, which stay."""
    needed = _count(poolings.values())
    found = _count(table.pooling for table in tables)
    for table in tables:
        if table.pooling is not None:
            key = id(table.pooling.operation)
            if found[key] != needed[key]:
                table.keep_rows()


def _count(poolings):
    return collections.Counter(
        id(pooling.operation) for pooling in poolings if pooling is not None
    )


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
