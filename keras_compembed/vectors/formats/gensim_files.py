"""word2vec's binary files, fastText's models and gensim's own, by gensim."""

import io
import os
import warnings

import numpy as np

from keras_compembed.utils.extras import import_extra
from keras_compembed.vectors.formats.streams import plain_file
from keras_compembed.vectors.formats.text import find_header
from keras_compembed.vectors.word_vectors import NgramBuckets
from keras_compembed.vectors.word_vectors import Subwords

FASTTEXT_MAGIC = (793712314).to_bytes(4, "little")
_SENTENCE_END = b"</s>"  # fastText gives it no n-grams.


def read_word2vec_binary(path, options):
    models = import_extra("gensim.models", "vectors")
    with plain_file(path) as plain:
        with open(plain, "rb") as file:
            rows, columns = find_header(file.readline(64).rstrip(b"\n"))
            start = file.tell()
        rows = options.rows_of(rows)
        # Check before gensim allocates memory.
        if os.path.getsize(plain) < start + rows * (4 * columns + 1):
            raise ValueError(f"it is too short for {rows} x {columns} numbers")
        keyed = models.KeyedVectors.load_word2vec_format(
            plain,
            binary=True,
            limit=options.limit,
            encoding=options.encoding,
            unicode_errors=options.unicode_errors,
        )
    if len(keyed) < rows:
        warnings.warn(
            f"{path!r} has {rows - len(keyed)} rows of repeated words: they "
            "are left out.",
            stacklevel=4,
        )
    return keyed.index_to_key, keyed.vectors


class _WholeFile(io.BufferedReader):
    """A file that raises at an early end, which gensim ignores."""

    def read(self, size=-1):
        data = super().read(size)
        if len(data) < size:
            raise EOFError("it is cut off")
        return data


def read_fasttext(path, options):
    """Words, vectors as fastText composes them, and optional `Subwords`."""
    binary = import_extra("gensim.models._fasttext_bin", "vectors")
    with plain_file(path) as plain:
        with _WholeFile(open(plain, "rb", buffering=0)) as file:

            def unpack(form):
                return binary._struct_unpack(file, form)

            unpack("@2i")
            header = {x: unpack(y)[0] for x, y in binary._NEW_HEADER_FORMAT}
            # One character per byte, as the encoding may be no UTF-8.
            words, size, *_ = binary._load_vocab(file, True, "latin-1")
            if unpack("@?")[0]:
                raise ValueError("it is quantized: use its `.bin`")
            shape = unpack("@2q")
            if shape != (len(words) + header["bucket"], header["dim"]):
                raise ValueError(f"its table is {shape}, unlike its options")
            table = np.memmap(plain, "<f4", "r", file.tell(), shape)
        raw = [word.encode("latin-1") for word in words]
        return _compose(table, raw, header, options)


def _compose(table, raw, header, options):
    count, ngrams = len(raw), None
    shortest, longest = max(header["minn"], 1), header["maxn"]
    if header["bucket"] and longest >= shortest:
        ngrams = NgramBuckets(shortest, longest, header["bucket"])

    def read(rows):
        return table[count + rows]

    kept = raw[: options.limit]
    vectors = np.array(table[: len(kept)])
    if ngrams is not None:
        for part, sums, counts in ngrams.add_up(kept, read):
            ends = [word == _SENTENCE_END for word in kept[part]]
            sums[ends], counts[ends] = 0, 0
            with np.errstate(over="ignore", invalid="ignore"):
                vectors[part] += sums
                vectors[part] /= (1 + counts.astype("float32"))[:, None]
    words = [options.decode(word) for word in kept]
    return words, vectors, _subwords(ngrams, read, raw, len(kept), options)


def _subwords(ngrams, read, words, count, options):
    """`Subwords` with the n-grams of most words, or None."""
    if not options.subwords:
        return None
    if ngrams is None:
        raise ValueError("it has no n-grams for `subwords`")
    words = [word for word in words if word != _SENTENCE_END]
    most = count if options.subwords is True else options.subwords
    used = ngrams.most_used(words, most)
    vectors = np.array(read(used.kept), "float32")
    return Subwords(used.min_n, used.max_n, vectors, used.bucket, used.kept)


def read_gensim(path, options):
    """Reads files of gensim's `save`: pickles, which may run any program."""
    gensim = import_extra("gensim", "vectors")
    model = gensim.utils.SaveLoad.load(path)
    model = getattr(model, "wv", model)
    words, ngrams = list(model.index_to_key), None
    if getattr(model, "bucket", 0):
        ngrams = NgramBuckets(max(model.min_n, 1), model.max_n, model.bucket)
    kept = words[: options.limit]
    vectors = np.asarray(model.vectors[: options.limit], "float32")
    read = getattr(model, "vectors_ngrams", np.empty(0)).__getitem__
    return kept, vectors, _subwords(ngrams, read, words, len(kept), options)
