"""Compressed word vectors."""

import functools
import numbers
import os
import typing
from collections.abc import Iterable

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_compembed.compression.size_search import SizeSearch
from keras_compembed.compression.size_search import StopRequest
from keras_compembed.compression.size_search import TablePoints
from keras_compembed.layers.ant_embedding import ANTEmbedding
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.quantized_embedding import QuantizedEmbedding
from keras_compembed.methods.codes import Codes
from keras_compembed.methods.method import Method
from keras_compembed.methods.method import check_method
from keras_compembed.methods.settings import settings_by_default
from keras_compembed.stores import KINDS
from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.files import number_of_bytes
from keras_compembed.utils.files import replacing
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import require
from keras_compembed.vectors import vectors_file
from keras_compembed.vectors.nearest_rows import NearestRows
from keras_compembed.vectors.word_vectors import Subwords
from keras_compembed.vectors.word_vectors import WordVectors
from keras_compembed.vectors.word_vectors import check_words
from keras_compembed.vectors.word_vectors import describe_size

# Layers of the kinds of rows in files; others become a `LookupLayer`.
_LAYERS = {
    "codes": CodeEmbedding,
    "rounded": QuantizedEmbedding,
    "weights": ANTEmbedding,
}
_MASK, _UNKNOWN = "", "[UNK]"
# Characters that end a word in word2vec files.
_WHITE = set(" \t\n\r\v\f")


class CompressedVectors:
    """Word vectors, compressed in memory and in files.

    `most_similar` and `similarity` are those of gensim's `KeyedVectors`.
    Vectors are stored as learned codes, quantized rows or sparse combinations
    of anchors. Codebooks and other shared weights are always int8, so loaded
    vectors equal the saved ones.

    With `subwords`, an unknown word gets the mean vector of its character
    n-grams, and `word in vectors` is true if one of them has a vector.
    `key_to_index`, `len` and neighbors cover known words only.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(600, 32))
    >>> words = [f"word{row}" for row in range(600)]
    >>> vectors = kc.vectors.WordVectors(words, table)
    >>> small = CompressedVectors.learn(
    ...     vectors, max_bytes="20k", seed=0, verbose=0
    ... )
    >>> small["word7"].shape, small[["word7", "word8"]].shape
    ((32,), (2, 32))
    >>> [(neighbor, similarity)] = small.most_similar("word7", topn=1)

    Args:
        words: List of different strings, the word of each id of the layer.
        layer: A built `CodeEmbedding`, `QuantizedEmbedding` or `ANTEmbedding`.
            Its rows are copied: later changes of the layer have no effect.

    Attributes:
        index_to_key: List of the words, also available as `words`.
        key_to_index: Dict from words to their rows.
        vector_size: Integer, the dimension of the vectors.

    Raises:
        ValueError: If codes have a custom composition.
    """

    def __init__(self, words: list, layer: LookupLayer):
        words, stored = check_words(words), _stored_rows(layer)
        require(
            len(words) == stored.shape[0],
            "`words` must have one word for each id of `layer`.",
            words=len(words),
            input_dim=stored.shape[0],
        )
        self._set(words, stored)

    def _set(self, words, stored, ngrams=None):
        """Sets rows: first those of words, then those of n-grams."""
        self.index_to_key = self.words = words
        self.key_to_index = dict(zip(words, range(len(words)), strict=True))
        self.vector_size = stored.shape[1]
        self._ngrams = ngrams
        self._all_rows = self._stored = stored
        if ngrams is not None:
            self._stored = stored.part(0, len(words))
            self._letters = stored.part(len(words), stored.shape[0])
        self._nearest = NearestRows(self._stored)

    @classmethod
    def learn(
        cls,
        vectors: WordVectors,
        method: Method | None = None,
        *,
        max_bytes: int | str | None = None,
        sample_weight: ArrayLike | None = None,
        seed: int | None = None,
        verbose: int = 1,
    ) -> "CompressedVectors":
        """Compresses word vectors.

        With `subwords`, words and n-grams share one table, with its codebooks
        and `max_bytes`. Each word counts twice: its own vector, and the mean
        of its n-grams. The squared error of an n-gram counts 1/n² for each
        word of n n-grams.

        Args:
            vectors: `WordVectors` to compress.
            method: Optional `Codes`, `Quantized` or `Anchors` of
                `keras_compembed.methods`. Defaults to `None`: the method of
                lowest squared error within `max_bytes`; without it, `Codes()`.
            max_bytes: Optional integer, or a string such as `"2MB"` or
                `"500k"` (k is 1,000): the size limit of the file, words
                included. Defaults to `None`.
            sample_weight: Optional array `(words,)`, the weight of each word,
                e.g. its frequency. Defaults to `None`: all count the same.
            seed: Optional integer, for repeatable results. Defaults to `None`.
            verbose: `0` or `1`, whether to show progress. Defaults to `1`.

        Returns:
            A `CompressedVectors`.

        Raises:
            ValueError: If `max_bytes` is below the smallest possible file, or
                if the largest entry is not 0 and not from 1e-12 to 1e12.
        """
        if not isinstance(vectors, WordVectors):
            raise TypeError(
                "`vectors` must be `keras_compembed.vectors.WordVectors`. "
                f"Received: {type(vectors).__name__}."
            )
        if method is not None:
            if check_method("method", method).rows not in _LAYERS.values():
                raise TypeError(
                    "`method` must be `Codes`, `Quantized` or `Anchors`. "
                    f"Received: {method.name}, a {type(method).__name__}."
                )
        if max_bytes is not None:
            max_bytes = number_of_bytes("max_bytes", max_bytes)
        sample_weight = check_sample_weight(sample_weight, len(vectors))
        seed = check_seed(seed)
        table, ngrams = vectors.vectors, None
        if vectors.subwords is not None:
            ngrams = vectors.subwords.ngrams
            table = np.concatenate([table, vectors.subwords.vectors])
            sample_weight = _with_weights_of_ngrams(
                sample_weight, vectors.words, ngrams
            )
        # Error alone allows vectors of any scale; cosines do not.
        check_fitted_table(table, warn=False)
        packed = vectors_file.pack(vectors.words, ngrams)

        def count(method):
            # Untrained rows take as many bytes.
            fit = method.start()
            layer = method.new_layer(fit, *table.shape)
            return len(vectors_file.to_bytes(*packed, _stored_rows(layer)))

        if method is None and max_bytes is not None:
            method = _find_method(
                table, max_bytes, count, sample_weight, seed, verbose
            )
        else:
            method = method or Codes()
            # Raises before learning if rows cannot be stored.
            size = count(method)
            if max_bytes is not None and size > max_bytes:
                _raise_too_small(max_bytes, size, f" with {method.name}")
        if verbose:
            print(
                f"{method.name}: learning {table.shape[0]:,} x {table.shape[1]}"
            )
        fit = method.start(seed, verbose)
        layer = fit.from_table(table, sample_weight=sample_weight)
        small = cls.__new__(cls)
        small._set(list(vectors.words), _stored_rows(layer), ngrams)
        small._packed = packed
        return small

    @classmethod
    def load(cls, path: str | os.PathLike) -> "CompressedVectors":
        """Loads vectors that `save` wrote.

        Args:
            path: String or path-like, an `.npz` file.

        Raises:
            ValueError: If the file is of another kind, damaged or too new.
        """
        small = cls.__new__(cls)
        small._set(*vectors_file.read(path))
        return small

    def save(self, path: str | os.PathLike, overwrite: bool = False) -> None:
        """Saves vectors to one `.npz` file, without pickles.

        Args:
            path: String or path-like that ends in `.npz`.
            overwrite: Boolean. Whether to replace a file. Defaults to `False`.
        """
        path = os.fsdecode(path)
        require(path.endswith(".npz"), "`path` must end in '.npz'.", path=path)
        with replacing(path, overwrite) as beside, open(beside, "wb") as file:
            file.write(self._to_bytes())

    @property
    def nbytes(self) -> int:
        """Integer, the size of the file in bytes."""
        return len(self._to_bytes())

    @property
    def bytes_by_part(self) -> dict:
        """Dict of the bytes of each part of the file: words, rows and so on.

        `subwords` are the rows of n-grams and their buckets.
        """
        _, arrays = self._packed
        sizes = {"words": arrays["words"].nbytes, **self._stored.bytes_by_part}
        if self._ngrams is not None:
            rows = [*self._letters.rows.values(), *arrays.values()]
            sizes["subwords"] = sum(x.nbytes for x in rows) - sizes["words"]
        return {**sizes, "besides": self.nbytes - sum(sizes.values())}

    @property
    def method(self) -> str:
        """String, the method that stores vectors, such as `"codes 32x16"`."""
        return self._stored.name

    @functools.cached_property
    def _packed(self):
        return vectors_file.pack(self.index_to_key, self._ngrams)

    def _to_bytes(self):
        return vectors_file.to_bytes(*self._packed, self._all_rows)

    def __len__(self):
        return len(self.index_to_key)

    def __contains__(self, word):
        if not isinstance(word, str) or word in self.key_to_index:
            return isinstance(word, str)
        return self._ngrams is not None and bool(self._ngrams.rows([word])[1])

    def __iter__(self):
        return iter(self.index_to_key)

    def __repr__(self):
        size = describe_size(len(self), self._ngrams, self.vector_size)
        return f"<CompressedVectors of {size} as {self.method}>"

    def __getitem__(self, words: str | list) -> np.ndarray:
        """Vectors of a word `(columns,)`, or of a list of words."""
        if isinstance(words, str):
            row = self.key_to_index.get(words)
            if row is None:
                return self._read([words])[0]
            return self._stored.read(np.array([row]))[0]
        if isinstance(words, bytes) or not isinstance(words, Iterable):
            raise TypeError(
                "The key must be a word or a list of words. Received: "
                f"{words!r}."
            )
        return self._read(list(words))

    def get(self, word: str, default: object = None) -> typing.Any:
        """Returns the vector of a word, or `default` if it has none."""
        return self[word] if word in self else default

    def _read(self, words):
        """Vectors `(words, columns)` of a list of words."""
        rows = np.array([self._find(word) for word in words], "int64")
        if rows.min(initial=0) >= 0:
            return self._stored.read(rows)
        unknown = [words[place] for place in np.flatnonzero(rows < 0)]
        for word in unknown:
            if self._ngrams is None or not isinstance(word, str):
                raise self._unknown(word)
        vectors = np.empty((len(words), self.vector_size), "float32")
        vectors[rows >= 0] = self._stored.read(rows[rows >= 0])
        means, counts = self._ngrams.means(unknown, self._letters.read)
        if not counts.all():
            raise self._unknown(unknown[int(np.argmin(counts))])
        vectors[rows < 0] = means
        return vectors

    def _find(self, word):
        """The row of a word, or -1."""
        return self.key_to_index.get(word, -1) if isinstance(word, str) else -1

    def _unknown(self, word):
        ngrams = "" if self._ngrams is None else ", or have n-grams that do"
        return KeyError(
            f"Words must be among the {len(self):,} that have vectors{ngrams}. "
            f"Received: {word!r}."
        )

    def table(self) -> np.ndarray:
        """Returns all vectors, a float32 array `(words, vector_size)`."""
        return np.concatenate(list(self._stored.parts()))

    def subwords(self) -> Subwords | None:
        """Returns all vectors of n-grams, as `Subwords`, or None."""
        ngrams = self._ngrams
        if ngrams is None:
            return None
        vectors = np.concatenate(list(self._letters.parts()))
        return Subwords(
            ngrams.min_n, ngrams.max_n, vectors, ngrams.bucket, ngrams.kept
        )

    def similarity(self, first: str, second: str) -> float:
        """Returns the cosine similarity of two words."""
        first, second = _units(self[[first, second]])
        return float(first @ second)

    def most_similar(
        self,
        positive: str | ArrayLike | list = (),
        negative: str | ArrayLike | list = (),
        topn: int = 10,
        *,
        restrict_vocab: int | None = None,
    ) -> list:
        """Finds the most similar words, also for analogies.

        Same as gensim's `KeyedVectors.most_similar`: unit vectors of `positive`
        are added and those of `negative` subtracted, and words are ranked by
        cosine similarity to the result. The given words are left out. For
        example, `most_similar(["king", "woman"], ["man"])` solves an analogy.

        Args:
            positive: A word, an array `(vector_size,)`, or a list of these. In
                a pair such as `("king", 0.5)`, the weight replaces 1.
            negative: Same as `positive`, for words to subtract. A weight
                replaces -1. Defaults to `None`.
            topn: Integer, the number of words to return. Defaults to `10`.
            restrict_vocab: Optional integer, to search only the first words.

        Returns:
            List of `(word, cosine)` pairs, best first.

        Raises:
            KeyError: If a word has no vector.
        """
        topn, num_rows = self._numbers(topn, restrict_vocab)
        items = [(item, 1) for item in _as_list(positive)]
        items += [(item, -1) for item in _as_list(negative)]
        require(items, "`positive` or `negative` must name a word.", words=0)
        # float64 holds squares of float32.
        query, rows = np.zeros(self.vector_size, "float64"), []
        for item, weight in items:
            if isinstance(item, tuple) and len(item) == 2:
                item, weight = item
                rule = "Weights of words must be finite numbers."
                is_number = isinstance(weight, numbers.Real)
                is_number = is_number and not isinstance(weight, bool)
                require(is_number and np.isfinite(weight), rule, weight=weight)
            if isinstance(item, str):
                query += weight * _units(self[item])
                rows.append(self._find(item))
            else:
                query += weight * self._check_vector(item)
        rows = [row for row in rows if row >= 0]
        query = _units(query).astype("float32")
        return self._name(*self._nearest.of_one(query, rows, topn, num_rows))

    def most_similar_many(
        self,
        queries: list | ArrayLike,
        topn: int = 10,
        restrict_vocab: int | None = None,
    ) -> list:
        """Finds the most similar words for many queries at once.

        Same as `most_similar` for each query up to rounding, but faster.

        Args:
            queries: List of words, or float array `(queries, vector_size)`.
            topn, restrict_vocab: Same as for `most_similar`.

        Returns:
            For each query, a list of `(word, cosine)` pairs, best first.

        Raises:
            KeyError: If a word has no vector.

        Example:

        >>> table = np.array([[1, 0], [2, 1], [0, 3]])
        >>> layer = kc.QuantizedEmbedding.from_table(table, verbose=0)
        >>> small = CompressedVectors(["a", "b", "c"], layer)
        >>> [word for [(word, _)] in small.most_similar_many(["a", "c"], 1)]
        ['b', 'b']
        """
        topn, num_rows = self._numbers(topn, restrict_vocab)
        if isinstance(queries, str) or not isinstance(queries, Iterable):
            raise TypeError(
                "`queries` must be a list of words, or an array (queries, "
                f"vector_size). Received: queries={queries!r}."
            )
        queries = list(queries)
        words = [query for query in queries if isinstance(query, str)]
        if words and len(words) < len(queries):
            raise TypeError(
                "`queries` must be all words, or all arrays. Received: "
                f"{len(words)} words among {len(queries)}."
            )
        if words:
            vectors = self._read(words)
        else:
            vectors = [self._check_vector(query) for query in queries]
        own = np.array([self._find(query) for query in queries], "int64")
        vectors = np.reshape(vectors, (-1, self.vector_size))
        vectors = _units(vectors).astype("float32")
        found = self._nearest.of_many(vectors, own, topn, num_rows)
        return [self._name(*best) for best in found]

    def _numbers(self, topn, restrict_vocab):
        """Number of words to return, and number of words to search."""
        num_rows = len(self)
        if restrict_vocab is not None:
            check_positive_int("restrict_vocab", restrict_vocab)
            num_rows = min(restrict_vocab, num_rows)
        return check_positive_int("topn", topn), num_rows

    def _name(self, rows, scores):
        """Pairs of words and scores, for rows."""
        words = map(self.index_to_key.__getitem__, rows.tolist())
        return list(zip(words, scores.tolist(), strict=True))

    def _check_vector(self, vector):
        vector = np.asarray(vector)
        require(
            vector.shape == (self.vector_size,) and vector.dtype.kind in "fiu",
            f"Queries must be words, or vectors of size {self.vector_size}.",
            shape=vector.shape,
            dtype=vector.dtype,
        )
        with np.errstate(over="ignore"):
            vector = vector.astype("float32")
        require(
            np.isfinite(vector).all(),
            "Vectors must be finite in float32.",
            vector=vector,
        )
        return vector

    def as_keyed_vectors(self) -> typing.Any:
        """Returns the vectors of all words as gensim's `KeyedVectors`.

        Use it for `evaluate_word_pairs`, `evaluate_word_analogies` and so on.
        It needs gensim (`keras-compembed[vectors]`) and has the full table.
        """
        models = import_extra("gensim.models", "vectors")
        keyed = models.KeyedVectors(self.vector_size, dtype="float32")
        keyed.add_vectors(self.index_to_key, self.table())
        return keyed

    def save_word2vec_format(
        self,
        path: str | os.PathLike,
        binary: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Saves the vectors of all words in word2vec's format.

        Args:
            path: String or path-like.
            binary: Boolean. Writes float32, not text. Defaults to `False`.
            overwrite: Boolean. Whether to replace a file. Defaults to `False`.

        Raises:
            ValueError: If a word is empty or has a space, tab or line end:
                the format cannot store such words.
        """
        binary = check_boolean("binary", binary)
        for word in self.index_to_key:
            require(
                word and _WHITE.isdisjoint(word),
                "Words in word2vec files must not be empty or have a space, "
                "tab or line end; `save` keeps such words.",
                word=word,
            )
        with replacing(path, overwrite) as beside, open(beside, "wb") as file:
            file.write(f"{len(self)} {self.vector_size}\n".encode())
            words = iter(self.index_to_key)
            for part in self._stored.parts():
                for vector in part:
                    word = next(words).encode("utf-8", "surrogatepass")
                    row = vector.astype("<f4").tobytes()
                    if not binary:
                        # The fewest digits with the same float32.
                        row = " ".join(vector.astype(str)).encode()
                    file.write(word + b" " + row + b"\n")

    def to_layers(
        self,
        mask_zero: bool = False,
        unknown: str | None = None,
        **kwargs: object,
    ) -> tuple:
        """Returns two Keras layers, from words to ids and from ids to vectors.

        All unknown words (OOV) share one id, even with `subwords`.

        Args:
            mask_zero: Boolean. Whether to mask id 0, the id of the string `""`
                as padding. Defaults to `False`.
            unknown: Optional word, to give its vector to all unknown words.
                Defaults to `None`: the mean vector, as closely as the method
                can store it.
            **kwargs: `name`, `dtype`, `trainable` of the second layer.

        Returns:
            Tuple of a `keras.layers.StringLookup` and a built embedding layer.
            The first id after padding is for unknown words; the words follow
            in their order.

        Raises:
            KeyError: If `unknown` has no vector.
            ValueError: If a word is invalid UTF-8 or ends in NUL, or if `""`
                is a word and `mask_zero` is `True`.

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
        require(
            not mask_zero or _MASK not in self.key_to_index,
            "`mask_zero` must be False if '' is one of the words.",
            mask_zero=mask_zero,
        )
        for row, word in enumerate(self.index_to_key):
            # A `StringLookup` would not find other words.
            is_found = word == word.encode(errors="ignore").decode()
            require(
                is_found and not word.endswith("\0"),
                "Words for a `StringLookup` must be valid UTF-8 and not end "
                "in NUL.",
                **{f"word {row}": word},
            )
        stored, row = self._stored, self._find(unknown)
        if unknown is None:
            stored, row = stored.with_mean()
        elif row < 0:
            raise self._unknown(unknown)
        # The vector of padding does not matter.
        order = [row] * (1 + mask_zero) + list(range(len(self)))
        stored = stored.with_rows(stored.take(np.array(order)))
        store, kwargs = stored.make_store(), {"mask_zero": mask_zero, **kwargs}
        cls = _LAYERS.get(stored.kind)
        if cls is None:
            layer = LookupLayer(store, **kwargs)
        else:
            layer = cls.from_config({**store.get_config(), **kwargs})
        layer.build()
        layer.store.load(stored)
        token = _UNKNOWN
        while token in self.key_to_index:
            token += "_"
        lookup = keras.layers.StringLookup(
            vocabulary=self.index_to_key,
            mask_token=_MASK if mask_zero else None,
            oov_token=token,
        )
        return lookup, layer


def _stored_rows(layer):
    if not isinstance(layer, LookupLayer) or layer.store.kind not in KINDS:
        raise TypeError(
            "`layer` must be a `CodeEmbedding` with stored codes, a "
            "`QuantizedEmbedding` or an `ANTEmbedding`. "
            f"Received: {type(layer).__name__}."
        )
    require(layer.built, "`layer` must be built.", layer=layer.name)
    return layer.store.arrays().small()


def _find_method(table, max_bytes, count, sample_weight, seed, verbose):
    """The method of lowest error within a size limit."""
    settings = settings_by_default(table, sample_weight, is_quick=False)

    def bytes_of(method, width=None):
        return method.litert_bytes(*table.shape, "int8")

    points = TablePoints([table], settings, bytes_of, sample_weight, seed)
    with StopRequest().watching() as stop:
        search = SizeSearch(
            [points],
            lambda choices: (count(settings[choices[0]].method), None),
            stop,
            print if verbose else lambda text: None,
        )
        least = search.count_smallest(max_bytes)
        if least > max_bytes:
            _raise_too_small(max_bytes, least)
        search.look(max_bytes)
        if stop.is_set and not points.known:
            raise KeyboardInterrupt
    for choices in search.ranked(max_bytes):
        if search.count(choices) <= max_bytes:
            return settings[choices[0]].method


def _raise_too_small(max_bytes, least, whose=""):
    raise ValueError(
        f"`max_bytes` must be at least {least:,} for these words and vectors"
        f"{whose}. Received: max_bytes={max_bytes}."
    )


def _with_weights_of_ngrams(sample_weight, words, ngrams):
    """Weights of words, followed by those of n-grams."""
    if sample_weight is None:
        sample_weight = np.ones(len(words), "float32")
    weights = ngrams.weights(words, sample_weight)
    # N-grams of no known word serve unknown words.
    least = weights[weights > 0].min(initial=np.inf)
    weights = np.maximum(weights, least if np.isfinite(least) else 1)
    return np.concatenate([sample_weight, weights])


def _as_list(items):
    """A list of words, arrays and pairs."""
    is_array = getattr(items, "ndim", None) == 1
    # Tensors of other libraries are no NumPy arrays.
    has_words = is_array and getattr(items.dtype, "kind", None) in ("O", "U")
    if isinstance(items, str) or (is_array and not has_words):
        return [items]
    if isinstance(items, bytes) or not isinstance(items, Iterable):
        raise TypeError(
            "`positive` and `negative` must be a word, an array, or a list of "
            f"these. Received: {items!r}."
        )
    return list(items)


def _units(vectors):
    """Vectors scaled to length 1 in float64; zeros stay."""
    vectors = np.asarray(vectors, "float64")
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)
