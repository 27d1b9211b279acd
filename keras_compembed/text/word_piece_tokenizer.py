"""The WordPiece tokenizer of BERT."""

import os
from collections.abc import Iterable

import keras
import tensorflow as tf

from keras_compembed.text.tokenizer import Tokenizer
from keras_compembed.text.tokenizer import check_each_once
from keras_compembed.text.tokenizer import read_texts
from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.extras import import_tensorflow_text
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_order
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

_PAD, _UNKNOWN, _CLS, _SEP = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


@keras.saving.register_keras_serializable(package="keras_compembed")
class WordPieceTokenizer(Tokenizer):
    """Splits texts into BERT's WordPiece pieces and returns their ids.

    Texts are split at spaces and punctuation. Words are split from left to
    right into the longest pieces of the vocabulary; pieces inside a word begin
    with `##`. The layer uses tensorflow-text's `FastWordpieceTokenizer` and
    `FastBertNormalizer`. The normalizer takes some 600 KB of a file, or 360 KB
    with `lowercase=False`. Export for the runtime `"tf-text"`: MediaPipe has
    neither op. For MediaPipe, use a `SentencePieceTokenizer` or a
    `WordTokenizer`.

    Example:

    >>> vocabulary = ["[PAD]", "[UNK]", "red", "apple", "##s"]
    >>> tokenizer = WordPieceTokenizer(vocabulary)
    >>> tokenizer(["Red apples", "a pear"]).numpy().tolist()
    [[2, 3, 4], [1, 1, 0]]

    Args:
        vocabulary: List of strings, the pieces, or the path of a text file
            with one per line. It must contain `"[PAD]"` and `"[UNK]"`.
        lowercase: Boolean. Whether to ignore case and accents, as "uncased"
            models do. Defaults to `True`.
        add_cls: Boolean. Whether to begin each text with `"[CLS]"`. Defaults
            to `False`.
        add_sep: Boolean. Whether to end each text with `"[SEP]"`, also if it
            is cut off. Defaults to `False`.
        sequence_length, unknown_if_empty, **kwargs: See `WordTokenizer`, also
            for the shapes of inputs and outputs.

    Raises:
        ValueError: If `vocabulary` lacks a token, or repeats one.

    References:
        - [Devlin et al., 2019](https://arxiv.org/abs/1810.04805)
        - [Song et al., 2021](https://arxiv.org/abs/2012.15524)
    """

    _settings = "vocabulary", "lowercase", "add_cls", "add_sep"

    def __init__(
        self,
        vocabulary: list | str | os.PathLike,
        lowercase: bool = True,
        add_cls: bool = False,
        add_sep: bool = False,
        sequence_length: int | None = None,
        unknown_if_empty: bool = True,
        **kwargs: object,
    ):
        text = import_tensorflow_text()
        pieces = _check_pieces(vocabulary)
        pad_id, unknown_id = pieces.index(_PAD), pieces.index(_UNKNOWN)
        super().__init__(
            pad_id, unknown_id, sequence_length, unknown_if_empty, **kwargs
        )
        self.lowercase = check_boolean("lowercase", lowercase)
        self.add_cls = _check_end("add_cls", add_cls, _CLS, pieces)
        self.add_sep = _check_end("add_sep", add_sep, _SEP, pieces)
        ends = self.add_cls + self.add_sep
        require(
            sequence_length is None or sequence_length > ends,
            "`sequence_length` must leave room for a piece in addition to "
            "[CLS] and [SEP].",
            sequence_length=sequence_length,
        )
        self.vocabulary = pieces
        # A layer may be created while a function is traced.
        with tf.init_scope():
            self._normalizer = text.FastBertNormalizer(
                lower_case_nfd_strip_accents=self.lowercase
            )
            self._tokenizer = text.FastWordpieceTokenizer(
                pieces, token_out_type=tf.int32
            )

    @classmethod
    def train(
        cls,
        texts: Iterable,
        vocabulary_size: int = 8000,
        lowercase: bool = True,
        **kwargs: object,
    ) -> "WordPieceTokenizer":
        """Learns a vocabulary from texts and returns a tokenizer.

        Ids 0 to 3 are padding, unknown pieces, `"[CLS]"` and `"[SEP]"`.

        Args:
            texts: Iterable of strings, or a `tf.data.Dataset` of them.
            vocabulary_size: Integer, the approximate number of pieces.
                Defaults to `8000`.
            lowercase, **kwargs: Arguments of the layer.
        """
        tools = import_extra(
            "tensorflow_text.tools.wordpiece_vocab.bert_vocab_from_dataset",
            "text",
        )
        check_positive_int("vocabulary_size", vocabulary_size, 5)
        check_boolean("lowercase", lowercase)
        texts = list(read_texts(texts))
        if not any(text.strip() for text in texts):
            raise ValueError("`texts` must hold words. Received: none.")
        vocabulary = tools.bert_vocab_from_dataset(
            tf.data.Dataset.from_tensor_slices(texts).batch(1000),
            vocab_size=vocabulary_size,
            reserved_tokens=[_PAD, _UNKNOWN, _CLS, _SEP],
            bert_tokenizer_params={"lower_case": lowercase},
        )
        return cls(vocabulary, lowercase, **kwargs)

    def get_vocabulary(self):
        return list(self.vocabulary)

    def count_bytes(self):
        # There is no public attribute.
        parts = self._normalizer._model, self._tokenizer._model
        return sum(int(part.shape[0]) for part in parts)

    @property
    def needed_ids(self):
        ends = {_CLS} if self.add_cls else set()
        if self.add_sep:
            ends.add(_SEP)
        return super().needed_ids | {self.vocabulary.index(end) for end in ends}

    def select(self, ids):
        pieces = [self.vocabulary[id_] for id_ in ids]
        return type(self).from_config(
            {**self.get_config(), "vocabulary": pieces}
        )

    def tokenize(self, texts):
        return self._tokenizer.tokenize(self._normalizer.normalize(texts))

    def _pad(self, rows):
        ends = self.add_cls + self.add_sep
        if not ends:
            return super()._pad(rows)
        length = self.sequence_length
        ids = rows.to_tensor(
            self.pad_id, shape=(None, None if length is None else length - ends)
        )
        counts = tf.cast(rows.row_lengths(), "int32")
        counts = tf.minimum(counts, tf.shape(ids)[1])[:, None]
        if self.add_sep:
            ids = tf.pad(ids, [[0, 0], [0, 1]], constant_values=self.pad_id)
            is_end = tf.equal(tf.range(tf.shape(ids)[1])[None], counts)
            ids = tf.where(is_end, self.vocabulary.index(_SEP), ids)
        if self.add_cls:
            cls_id = self.vocabulary.index(_CLS)
            ids = tf.pad(ids, [[0, 0], [1, 0]], constant_values=cls_id)
        ids.set_shape((None, length))
        return ids


def _check_pieces(vocabulary):
    if isinstance(vocabulary, (str, os.PathLike)):
        with open(vocabulary, encoding="utf-8") as file:
            vocabulary = file.read().removesuffix("\n").split("\n")
    pieces = check_order("vocabulary", vocabulary)
    for piece in pieces:
        require(
            isinstance(piece, str) and piece not in ("", "##"),
            "`vocabulary` must hold pieces of words, non-empty strings.",
            piece=piece,
        )
    require(
        {_PAD, _UNKNOWN} <= set(pieces) and len(pieces) > 2,
        f"`vocabulary` must hold {_PAD!r}, {_UNKNOWN!r} and other pieces.",
        pieces=len(pieces),
    )
    check_each_once(pieces, "piece")
    return pieces


def _check_end(name, value, piece, pieces):
    require(
        not check_boolean(name, value) or piece in pieces,
        f"`{name}` needs a vocabulary with {piece!r}.",
        **{name: value},
    )
    return value
