"""The kinds of files by name, and which of them a file is."""

from keras_compembed.vectors.formats import fasttext_binary
from keras_compembed.vectors.formats import foreign
from keras_compembed.vectors.formats import gensim_pickle
from keras_compembed.vectors.formats import hugging_face
from keras_compembed.vectors.formats import model2vec
from keras_compembed.vectors.formats import numpy_arrays
from keras_compembed.vectors.formats import safetensors_file
from keras_compembed.vectors.formats import text
from keras_compembed.vectors.formats import word2vec_binary

# Asked in this order: what begins with a mark of its own before text.
_FORMATS = (
    numpy_arrays.NUMPY,
    fasttext_binary.FASTTEXT,
    safetensors_file.SAFETENSORS,
    model2vec.MODEL2VEC,
    hugging_face.HUGGING_FACE,
    gensim_pickle.GENSIM,
    word2vec_binary.WORD2VEC_BINARY,
    text.WORD2VEC,
    text.GLOVE,
)
FORMATS = {format.name: format for format in _FORMATS}


def find_format(source):
    """Returns the `Format` that a `Source` looks like."""
    foreign.refuse(source)
    for format in _FORMATS:
        if format.looks_like(source):
            return format
    names = ", ".join(repr(name) for name in FORMATS)
    if source.is_folder:
        what = (
            "a folder without the files of one: config.json and "
            "model.safetensors, or model.safetensors.index.json"
        )
    else:
        what = (
            f"a file that begins with {source.head[:32]!r}. Name its format "
            "with `format=`"
        )
    raise ValueError(
        f"{source} must be of a format that is known: {names}. "
        f"Received: {what}."
    )
