"""A tokenizer of whole words that runs on phones."""

import collections
import re
from collections.abc import Iterable

import keras
import tensorflow as tf

from keras_compembed.text import piece_table
from keras_compembed.text.piece_table import SPACE
from keras_compembed.text.piece_table import Piece
from keras_compembed.text.tokenizer import Tokenizer
from keras_compembed.text.tokenizer import check_each_once
from keras_compembed.text.tokenizer import read_texts
from keras_compembed.utils.extras import import_tensorflow_text
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_order
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# As in `keras.layers.TextVectorization`.
_PUNCTUATION = "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'"
STANDARDIZATIONS = (
    None,
    "lower",
    "strip_punctuation",
    "lower_and_strip_punctuation",
    "lower_and_split_punctuation",
)
# Replaces `SPACE` in texts and words.
_NO_SPACE = "\U0010ffff"
# Ids in the SentencePiece model. Words follow.
_REST, _SPACE, _END = 0, 1, 2
_FIRST_WORD = 3
# Ids of the layer.
_PAD, _UNKNOWN = 0, 1


@keras.saving.register_keras_serializable(package="keras_compembed")
class WordTokenizer(Tokenizer):
    """Splits texts into words and returns their ids, also on phones.

    Ids are the same as from `keras.layers.TextVectorization` with the same
    words: 0 is padding, 1 an unknown word, and the first word is 2. This layer
    also runs in files for MediaPipe and tensorflow-text.

    Example:

    >>> tokenizer = WordTokenizer(["the", "cat", "sat"])
    >>> tokenizer(["The cat sat.", "The dog!"]).numpy().tolist()
    [[2, 3, 4], [2, 1, 0]]

    Args:
        vocabulary: List of different strings without spaces, the words after
            standardization. Leave out padding and the unknown word.
        standardize: What to do with texts before they are split at spaces:
            `"lower"` (A to Z), `"strip_punctuation"`,
            `"lower_and_strip_punctuation"`, `"lower_and_split_punctuation"`
            (punctuation marks become words), or `None`. Defaults to
            `"lower_and_strip_punctuation"`.
        sequence_length: Optional integer, to cut or pad each text at its end
            to this number of ids. Defaults to `None`: the length of the longest
            text in a batch, at least 1.
        unknown_if_empty: Boolean. Whether a text without words becomes one
            unknown word. Defaults to `True`.
        **kwargs: `name` of `keras.layers.Layer`.

    Call arguments:
        inputs: A tensor, an array or a list of strings, of shape `(batch,)` or
            `(batch, 1)`; or one text, of shape `()`.

    Output shape:
        int32 `(batch, sequence_length)`; for one text `(sequence_length,)`.

    Raises:
        ValueError: If a word is empty, has a space, or is repeated.
    """

    _settings = "vocabulary", "standardize"

    def __init__(
        self,
        vocabulary: list,
        standardize: str | None = "lower_and_strip_punctuation",
        sequence_length: int | None = None,
        unknown_if_empty: bool = True,
        **kwargs: object,
    ):
        text = import_tensorflow_text()
        check_choice("standardize", standardize, STANDARDIZATIONS)
        words = _check_words(vocabulary)
        super().__init__(
            _PAD, _UNKNOWN, sequence_length, unknown_if_empty, **kwargs
        )
        self.vocabulary = words
        self.standardize = standardize
        # A layer may be created while a function is traced.
        with tf.init_scope():
            self._tokenizer = text.FastSentencepieceTokenizer(
                _table(words, standardize), add_eos=True
            )

    @classmethod
    def train(
        cls,
        texts: Iterable,
        vocabulary_size: int = 20_000,
        standardize: str | None = "lower_and_strip_punctuation",
        **kwargs: object,
    ) -> "WordTokenizer":
        """Returns a tokenizer with the most frequent words of texts.

        Args:
            texts: Iterable of strings, or a `tf.data.Dataset` of them.
            vocabulary_size: Integer, the largest number of words, including
                padding and the unknown word. Defaults to `20000`.
            standardize, **kwargs: Arguments of the layer.
        """
        check_positive_int("vocabulary_size", vocabulary_size, 3)
        check_choice("standardize", standardize, STANDARDIZATIONS)
        counts = collections.Counter()
        table = {**_replacements(standardize), SPACE: SPACE}
        table = str.maketrans(table)
        for text in read_texts(texts):
            counts.update(_split(text.translate(table)))
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        words = [
            word for word, _ in ordered if {"\0", _NO_SPACE}.isdisjoint(word)
        ]
        if not words:
            raise ValueError("`texts` must hold words. Received: none.")
        words = words[: vocabulary_size - 2]
        return cls(words, standardize, **kwargs)

    def get_vocabulary(self):
        return ["", "[UNK]", *self.vocabulary]

    def count_bytes(self):
        return piece_table.count_bytes(self._tokenizer)

    def tokenize(self, texts):
        found = self._tokenizer.tokenize(texts)
        values, splits = found.values, found.row_splits
        # Each word, and nothing else, has a space before it.
        is_space = tf.equal(values, _SPACE)
        before = tf.concat(
            [[0], tf.cumsum(tf.cast(is_space, splits.dtype))], axis=0
        )
        return tf.RaggedTensor.from_row_splits(
            tf.boolean_mask(_words_behind(values), is_space),
            tf.gather(before, splits),
            validate=False,
        )

    def select(self, ids):
        words = [self.vocabulary[id_ - 2] for id_ in ids if id_ > _UNKNOWN]
        return type(self)(**{**self.get_config(), "vocabulary": words})


def _words_behind(found):
    """For each place in the ids of the model, the id of the word after it."""
    found = tf.concat([found, [_END, _END]], axis=0)
    following, after = found[1:-1], found[2:]
    is_whole = tf.logical_or(tf.equal(after, _SPACE), tf.equal(after, _END))
    is_known = tf.logical_and(following >= _FIRST_WORD, is_whole)
    return tf.where(is_known, following - (_FIRST_WORD - 2), _UNKNOWN)


def _table(words, standardize):
    """A SentencePiece model with whole words as pieces."""
    pieces = [
        Piece(b"<rest>", kind=piece_table.UNKNOWN),
        Piece(SPACE.encode()),
        Piece(b"<end>", kind=piece_table.CONTROL),
        *(
            Piece(word.replace(SPACE, _NO_SPACE).encode(), score=-1.0)
            for word in words
        ),
    ]
    return piece_table.build(pieces, _replacements(standardize), eos_id=_END)


def _replacements(standardize):
    """Dict from characters to their replacements."""
    standardize = standardize or ""
    replacements = {SPACE: _NO_SPACE, "\v": " ", "\f": " "}
    if "lower" in standardize:
        replacements |= {chr(code): chr(code + 32) for code in range(65, 91)}
    if "strip" in standardize:
        replacements |= dict.fromkeys(_PUNCTUATION, "")
    if "split" in standardize:
        replacements |= {mark: f" {mark} " for mark in _PUNCTUATION}
    return replacements


def _split(text):
    """Words of a text, split at ASCII spaces."""
    return [word for word in re.split(r"[ \t\n\r\v\f]+", text) if word]


def _check_words(vocabulary):
    require(
        not isinstance(vocabulary, (str, bytes)),
        "`vocabulary` must be a list of strings.",
        vocabulary=vocabulary,
    )
    words = check_order("vocabulary", vocabulary)
    require(words, "`vocabulary` must hold at least one word.", vocabulary=[])
    for word in words:
        is_word = isinstance(word, str) and _split(word) == [word]
        require(
            is_word and {"\0", _NO_SPACE}.isdisjoint(word),
            "`vocabulary` must hold words: non-empty strings without spaces "
            "and the characters U+0000 and U+10FFFF. Leave out padding.",
            word=word,
        )
    check_each_once(words, "word")
    return words


# Settings of TextVectorization for ids of whole words.
_CHOICES = {
    "standardize": STANDARDIZATIONS,
    "split": ("whitespace",),
    "ngrams": (None,),
    "output_mode": ("int",),
    "ragged": (False,),
}


def as_tokenizer(layer):
    """A `WordTokenizer` with the ids of a `TextVectorization`."""
    config = layer.get_config()
    for name, choices in _CHOICES.items():
        require(
            config[name] in choices,
            "A `TextVectorization` must give ids of whole words to run on "
            f"phones: its `{name}` must be "
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
