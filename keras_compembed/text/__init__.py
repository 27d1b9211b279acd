"""Texts as ids, inside the model.

Tokenizers are Keras layers: the first layer of a model that takes strings.
They need the extra `text`.
"""

from keras_compembed.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_compembed.text.word_piece_tokenizer import WordPieceTokenizer
from keras_compembed.text.word_tokenizer import WordTokenizer

__all__ = ["SentencePieceTokenizer", "WordPieceTokenizer", "WordTokenizer"]
