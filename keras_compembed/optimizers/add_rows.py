"""Weights of a layer that get more rows, wherever they are held."""

from keras_compembed.optimizers.weight_holders import exchange_in_holders
from keras_compembed.optimizers.weight_holders import longer


def add_rows(layer, added):
    """Puts longer weights in the place of weights of a built layer."""
    names = {id(value): name for name, value in vars(layer).items()}
    pairs = [(old, longer(old, rows)) for old, rows in added]
    # Keras locks the weights of a built layer.
    locked = layer._tracker.locked
    layer._tracker.unlock()
    try:
        for old, new in pairs:
            _replace_tracked(layer, old, new)
            if id(old) in names:
                setattr(layer, names[id(old)], new)
    finally:
        layer._tracker.locked = locked
    exchange_in_holders(layer, pairs)
    return [new for _, new in pairs]


def _replace_tracked(layer, old, new):
    tracker = layer._tracker
    for name in ("trainable_variables", "non_trainable_variables"):
        if tracker.is_in_store(name, old):
            # Not by `index`, which compares variables by their numbers.
            _, store = tracker.config[name]
            place = next(i for i, one in enumerate(store) if one is old)
            store[place] = new
            tracker.stored_ids[name].remove(id(old))
            tracker.stored_ids[name].add(id(new))
