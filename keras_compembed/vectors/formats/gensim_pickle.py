"""What gensim's `save` writes: pickles."""

from keras_compembed.utils.extras import require
from keras_compembed.vectors.formats import tables
from keras_compembed.vectors.formats.format import Format


def _read(source, request):
    gensim = require("gensim", "vectors")
    try:
        model = gensim.utils.SaveLoad.load(source.path)
        model = getattr(model, "wv", model)
        words, vectors = model.index_to_key, model.vectors
    except Exception as error:  # A pickle may raise any.
        raise ValueError(
            f"{source} must be written by `save` of gensim's `KeyedVectors`, "
            "`Word2Vec` or `FastText`, with the `.npy` files that it wrote "
            "beside. Received: a file that gensim does not read: "
            f"{type(error).__name__}: {' '.join(str(error).split())}"
        ) from error
    tables.check_shape(source, "vectors", vectors.shape)
    if not all(isinstance(word, str) for word in words):
        raise ValueError(
            f"{source} must hold vectors of words. Received: vectors of "
            "other things, such as the numbers of texts."
        )
    return tables.join(
        source, list(words[: request.limit]), [vectors[: request.limit]]
    )


# A pickle may run any program when it is opened: only on demand.
GENSIM = Format("gensim", lambda source: False, _read)
