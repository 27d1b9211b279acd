"""Which tables of a model give pooled vectors once they are codes."""

import collections

from keras_compembed.compression.replaceable_layers import is_embed_reduce


def get_pooling(name, layer, settings, poolings):
    """The `Pooling` that the codes of a table can do, or None."""
    asked = settings["pooled"]
    if is_embed_reduce(layer):
        if asked is False:
            raise ValueError(
                "`layer_settings` must not have pooled=False for a layer that "
                f"pools by itself. Received: it, for the {type(layer).__name__}"
                f" {name!r}."
            )
        return None
    pooling = poolings.get(id(layer))
    if asked and (pooling is None or not settings["method"].combines):
        raise ValueError(
            "`layer_settings` may have pooled=True for layers whose rows "
            "nothing reads but a `GlobalAveragePooling1D`, or a "
            "`keras.ops.mean` or `sum` over time, in the graph of a Sequential "
            f"or functional model. Received: it, for the layer {name!r}."
        )
    if asked is False or not settings["method"].combines:
        return None
    return pooling


def keep_shared_poolings(tables, poolings):
    """Lets tables give rows whose pooling is that of others too, which stay."""
    needed = _count(poolings.values())
    found = _count(table.pooling for table in tables)
    for table in tables:
        if table.pooling is None:
            continue
        key = id(table.pooling.operation)
        if found[key] == needed[key]:
            continue
        if table.must_pool:
            raise ValueError(
                "`layer_settings` may have pooled=True where all that the "
                "pooling reads is replaced and pooled. Received: it, for the "
                f"layer {table.name!r}, whose "
                f"{table.pooling.operation.name!r} also pools another layer, "
                "which stays as it is."
            )
        table.keep_rows()


def _count(poolings):
    return collections.Counter(
        id(pooling.operation) for pooling in poolings if pooling is not None
    )
