"""Readers of each file format of vectors.

They take a path and `Options`. They return words (None for rows without any)
and a float32 table; some also return `Subwords`.
"""

import functools

from keras_compembed.vectors.formats.arrays import read_numpy
from keras_compembed.vectors.formats.arrays import read_safetensors
from keras_compembed.vectors.formats.folders import read_hugging_face
from keras_compembed.vectors.formats.folders import read_model2vec
from keras_compembed.vectors.formats.gensim_files import read_fasttext
from keras_compembed.vectors.formats.gensim_files import read_gensim
from keras_compembed.vectors.formats.gensim_files import read_word2vec_binary
from keras_compembed.vectors.formats.text import read_text

READERS = {
    "glove": read_text,
    "word2vec": functools.partial(read_text, has_header=True),
    "word2vec_binary": read_word2vec_binary,
    "fasttext": read_fasttext,
    "numpy": read_numpy,
    "safetensors": read_safetensors,
    "hugging_face": read_hugging_face,
    "model2vec": read_model2vec,
    "gensim": read_gensim,
}
