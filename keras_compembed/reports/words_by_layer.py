"""Words of the rows of layers."""

import keras

from keras_compembed.utils.validation import check_order


def words_by_layer(layers, words):
    """Words of the rows of layers."""
    if words is None:
        return {}
    if not isinstance(words, dict):
        words = _as_list(words)
        found = {
            name: words
            for name, layer in layers.items()
            if layer.input_dim == len(words)
        }
        if not found:
            rows = {name: layer.input_dim for name, layer in layers.items()}
            raise ValueError(
                "`words` must have a word for each row of a layer, which are "
                f"{rows or 'none'}. Received: {len(words)} words."
            )
        return found
    for name, own in words.items():
        if name not in layers:
            raise ValueError(
                "`words` must name embedding layers of the model, which are "
                f"{sorted(layers)}. Received: {name!r}."
            )
        if len(_as_list(own)) != layers[name].input_dim:
            raise ValueError(
                "`words` must have a word for each row of a layer, "
                f"{layers[name].input_dim} of {name!r}. Received: {len(own)} "
                "words."
            )
    return {name: _as_list(own) for name, own in words.items()}


def _as_list(words):
    if isinstance(words, str | keras.layers.Layer) or not hasattr(
        words, "__iter__"
    ):
        raise ValueError(
            "`words` must be a list of words, or a dict from the name of a "
            f"layer to one. Received: words={words!r}."
        )
    return [
        word.decode("utf-8", "replace")
        if isinstance(word, bytes)
        else str(word)
        for word in check_order("words", words)
    ]
