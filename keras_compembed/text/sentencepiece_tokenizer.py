"""A tokenizer of SentencePiece pieces."""

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

# Words per line: the trainer is slow for long lines and skips the longest.
_WORDS = 1000
_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


@keras.saving.register_keras_serializable(package="keras_compembed")
class SentencePieceTokenizer(Tokenizer):
    """Splits texts into SentencePiece pieces and returns their ids.

    It uses tensorflow-text's `FastSentencepieceTokenizer`, the only tokenizer
    op that unmodified MediaPipe Tasks has, on phones and in browsers. The
    layer's config, and so a `.keras` file, includes the SentencePiece model.

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
            file. It must be a unigram model without byte fallback. Tabs and
            line ends always count as spaces.
        pad_id: Optional integer, the id of padding. Defaults to `None`: the
            padding id of the model, if it has one.
        add_bos: Boolean. Whether to begin each text with the model's
            begin-of-sentence token. Defaults to `False`.
        add_eos: Boolean. Whether to end each text with its end-of-sentence
            token. Defaults to `False`.
        sequence_length, unknown_if_empty, **kwargs: See `WordTokenizer`, also
            for the shapes of inputs and outputs.

    Raises:
        ValueError: If `model` is of another kind, or lacks a token.

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
                "padding token. An embedding with `mask_zero` masks the id 0.",
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
        # A layer may be created while a function is traced.
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
        """Learns a vocabulary from texts and returns a tokenizer.

        Id 0 is padding and id 1 unknown pieces.

        Args:
            texts: Iterable of strings, or a `tf.data.Dataset` of them.
            vocabulary_size: Integer, the largest number of pieces, including
                ids 0 and 1. Few texts give fewer. Defaults to `8000`.
            lowercase: Boolean. Whether to fold case. Defaults to `True`.
            **kwargs: Other arguments of the layer.
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
                # The order of sums affects which pieces stay.
                num_threads=1,
                max_sentence_length=1 << 20,
                # Few texts give fewer pieces.
                hard_vocab_limit=False,
            )
        except RuntimeError as error:
            if problems:
                raise problems[0] from None
            raise ValueError(
                "`vocabulary_size` must fit the number of pieces in `texts`. "
                f"Received: vocabulary_size={vocabulary_size}. "
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
    """Short lines for the trainer. No piece exceeds a word."""
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
        "`model` must be a unigram SentencePiece model without byte fallback "
        "and unused pieces, with a space sign before words: MediaPipe reads no "
        "other. Train one with `SentencePieceTokenizer.train`.",
        kind=_KINDS.get(spec.model_type, spec.model_type),
        has_bytes=piece_table.BYTE in kinds,
        has_unused=piece_table.UNUSED in kinds,
        treat_whitespace_as_suffix=spec.treat_whitespace_as_suffix,
    )


def _check_end(name, value, token_id):
    require(
        not check_boolean(name, value) or token_id >= 0,
        f"`{name}` needs a SentencePiece model with this token.",
        **{name: value},
    )
    return value
