"""What gensim's `save` writes: pickles."""

from keras_compembed.utils.extras import require
from keras_compembed.vectors.formats import tables
from keras_compembed.vectors.formats.format import Format
from keras_compembed.vectors.ngram_buckets import NgramBuckets


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
    others = [word for word in words if not isinstance(word, str)]
    if others:
        raise ValueError(
            f"{source} must hold vectors of words. Received: vectors of other "
            f"things, {len(others)} of {len(words)}, such as {others[0]!r}."
        )
    if len(words) != len(vectors):
        raise ValueError(
            f"{source} must hold a word for each vector. Received: "
            f"{len(words)} words and {len(vectors)} vectors."
        )
    kept = list(words[: request.limit])
    subwords = None
    if request.subwords:
        subwords = _subwords(source, request, model, len(kept))
    rows = tables.join(source, kept, [vectors[: request.limit]])
    return rows._replace(subwords=subwords)


def _subwords(source, request, model, num_words):
    if not getattr(model, "bucket", 0):
        raise ValueError(
            "`subwords` must not be given for models without groups of "
            f"letters. Received: subwords={request.subwords}, and {source} "
            f"with a {type(model).__name__}."
        )
    ngrams = NgramBuckets(max(model.min_n, 1), model.max_n, model.bucket)
    most = request.most_subwords(num_words)
    used = ngrams.most_used(model.index_to_key, most)
    return tables.read_subwords(source, used, model.vectors_ngrams.__getitem__)


# A pickle may run any program when it is opened: only on demand.
GENSIM = Format("gensim", lambda source: False, _read, ("subwords",))
