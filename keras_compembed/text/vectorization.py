"""Keras's `TextVectorization` as a tokenizer that phones can run."""

import keras

from keras_compembed.text.word_tokenizer import STANDARDIZATIONS
from keras_compembed.text.word_tokenizer import WordTokenizer

# Settings of TextVectorization that give whole words as ids of one row.
_NEEDED = {
    "split": "whitespace",
    "ngrams": None,
    "output_mode": "int",
    "ragged": False,
}


def as_tokenizer(layer):
    """A `WordTokenizer` that gives the ids of a `TextVectorization`.

    `keras_compembed.export.export_litert` does this by itself.

    Example:

    >>> layer = keras.layers.TextVectorization(vocabulary=["red", "pear"])
    >>> tokenizer = as_tokenizer(layer)
    >>> tokenizer(["A red pear!"]).numpy().tolist()
    [[1, 2, 3]]

    Args:
        layer: A `keras.layers.TextVectorization` that has a vocabulary.

    Returns:
        A `WordTokenizer`.

    Raises:
        ValueError: if `layer` is set up in a way for which there is none.
    """
    if not isinstance(layer, keras.layers.TextVectorization):
        raise ValueError(
            "`layer` must be a `keras.layers.TextVectorization`. "
            f"Received: an object of type {type(layer).__name__}."
        )
    config = layer.get_config()
    needed = {"standardize": STANDARDIZATIONS, **_NEEDED}
    for name, wanted in needed.items():
        value = config[name]
        choices = wanted if isinstance(wanted, tuple) else (wanted,)
        if value not in choices:
            raise ValueError(
                "Only a `TextVectorization` that makes ids of whole words can "
                "be replaced by a tokenizer that phones run: its `"
                f"{name}` must be {' or '.join(map(repr, choices))}. "
                f"Received: {name}={value!r} in layer {layer.name!r}."
            )
    words = layer.get_vocabulary()[2:]
    if not words:
        raise ValueError(
            "`layer` must have a vocabulary: call its `adapt` first. Received: "
            f"{layer.name!r}, which knows no words."
        )
    return WordTokenizer(
        words,
        standardize=config["standardize"],
        sequence_length=config["output_sequence_length"],
        unknown_if_empty=False,
        name=layer.name,
    )
