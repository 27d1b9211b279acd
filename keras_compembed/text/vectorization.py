"""Keras's `TextVectorization` as a tokenizer that phones can run."""

from keras_compembed.text.word_tokenizer import STANDARDIZATIONS
from keras_compembed.text.word_tokenizer import WordTokenizer
from keras_compembed.utils.validation import require

# Settings of TextVectorization that give whole words as ids of one row.
_CHOICES = {
    "standardize": STANDARDIZATIONS,
    "split": ("whitespace",),
    "ngrams": (None,),
    "output_mode": ("int",),
    "ragged": (False,),
}


def as_tokenizer(layer):
    """A `WordTokenizer` that gives the ids of a `TextVectorization`."""
    config = layer.get_config()
    for name, choices in _CHOICES.items():
        require(
            config[name] in choices,
            "Only a `TextVectorization` that makes ids of whole words can be "
            f"replaced by a tokenizer that phones run: its `{name}` must be "
            f"{' or '.join(map(repr, choices))}.",
            **{name: config[name]},
            layer=layer.name,
        )
    words = layer.get_vocabulary()[2:]
    require(
        words,
        "`layer` must have a vocabulary: call its `adapt` first.",
        layer=layer.name,
    )
    return WordTokenizer(
        words,
        standardize=config["standardize"],
        sequence_length=config["output_sequence_length"],
        unknown_if_empty=False,
        name=layer.name,
    )
