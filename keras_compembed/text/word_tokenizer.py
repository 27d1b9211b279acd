"""Whole words, by a table that phones can read."""

import collections
import re

import keras
import tensorflow as tf

from keras_compembed.text import piece_table
from keras_compembed.text.piece_table import Piece
from keras_compembed.text.tokenizer import Tokenizer
from keras_compembed.utils.extras import require
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int

# As in `keras.layers.TextVectorization`.
_PUNCTUATION = "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'"
STANDARDIZATIONS = (
    None,
    "lower",
    "strip_punctuation",
    "lower_and_strip_punctuation",
    "lower_and_split_punctuation",
)
# What SentencePiece writes for a space, and puts before the first word.
_SPACE = "\u2581"
# What is read instead of that character where a text holds it.
_NO_SPACE = "\U0010ffff"
# Ids in the table. Words follow.
_REST, _WORD_BEGINS, _END = 0, 1, 2
_FIRST_WORD = 3
# Ids of the layer.
_PAD, _UNKNOWN = 0, 1


@keras.saving.register_keras_serializable(package="keras_compembed")
class WordTokenizer(Tokenizer):
    """Turns texts into ids of words, inside a Keras model and on phones.

    Its ids are those of a `keras.layers.TextVectorization` of the same words:
    0 is padding, 1 an unknown word, and the first word is 2. Unlike that, it
    runs in files for MediaPipe and tensorflow-text.

    Example:

    >>> tokenizer = WordTokenizer(["the", "cat", "sat"])
    >>> tokenizer(["The cat sat.", "The dog!"]).numpy().tolist()
    [[2, 3, 4], [2, 1, 0]]

    Args:
        vocabulary: List of strings, the words without padding and unknown, as
            standardization leaves them.
        standardize: What happens to texts first: `"lower"` (A to Z),
            `"strip_punctuation"`, `"lower_and_strip_punctuation"`,
            `"lower_and_split_punctuation"`, where each mark of punctuation is
            a word of its own, or `None`. Defaults to
            `"lower_and_strip_punctuation"`. Words are what stands between
            spaces.
        sequence_length: Optional integer. So many ids of each text, cut off or
            filled up behind. Defaults to `None`: as many as the longest text
            of a batch has, and at least one.
        unknown_if_empty: Boolean. Whether a text without words reads as one
            unknown word. Defaults to `True`.
        **kwargs: `name` of `keras.layers.Layer`.

    Call arguments:
        inputs: Strings: a tensor, an array, or a list of them.

    Input shape:
        `(batch,)` or `(batch, 1)`.

    Output shape:
        int32 `(batch, sequence_length)`.

    Raises:
        ImportError: if tensorflow-text or sentencepiece are not installed.
        ValueError: if an argument is out of range, or words occur twice or
            hold spaces.
    """

    def __init__(
        self,
        vocabulary,
        standardize="lower_and_strip_punctuation",
        sequence_length=None,
        unknown_if_empty=True,
        **kwargs,
    ):
        text = require("tensorflow_text", "text")
        check_choice("standardize", standardize, STANDARDIZATIONS)
        words = _check_words(vocabulary)
        super().__init__(
            _PAD, _UNKNOWN, sequence_length, unknown_if_empty, **kwargs
        )
        self.vocabulary = words
        self.standardize = standardize
        # A layer may be made while a function is traced.
        with tf.init_scope():
            self._tokenizer = text.FastSentencepieceTokenizer(
                _table(words, standardize), add_eos=True
            )

    @classmethod
    def train(
        cls,
        texts,
        vocabulary_size=20_000,
        standardize="lower_and_strip_punctuation",
        **kwargs,
    ):
        """A tokenizer of the most frequent words of texts.

        Args:
            texts: Iterable of strings.
            vocabulary_size: Integer, the most words, with padding and unknown.
                Defaults to `20000`.
            standardize: Same as in the constructor.
            **kwargs: Further arguments of the layer.

        Returns:
            A `WordTokenizer`.
        """
        check_positive_int("vocabulary_size", vocabulary_size, 3)
        check_choice("standardize", standardize, STANDARDIZATIONS)
        counts = collections.Counter()
        table = str.maketrans(
            {
                old: new.replace(_NO_SPACE, _SPACE)
                for old, new in _replacements(standardize).items()
            }
        )
        for text in texts:
            counts.update(_split(text.translate(table)))
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        words = [word for word, _ in ordered[: vocabulary_size - 2]]
        return cls(words, standardize, **kwargs)

    @property
    def vocabulary_size(self):
        return len(self.vocabulary) + 2

    def get_vocabulary(self):
        return ["", "[UNK]", *self.vocabulary]

    def tokenize(self, texts):
        found = self._tokenizer.tokenize(texts)
        values, splits = found.values, found.row_splits
        ids, is_word = _words_of(values, len(self.vocabulary))
        before = tf.concat(
            [[0], tf.cumsum(tf.cast(is_word, splits.dtype))], axis=0
        )
        return tf.RaggedTensor.from_row_splits(
            tf.boolean_mask(ids, is_word),
            tf.gather(before, splits),
            validate=False,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary": self.vocabulary,
            "standardize": self.standardize,
        }


def _words_of(found, num_words):
    """Ids of words among what the table finds, and where they are.

    Of each word the table finds `<word>`, `<word>` without its end and the
    rest, or "a word begins" and the rest.
    """
    following = tf.concat([found[1:], [_END]], axis=0)
    is_open = found >= _FIRST_WORD + num_words
    ids = found - (_FIRST_WORD - 2)
    # Without its end a word is whole at the end of the text only; else it is
    # the beginning of a longer one.
    ids = tf.where(is_open, ids - num_words, ids)
    is_unknown = tf.logical_or(
        tf.equal(found, _WORD_BEGINS),
        tf.logical_and(is_open, tf.not_equal(following, _END)),
    )
    ids = tf.where(is_unknown, _UNKNOWN, ids)
    is_word = tf.logical_or(found >= _FIRST_WORD, is_unknown)
    return ids, is_word


def _table(words, standardize):
    """A SentencePiece model whose pieces are whole words.

    Pieces may begin and end anywhere, so that `there` would be `the` and a
    rest. The space before each word has three bytes in UTF-8. A piece is the
    last two of them, a word, and the first one of the next space: between two
    spaces it fits as a whole or not at all. No space follows the last word,
    which has a second piece without the end, of a lower score.
    """
    space = _SPACE.encode()
    begin, end = space[1:], space[:1]
    contents = [begin + word.encode() for word in words]
    pieces = [
        Piece(b"<rest>", kind=piece_table.UNKNOWN),
        Piece(begin),
        Piece(b"<end>", kind=piece_table.CONTROL),
        *(Piece(content + end, 2.0) for content in contents),
        *(Piece(content, 1.0) for content in contents),
    ]
    return piece_table.build(pieces, _replacements(standardize), eos_id=_END)


def _replacements(standardize):
    """Dict from characters to what is read in their place."""
    standardize = standardize or ""
    replacements = {_SPACE: _NO_SPACE, "\v": " ", "\f": " "}
    if "lower" in standardize:
        replacements |= {chr(code): chr(code + 32) for code in range(65, 91)}
    if "strip" in standardize:
        replacements |= dict.fromkeys(_PUNCTUATION, "")
    if "split" in standardize:
        replacements |= {mark: f" {mark} " for mark in _PUNCTUATION}
    return replacements


def _split(text):
    """Words of a text, between the spaces of ASCII."""
    return [word for word in re.split(r"[ \t\n\r\v\f]+", text) if word]


def _check_words(vocabulary):
    words = list(vocabulary)
    for word in words:
        if not isinstance(word, str) or _split(word) != [word] or "\0" in word:
            raise ValueError(
                "`vocabulary` must hold words, strings without spaces, and "
                f"not the empty one for padding. Received: {word!r} in it."
            )
    if not words:
        raise ValueError(
            "`vocabulary` must hold at least one word. Received: none."
        )
    if len(set(words)) < len(words):
        ((word, count),) = collections.Counter(words).most_common(1)
        raise ValueError(
            "`vocabulary` must hold each word once. "
            f"Received: {word!r} {count} times."
        )
    return words
