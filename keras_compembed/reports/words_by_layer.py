"""Words of the rows of layers."""

import keras

from keras_compembed.utils.validation import check_order
from keras_compembed.utils.validation import require


def words_by_layer(layers, words):
    """Words of the rows of layers."""
    if words is None:
        return {}
    rows = {name: layer.input_dim for name, layer in layers.items()}
    if not isinstance(words, dict):
        words = _as_list(words)
        found = {x: words for x, size in rows.items() if size == len(words)}
        require(
            found,
            f"`words` must have a word for each row of a layer, {rows}.",
            words=f"{len(words)} words",
        )
        return found
    words = {name: _as_list(own) for name, own in words.items()}
    for name, own in words.items():
        require(
            name in rows,
            "`words` must name embedding layers of the model, which are "
            f"{sorted(rows)}.",
            name=name,
        )
        require(
            len(own) == rows[name],
            f"`words` must have a word for each row of {name!r}, {rows[name]}.",
            words=f"{len(own)} words",
        )
    return words


def _as_list(words):
    require(
        not isinstance(words, str | keras.layers.Layer)
        and hasattr(words, "__iter__"),
        "`words` must be a list of words, or a dict from the name of a layer "
        "to one.",
        words=words,
    )
    return [
        word.decode("utf-8", "replace")
        if isinstance(word, bytes)
        else str(word)
        for word in check_order("words", words)
    ]
