"""Words and their vectors in few bytes."""

import warnings
from collections.abc import Iterable

import keras
import numpy as np

from keras_compembed.methods.codes import Codes
from keras_compembed.methods.method import check_method
from keras_compembed.utils.byte_counts import number_of_bytes
from keras_compembed.utils.extras import require
from keras_compembed.utils.files import replacing
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_seed
from keras_compembed.vectors import vectors_file
from keras_compembed.vectors.method_search import MethodSearch
from keras_compembed.vectors.method_search import check_size
from keras_compembed.vectors.stored_anchors import StoredAnchors
from keras_compembed.vectors.stored_codes import StoredCodes
from keras_compembed.vectors.stored_integers import StoredIntegers
from keras_compembed.vectors.unknown_word import UnknownWord
from keras_compembed.vectors.word_vectors import WordVectors
from keras_compembed.vectors.word_vectors import check_words

_KINDS = (StoredCodes, StoredIntegers, StoredAnchors)
_MASK, _UNKNOWN = "", "[UNK]"


class CompressedVectors:
    """Words and their vectors, in few bytes in memory and in files.

    Names are those of gensim's `KeyedVectors`. Vectors are stored as a layer
    of this package stores its rows: as codes, as integers of few bits, or as
    weights of anchors. No table is made to look up words, to compare them or
    to find their neighbours.

    Numbers that rows share, such as those of codebooks, have eight bits in
    files, and are rounded when this object is made: what is loaded is what was
    there before it was saved, to the last bit.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(600, 32))
    >>> words = [f"word{row}" for row in range(600)]
    >>> vectors = kc.vectors.WordVectors(words, table)
    >>> small = CompressedVectors.learn(
    ...     vectors, max_bytes="20k", seed=0, verbose=0
    ... )
    >>> small["word7"].shape, small[["word7", "word8"]].shape
    ((32,), (2, 32))
    >>> [(neighbour, similarity)] = small.most_similar("word7", topn=1)
    >>> "word7" in small, "word600" in small
    (True, False)

    Args:
        words: List of different strings, the words of the layer's ids.
        layer: A built `CodeEmbedding`, `QuantizedEmbedding` or `ANTEmbedding`.
            It is read once: what becomes of it later makes no difference.

    Attributes:
        index_to_key: List of the words.
        key_to_index: Dict from words to their rows.
        vector_size: Integer, numbers of a vector.

    Raises:
        TypeError: if the layer is of another class, or a word is no string.
        ValueError: if the layer is not built, there is not a word for each
            id, a word stands twice, or codes have a composition of your own.
    """

    def __init__(self, words, layer):
        words = check_words(words)
        stored = _stored_rows(layer)
        if len(words) != stored.shape[0]:
            raise ValueError(
                "`words` must have a word for each id of `layer`. Received: "
                f"{len(words)} words, input_dim={stored.shape[0]}."
            )
        self._set(words, stored)

    def _set(self, words, stored, packed_words=None):
        self.index_to_key = words
        self.key_to_index = dict(zip(words, range(len(words)), strict=True))
        self._stored = stored
        self._packed_words = packed_words
        self._norms = None

    @classmethod
    def learn(
        cls,
        vectors,
        method=None,
        *,
        max_bytes=None,
        sample_weight=None,
        seed=None,
        verbose=1,
    ):
        """Compresses vectors.

        Args:
            vectors: `WordVectors`.
            method: Optional `Method` of `keras_compembed.methods`: `Codes`,
                `Rounded` or `Anchors`. Defaults to `None`: the one that loses
                least within `max_bytes`, by the squared error, or else
                `Codes()`.
            max_bytes: Optional integer, or a string such as `"2MB"` or
                `"500k"`: bytes that the file may have, words included. k is
                1,000 bytes.
            sample_weight: Optional array `(words,)`, how much each word
                counts, e.g. how often it occurs. Defaults to `None`: all
                count the same.
            seed: Optional integer. Makes the result repeatable.
            verbose: `0` or `1`, whether to show progress. Defaults to `1`.

        Returns:
            A `CompressedVectors`.

        Raises:
            TypeError: if `vectors` or `method` is none.
            ValueError: if `max_bytes` is no number of bytes, or less than
                what the smallest file takes, which is named.
        """
        if not isinstance(vectors, WordVectors):
            raise TypeError(
                "`vectors` must be `keras_compembed.vectors.WordVectors`, such "
                "as `read_vectors` gives. Received: an object of type "
                f"{type(vectors).__name__}."
            )
        if method is not None:
            method = _check_kind(check_method("method", method))
        limit = None
        if max_bytes is not None:
            limit = number_of_bytes("max_bytes", max_bytes)
        sample_weight = check_sample_weight(sample_weight, len(vectors))
        seed = check_seed(seed)
        packed = vectors_file.pack_words(vectors.words)
        shape = vectors.vectors.shape

        def count(method):
            # Files of rows that learned nothing are as large.
            fit = method.start()
            layer = method.new_layer(method.rows, fit, *shape)
            return len(vectors_file.to_bytes(*packed, _stored_rows(layer)))

        if method is None and limit is None:
            method = Codes()
        if method is None:
            method = MethodSearch(
                vectors.vectors, limit, count, sample_weight, seed, verbose
            ).find()
        elif limit is not None:
            check_size(method, count, limit)
        if verbose:
            print(f"{method.name}: learning {shape[0]:,} x {shape[1]}")
        fit = method.start(seed, verbose)
        layer = fit.from_table(vectors.vectors, sample_weight=sample_weight)
        small = cls.__new__(cls)
        small._set(vectors.words, _stored_rows(layer), packed)
        return small

    @classmethod
    def load(cls, path):
        """Reads what `save` wrote.

        Args:
            path: String or path-like, an `.npz` file.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is something else, damaged, or of a later
                version of this package.
        """
        kinds = {kind.kind: kind for kind in _KINDS}
        small = cls.__new__(cls)
        small._set(*vectors_file.read(path, kinds))
        return small

    def save(self, path, overwrite=False):
        """Writes one `.npz` file, without pickles.

        Args:
            path: String or path-like that ends in `.npz`.
            overwrite: Boolean. Whether it may exist. Defaults to `False`.

        Raises:
            FileExistsError: if it does.
            ValueError: if `path` does not end so.
        """
        if not str(path).endswith(".npz"):
            raise ValueError(
                f"`path` must end in '.npz'. Received: path={str(path)!r}."
            )
        vectors_file.write(path, self._to_bytes(), overwrite)

    @property
    def nbytes(self):
        """Integer, bytes of the file."""
        return len(self._to_bytes())

    @property
    def bytes_by_part(self):
        """Dict of the bytes of the file: words, what rows have, the rest."""
        packed, _ = self._pack_words()
        stored = self._stored
        sizes = {"words": packed.nbytes, **stored.bytes_by_part}
        return {**sizes, "besides": self.nbytes - sum(sizes.values())}

    @property
    def method(self):
        """String, how vectors are stored, such as `"codes 32x16"`."""
        return self._stored.name

    def _pack_words(self):
        if self._packed_words is None:
            self._packed_words = vectors_file.pack_words(self.index_to_key)
        return self._packed_words

    def _to_bytes(self):
        return vectors_file.to_bytes(*self._pack_words(), self._stored)

    def __len__(self):
        return len(self.index_to_key)

    def __contains__(self, word):
        return isinstance(word, str) and word in self.key_to_index

    def __iter__(self):
        return iter(self.index_to_key)

    def __repr__(self):
        return (
            f"<CompressedVectors of {len(self):,} words x {self.vector_size} "
            f"as {self.method}>"
        )

    @property
    def vector_size(self):
        return self._stored.shape[1]

    @property
    def words(self):
        """List of the words, the same as `index_to_key`."""
        return self.index_to_key

    def __getitem__(self, words):
        """Vectors of a word `(columns,)`, or of a list of words."""
        if isinstance(words, str):
            return self._stored.read(np.array([self._row(words)]))[0]
        if not isinstance(words, Iterable):
            raise TypeError(
                "Vectors are asked for by a word, or by a list of words. "
                f"Received: {words!r}."
            )
        rows = [self._row(word) for word in words]
        return self._stored.read(np.array(rows, "int64"))

    def get(self, word, default=None):
        """The vector of a word, or `default` if it has none."""
        return self[word] if word in self else default

    def _row(self, word):
        row = self.key_to_index.get(word) if isinstance(word, str) else None
        if row is None:
            raise UnknownWord(word, self.index_to_key)
        return row

    def table(self):
        """All vectors, a float32 array `(words, columns)`."""
        return np.concatenate(list(self._stored.parts()))

    def similarity(self, first, second):
        """The cosine of the vectors of two words."""
        first, second = self[[first, second]].astype("float64")
        lengths = np.linalg.norm(first) * np.linalg.norm(second)
        return float(first @ second / lengths) if lengths else 0.0

    def most_similar(
        self, positive=(), negative=(), topn=10, restrict_vocab=None
    ):
        """The words nearest to some, and far from others.

        The same as gensim's `KeyedVectors.most_similar` on the vectors: unit
        vectors of words are added or subtracted, and words are ranked by
        their cosine with the result. What was asked for is left out.
        `most_similar(["king", "woman"], ["man"])` so answers an analogy.

        Args:
            positive: A word, an array `(columns,)`, or a list of these.
            negative: Same as `positive`, for what is subtracted.
            topn: Integer, words to return. Defaults to `10`.
            restrict_vocab: Optional integer, how many of the first words are
                looked at. Defaults to `None`: all.

        Returns:
            List of pairs of a word and its cosine, best first.

        Raises:
            KeyError: if a word has no vector. It names near spellings.
            ValueError: if there is no word, or an array has another shape.
        """
        topn = check_positive_int("topn", topn)
        num_rows = len(self)
        if restrict_vocab is not None:
            num_rows = min(
                check_positive_int("restrict_vocab", restrict_vocab), num_rows
            )
        positive, negative = _as_list(positive), _as_list(negative)
        query, rows = self._mean(positive, negative)
        norms = self._lengths()
        scores = (self._stored.scores(query) / norms)[:num_rows]
        rows = [row for row in rows if row < num_rows]
        scores[rows] = -np.inf
        topn = min(topn, num_rows - len(rows))
        if topn < 1:
            return []
        best = np.argpartition(-scores, topn - 1)[:topn]
        # Of equal ones, the more frequent first.
        best = best[np.lexsort((best, -scores[best]))]
        return [(self.index_to_key[row], float(scores[row])) for row in best]

    def _mean(self, positive, negative):
        """The mean direction of words and arrays, and rows of the words."""
        if not positive and not negative:
            raise ValueError(
                "`positive` or `negative` must name a word. Received: neither."
            )
        total = np.zeros(self.vector_size, "float32")
        rows = []
        for sign, items in ((1, positive), (-1, negative)):
            for item in items:
                if not isinstance(item, str):
                    total += sign * self._check_vector(item)
                    continue
                rows.append(self._row(item))
                total += sign * _unit(self[item])
        return _unit(total / (len(positive) + len(negative))), rows

    def _check_vector(self, vector):
        vector = np.asarray(vector)
        if (
            vector.shape != (self.vector_size,)
            or vector.dtype.kind not in "fiu"
        ):
            raise ValueError(
                f"Vectors must be of {self.vector_size} numbers, and words "
                f"strings. Received: an array of shape {vector.shape} and "
                f"dtype {vector.dtype}."
            )
        return vector

    def _lengths(self):
        """Lengths of all vectors; 1 for those that are 0."""
        if self._norms is None:
            norms = self._stored.norms()
            self._norms = np.where(norms > 0, norms, 1)
        return self._norms

    def as_keyed_vectors(self):
        """All vectors, as gensim's `KeyedVectors`.

        For what gensim has: `evaluate_word_pairs`, `evaluate_word_analogies`,
        `doesnt_match` and so on. It holds the whole table.

        Raises:
            ImportError: without gensim (`keras-compembed[vectors]`).
        """
        models = require("gensim.models", "vectors")
        keyed = models.KeyedVectors(self.vector_size, dtype="float32")
        keyed.add_vectors(self.index_to_key, self.table())
        return keyed

    def save_word2vec_format(self, path, binary=False, overwrite=False):
        """Writes all vectors as word2vec does, a few at a time.

        Args:
            path: String or path-like.
            binary: Boolean. Whether numbers are float32, not text. Defaults
                to `False`.
            overwrite: Boolean. Whether the file may exist. Defaults to
                `False`.

        Raises:
            FileExistsError: if it does.
            ValueError: if a word is empty or has white space in it, which
                ends words in such files.
        """
        binary = check_boolean("binary", binary)
        for word in self.index_to_key:
            if word.split() != [word]:
                raise ValueError(
                    "Words in files of word2vec must have no white space. "
                    f"Received: {word!r}. `save` keeps such words."
                )
        with (
            replacing(path, overwrite) as temporary,
            open(temporary, "wb") as file,
        ):
            file.write(f"{len(self)} {self.vector_size}\n".encode())
            words = iter(self.index_to_key)
            for part in self._stored.parts():
                for vector in part:
                    word = next(words).encode("utf-8", "surrogatepass")
                    file.write(word + b" " + _as_bytes(vector, binary) + b"\n")

    def to_layers(self, mask_zero=False, unknown=None, **kwargs):
        """Keras layers from strings to these vectors.

        The first makes ids of words, the second vectors of ids; together they
        are a front of a model, and the second alone can be trained, saved and
        exported as any layer of this package.

        Args:
            mask_zero: Boolean. Whether id 0 is padding, which the string `""`
                stands for, to be masked. Defaults to `False`.
            unknown: Optional word, whose vector all unknown words get.
                Defaults to `None`: they get what is nearest to the mean
                vector, of all that the method can store.
            **kwargs: `name`, `dtype`, `trainable` of the second layer.

        Returns:
            Tuple of a `keras.layers.StringLookup` and a built layer. Unknown
            words have the first id that is no padding, and words follow in
            their order.

        Raises:
            KeyError: if `unknown` has no vector.
            ValueError: with `mask_zero`, if `""` is one of the words.

        Example:

        >>> layer = kc.QuantizedEmbedding.from_table(np.eye(3), verbose=0)
        >>> small = kc.vectors.CompressedVectors(["a", "b", "c"], layer)
        >>> lookup, embedding = small.to_layers(mask_zero=True)
        >>> lookup(["c", "a", "?", ""]).numpy().tolist()
        [4, 2, 1, 0]
        >>> embedding(lookup([["b"]])).shape
        TensorShape([1, 1, 3])
        """
        mask_zero = check_boolean("mask_zero", mask_zero)
        if mask_zero and _MASK in self:
            raise ValueError(
                "`mask_zero` must be False where '' is a word with a vector. "
                "Received: mask_zero=True."
            )
        row, stored = len(self), self._stored
        if unknown is not None:
            row = self._row(unknown)
        elif stored.can_grow:
            stored = self._with_mean()
        else:
            row = self._nearest_to_mean()
        # What padding gives makes no difference.
        order = [row] * (1 + mask_zero) + list(range(len(self)))
        rows = stored.take(stored.rows, np.array(order))
        layer = stored.with_rows(rows).make_layer(mask_zero=mask_zero, **kwargs)
        token = _UNKNOWN
        while token in self:
            token += "_"
        lookup = keras.layers.StringLookup(
            vocabulary=self.index_to_key,
            mask_token=_MASK if mask_zero else None,
            oov_token=token,
        )
        return lookup, layer

    def _mean_vector(self):
        parts = self._stored.parts()
        return sum(x.sum(axis=0, dtype="float64") for x in parts) / len(self)

    def _with_mean(self):
        """Stored rows with one more, nearest to the mean of all."""
        layer = self._stored.make_layer()
        with warnings.catch_warnings():
            # Of vectors about 0 the mean is short, and need not be exact.
            warnings.filterwarnings("ignore", ".*rows are far shorter")
            layer.add_ids(self._mean_vector()[None])
        return self._stored.with_rows(self._stored.read_rows(layer))

    def _nearest_to_mean(self):
        """The row of the word whose vector is."""
        mean = self._mean_vector()
        parts = self._stored.parts()
        far = [np.square(part - mean).sum(axis=1) for part in parts]
        return int(np.argmin(np.concatenate(far)))


def _stored_rows(layer):
    for kind in _KINDS:
        if isinstance(layer, kind.layers):
            if not layer.built:
                raise ValueError(
                    "`layer` must be built. Received: the layer "
                    f"{layer.name!r}, which is not."
                )
            return kind.of(layer)
    raise TypeError(
        "`layer` must be a `CodeEmbedding`, `QuantizedEmbedding` or "
        f"`ANTEmbedding`. Received: {type(layer).__name__}."
    )


def _check_kind(method):
    """Returns a method whose layers can be stored, or raises."""
    if not any(issubclass(method.rows, kind.layers) for kind in _KINDS):
        raise TypeError(
            "`method` must be `Codes`, `Rounded` or `Anchors` of "
            "`keras_compembed.methods`. Received: "
            f"{type(method).__name__}."
        )
    return method


def _as_list(items):
    is_one = isinstance(items, str) or getattr(items, "ndim", None) == 1
    return [items] if is_one else list(items)


def _unit(vector):
    length = np.linalg.norm(vector)
    return vector / length if length else vector


def _as_bytes(vector, binary):
    if binary:
        return vector.astype("<f4").tobytes()
    # The fewest digits that give the same float32.
    return " ".join(vector.astype(str)).encode()
