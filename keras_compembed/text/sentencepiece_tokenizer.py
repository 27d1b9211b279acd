"""Pieces of words, by SentencePiece."""

import base64
import io
import os
from collections.abc import Iterable

import keras
import tensorflow as tf

from keras_compembed.text import piece_table
from keras_compembed.text.tokenizer import Tokenizer
from keras_compembed.text.tokenizer import read_texts
from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.extras import import_tensorflow_text
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# The trainer takes long for long lines, and leaves out the longest.
_WORDS = 1000
_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


@keras.saving.register_keras_serializable(package="keras_compembed")
class SentencePieceTokenizer(Tokenizer):
    """Turns texts into ids of SentencePiece pieces, inside a Keras model.

    It computes by tensorflow-text's `FastSentencepieceTokenizer`, the one
    tokenizer that phones and browsers run unmodified (MediaPipe Tasks). The
    model travels in the layer's config, hence in `.keras` files.

    Example:

    >>> texts = ["a red apple", "a green apple", "two red pears"] * 20
    >>> tokenizer = SentencePieceTokenizer.train(texts, vocabulary_size=25)
    >>> ids = tokenizer(["a green pear"])
    >>> model = keras.Sequential([
    ...     keras.Input((), dtype="string"),
    ...     tokenizer,
    ...     keras.layers.Embedding(tokenizer.vocabulary_size, 8),
    ...     keras.layers.GlobalAveragePooling1D(),
    ... ])
    >>> model(tf.constant(["a green pear", ""])).shape
    TensorShape([2, 8])

    Args:
        model: Bytes of a SentencePiece model, or the path of its `.model`
            file. Models of kind unigram, without bytes as pieces. Tabs and
            line ends are spaces, whatever its rules say.
        pad_id: Optional integer, the id that rows are filled up with. Defaults
            to `None`, that of the model, if it was trained with one.
        add_bos: Boolean. Whether a text begins with the model's token for
            that. Defaults to `False`.
        add_eos: Boolean. Whether it ends with one. Defaults to `False`.
        sequence_length, unknown_if_empty, **kwargs: Same as for
            `WordTokenizer`, as are inputs and outputs.

    References:
        - [Kudo & Richardson, 2018](https://arxiv.org/abs/1808.06226)
        - [Kudo, 2018](https://arxiv.org/abs/1804.10959)
    """

    _settings = "pad_id", "add_bos", "add_eos"

    def __init__(
        self,
        model: bytes | str | os.PathLike,
        pad_id: int | None = None,
        add_bos: bool = False,
        add_eos: bool = False,
        sequence_length: int | None = None,
        unknown_if_empty: bool = True,
        **kwargs: object,
    ):
        text = import_tensorflow_text()
        proto = piece_table.parse(_read(model))
        _check_kind(proto)
        piece_table.compact(proto)
        spec = proto.trainer_spec
        size = len(proto.pieces)
        if pad_id is None:
            pad_id = spec.pad_id
            require(
                0 <= pad_id < size,
                "`pad_id` must be given for a SentencePiece model without a "
                "token for padding: the id to fill rows up with, which an "
                "embedding with `mask_zero` leaves out if it is 0.",
                pad_id=None,
            )
        check_positive_int("pad_id", pad_id, 0, size - 1)
        super().__init__(
            pad_id, spec.unk_id, sequence_length, unknown_if_empty, **kwargs
        )
        self.add_bos = _check_end("add_bos", add_bos, spec.bos_id)
        self.add_eos = _check_end("add_eos", add_eos, spec.eos_id)
        self.model = proto.SerializeToString()
        self._pieces = [piece.piece for piece in proto.pieces]
        # A layer may be made while a function is traced.
        with tf.init_scope():
            self._tokenizer = text.FastSentencepieceTokenizer(
                self.model, add_bos=self.add_bos, add_eos=self.add_eos
            )

    @classmethod
    def train(
        cls,
        texts: Iterable,
        vocabulary_size: int = 8000,
        lowercase: bool = True,
        **kwargs: object,
    ) -> "SentencePieceTokenizer":
        """A tokenizer of pieces learned from texts.

        Ids 0 and 1 are padding and the unknown.

        Args:
            texts: Iterable of strings, or a `tf.data.Dataset` of them.
            vocabulary_size: Integer, the most pieces, the two included; few
                texts give fewer. Defaults to `8000`.
            lowercase: Boolean. Whether upper and lower case are alike (Unicode
                case folding). Defaults to `True`.
            **kwargs: Further arguments of the layer.
        """
        sentencepiece = import_extra("sentencepiece", "text")
        check_positive_int("vocabulary_size", vocabulary_size, 3)
        check_boolean("lowercase", lowercase)
        content, problems = io.BytesIO(), []
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_lines(texts, problems),
                model_writer=content,
                model_type="unigram",
                vocab_size=vocabulary_size,
                normalization_rule_name=(
                    "nmt_nfkc_cf" if lowercase else "nmt_nfkc"
                ),
                pad_id=0,
                unk_id=1,
                bos_id=-1,
                eos_id=-1,
                pad_piece="[PAD]",
                unk_piece="[UNK]",
                minloglevel=2,
                # The order of sums decides which pieces stay.
                num_threads=1,
                max_sentence_length=1 << 20,
                # Few texts give fewer pieces.
                hard_vocab_limit=False,
            )
        except RuntimeError as error:
            if problems:
                raise problems[0] from None
            raise ValueError(
                "`texts` must give as many pieces as `vocabulary_size` says. "
                f"Received: vocabulary_size={vocabulary_size}, of which "
                f"SentencePiece says: {error}"
            ) from error
        return cls(content.getvalue(), **kwargs)

    def get_vocabulary(self):
        return list(self._pieces)

    def count_bytes(self):
        return piece_table.count_bytes(self._tokenizer)

    def tokenize(self, texts):
        return tf.cast(self._tokenizer.tokenize(texts), "int32")

    @property
    def needed_ids(self):
        proto = piece_table.parse(self.model)
        return super().needed_ids | piece_table.needed_pieces(proto)

    def select(self, ids):
        ids = [int(id_) for id_ in ids]
        model = piece_table.select(piece_table.parse(self.model), ids)
        return type(self)(
            **{
                **self.get_config(),
                "model": model.SerializeToString(),
                "pad_id": ids.index(self.pad_id),
            }
        )

    def get_config(self):
        model = base64.b64encode(self.model).decode("ascii")
        return {**super().get_config(), "model": model}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "model": base64.b64decode(config["model"])})


def _read(model):
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    if isinstance(model, (str, os.PathLike)):
        with open(model, "rb") as file:
            return file.read()
    raise ValueError(
        "`model` must be the bytes of a SentencePiece model or the path of "
        f"its file. Received: an object of type {type(model).__name__}."
    )


def _lines(texts, problems):
    """What the trainer reads: short lines. No piece goes beyond a word."""
    is_empty = True
    try:
        for text in read_texts(texts):
            words = text.split()
            for start in range(0, len(words), _WORDS):
                is_empty = False
                yield " ".join(words[start : start + _WORDS])
        if is_empty:
            raise ValueError("`texts` must hold words. Received: none.")
    except ValueError as error:
        problems.append(error)
        raise


def _check_kind(proto):
    spec = proto.trainer_spec
    kinds = {piece.type for piece in proto.pieces}
    require(
        spec.model_type == piece_table.UNIGRAM
        and not {piece_table.BYTE, piece_table.UNUSED} & kinds
        and not spec.treat_whitespace_as_suffix,
        "`model` must be a SentencePiece model of kind 'unigram', without "
        "bytes as pieces and unused pieces, with the sign for a space before "
        "words: the tokenizer of phones reads no other. Train one with "
        "`SentencePieceTokenizer.train`.",
        kind=_KINDS.get(spec.model_type, spec.model_type),
        has_bytes=piece_table.BYTE in kinds,
        has_unused=piece_table.UNUSED in kinds,
        treat_whitespace_as_suffix=spec.treat_whitespace_as_suffix,
    )


def _check_end(name, value, token_id):
    require(
        not check_boolean(name, value) or token_id >= 0,
        f"`{name}` needs a SentencePiece model with such a token.",
        **{name: value},
    )
    return value
