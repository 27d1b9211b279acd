"""Tokenizers: Keras layers from texts to ids (needs the extra `text`)."""

from keras_compembed.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_compembed.text.word_piece_tokenizer import WordPieceTokenizer
from keras_compembed.text.word_tokenizer import WordTokenizer

__all__ = ["SentencePieceTokenizer", "WordPieceTokenizer", "WordTokenizer"]
