"""Words and their vectors in few bytes."""

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

# Layers of what files hold; of other kinds, a `LookupLayer`.
_LAYERS = {
    "codes": CodeEmbedding,
    "rounded": QuantizedEmbedding,
    "weights": ANTEmbedding,
}
_MASK, _UNKNOWN = "", "[UNK]"
# What ends words in files of word2vec.
_WHITE = set(" \t\n\r\v\f")


class CompressedVectors:
    """Words and their vectors, in few bytes in memory and in files.

    Names are those of gensim's `KeyedVectors`. Vectors are stored as a layer
    of this package stores its rows: as codes, integers of few bits or weights
    of anchors. Numbers that rows share, such as codebooks, are rounded to
    eight bits at once, so loaded vectors equal the saved ones.

    If vectors had `subwords`, an unknown word has the mean vector of its
    character n-grams, and is `in` if one of them has a vector.
    `key_to_index`, `len` and neighbors have the words only.

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
        words: List of different strings, the words of the layer's ids.
        layer: A built `CodeEmbedding`, `QuantizedEmbedding` or `ANTEmbedding`.
            It is read once: later changes of it make no difference.

    Attributes:
        index_to_key: List of the words, also called `words`.
        key_to_index: Dict from words to their rows.
        vector_size: Integer, numbers of a vector.

    Raises:
        ValueError: if codes have a composition of your own.
    """

    def __init__(self, words: list, layer: LookupLayer):
        words, stored = check_words(words), _stored_rows(layer)
        require(
            len(words) == stored.shape[0],
            "`words` must have a word for each id of `layer`.",
            words=len(words),
            input_dim=stored.shape[0],
        )
        self._set(words, stored)

    def _set(self, words, stored, ngrams=None):
        """Takes rows of words, and behind them those of n-grams."""
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
        """Compresses vectors.

        With `subwords`, rows of words and of n-grams are one table: they share
        codebooks and `max_bytes`. Each word then counts as itself and once
        more as the mean of its n-grams. Where these are n, the square of an
        error in one of them counts 1/n².

        Args:
            vectors: `WordVectors`.
            method: Optional `Method` of `keras_compembed.methods`: `Codes`,
                `Quantized` or `Anchors`. Defaults to `None`: the one of the
                lowest squared error within `max_bytes`, or else `Codes()`.
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
            ValueError: if `max_bytes` is less than the smallest file takes,
                or the largest number is not from 1e-12 to 1e12 (or 0).
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
        # Rows that only scale would do with any, and their cosines would not.
        check_fitted_table(table, warn=False)
        packed = vectors_file.pack(vectors.words, ngrams)

        def count(method):
            # Files of rows that learned nothing are as large.
            fit = method.start()
            layer = method.new_layer(fit, *table.shape)
            return len(vectors_file.to_bytes(*packed, _stored_rows(layer)))

        if method is None and max_bytes is not None:
            method = _find_method(
                table, max_bytes, count, sample_weight, seed, verbose
            )
        else:
            method = method or Codes()
            # Also what cannot be stored is told before it is learned.
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
        """Reads what `save` wrote.

        Args:
            path: String or path-like, an `.npz` file.

        Raises:
            ValueError: if it is another file, damaged, or of a later version.
        """
        small = cls.__new__(cls)
        small._set(*vectors_file.read(path))
        return small

    def save(self, path: str | os.PathLike, overwrite: bool = False) -> None:
        """Writes one `.npz` file, without pickles.

        Args:
            path: String or path-like that ends in `.npz`.
            overwrite: Boolean. Whether it may exist. Defaults to `False`.
        """
        path = os.fsdecode(path)
        require(path.endswith(".npz"), "`path` must end in '.npz'.", path=path)
        with replacing(path, overwrite) as beside, open(beside, "wb") as file:
            file.write(self._to_bytes())

    @property
    def nbytes(self) -> int:
        """Integer, bytes of the file."""
        return len(self._to_bytes())

    @property
    def bytes_by_part(self) -> dict:
        """Dict of the bytes of the file: words, what rows have, the rest.

        `subwords` are the rows of n-grams, and which these are.
        """
        _, arrays = self._packed
        sizes = {"words": arrays["words"].nbytes, **self._stored.bytes_by_part}
        if self._ngrams is not None:
            rows = [*self._letters.rows.values(), *arrays.values()]
            sizes["subwords"] = sum(x.nbytes for x in rows) - sizes["words"]
        return {**sizes, "besides": self.nbytes - sum(sizes.values())}

    @property
    def method(self) -> str:
        """String, how vectors are stored, such as `"codes 32x16"`."""
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
            return self._read([words])[0]
        if isinstance(words, bytes) or not isinstance(words, Iterable):
            raise TypeError(
                "Vectors are of a word, or of a list of words. Received: "
                f"{words!r}."
            )
        return self._read(list(words))

    def get(self, word: str, default: object = None) -> typing.Any:
        """The vector of a word, or `default` if `word` is not `in` this."""
        return self[word] if word in self else default

    def _read(self, words):
        """Vectors `(words, columns)` of a list of words."""
        rows = np.array([self._find(word) for word in words], "int64")
        unknown = [words[place] for place in np.flatnonzero(rows < 0)]
        for word in unknown:
            if self._ngrams is None or not isinstance(word, str):
                raise self._unknown(word)
        vectors = np.empty((len(words), self.vector_size), "float32")
        vectors[rows >= 0] = self._stored.read(rows[rows >= 0])
        if unknown:
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
        """All vectors, a float32 array `(words, columns)`."""
        return np.concatenate(list(self._stored.parts()))

    def subwords(self) -> Subwords | None:
        """All vectors of n-grams, as `Subwords`, or None."""
        ngrams = self._ngrams
        if ngrams is None:
            return None
        vectors = np.concatenate(list(self._letters.parts()))
        return Subwords(
            ngrams.min_n, ngrams.max_n, vectors, ngrams.bucket, ngrams.kept
        )

    def similarity(self, first: str, second: str) -> float:
        """The cosine of the vectors of two words."""
        first, second = _units(self[[first, second]])
        return float(first @ second)

    def most_similar(
        self,
        positive: str | ArrayLike | list = (),
        negative: str | ArrayLike | list = (),
        topn: int = 10,
        restrict_vocab: int | None = None,
    ) -> list:
        """The words nearest to some, and far from others.

        The same as gensim's `KeyedVectors.most_similar` on the vectors: unit
        vectors of words are added or subtracted, and words are ranked by
        their cosine with the result. The words asked for are left out.
        `most_similar(["king", "woman"], ["man"])` so answers an analogy.

        Args:
            positive: A word, an array `(columns,)`, or a list of these. A
                pair such as `("king", 0.5)` has a weight, in place of 1.
            negative: Same as `positive`, for what is subtracted. A weight is
                in place of -1.
            topn: Integer, words to return. Defaults to `10`.
            restrict_vocab: Optional integer, how many of the first words are
                looked at. Defaults to `None`: all.

        Returns:
            List of pairs of a word and its cosine, best first.

        Raises:
            KeyError: if a word has no vector.
        """
        topn, num_rows = self._numbers(topn, restrict_vocab)
        items = [(item, 1) for item in _as_list(positive)]
        items += [(item, -1) for item in _as_list(negative)]
        require(items, "`positive` or `negative` must name a word.", words=0)
        # Squares of what float32 holds.
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
        """The words nearest to each of many.

        The same as `[most_similar(query, topn=topn) for query in queries]`, to
        the rounding of floats, in less time.

        Args:
            queries: List of words, or float array `(queries, columns)`.
            topn, restrict_vocab: Same as in `most_similar`.

        Returns:
            List with a list of pairs of a word and its cosine, best first, for
            each query.

        Raises:
            KeyError: if a word has no vector.

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
                f"columns). Received: queries={queries!r}."
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
        """Words to find, and words that are looked at."""
        num_rows = len(self)
        if restrict_vocab is not None:
            check_positive_int("restrict_vocab", restrict_vocab)
            num_rows = min(restrict_vocab, num_rows)
        return check_positive_int("topn", topn), num_rows

    def _name(self, rows, scores):
        """Pairs of words and scores, of rows."""
        words = map(self.index_to_key.__getitem__, rows.tolist())
        return list(zip(words, scores.tolist(), strict=True))

    def _check_vector(self, vector):
        vector = np.asarray(vector)
        require(
            vector.shape == (self.vector_size,) and vector.dtype.kind in "fiu",
            f"Vectors must have {self.vector_size} numbers, and words be text.",
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
        """All vectors of words, as gensim's `KeyedVectors`.

        For `evaluate_word_pairs`, `evaluate_word_analogies` and so on. Needs
        gensim (`keras-compembed[vectors]`) and holds the whole table.
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
        """Writes the vectors of all words as word2vec does.

        Args:
            path: String or path-like.
            binary: Boolean. Whether numbers are float32, not text. Defaults
                to `False`.
            overwrite: Boolean. Whether it may exist. Defaults to `False`.

        Raises:
            ValueError: if a word is empty or has a space, tab or line end,
                which ends words in such files.
        """
        binary = check_boolean("binary", binary)
        for word in self.index_to_key:
            require(
                word and _WHITE.isdisjoint(word),
                "Words in files of word2vec must not be empty or have a space, "
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
                        # The fewest digits that give the same float32.
                        row = " ".join(vector.astype(str)).encode()
                    file.write(word + b" " + row + b"\n")

    def to_layers(
        self,
        mask_zero: bool = False,
        unknown: str | None = None,
        **kwargs: object,
    ) -> tuple:
        """Keras layers from strings to these vectors.

        The first makes ids of words, the second vectors of ids. All unknown
        words get one id, with `subwords` too.

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
            ValueError: with `mask_zero`, if `""` is one of the words, or if a
                word is no UTF-8 or ends in NUL.

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
            "`mask_zero` must be False where '' is a word with a vector.",
            mask_zero=mask_zero,
        )
        for row, word in enumerate(self.index_to_key):
            # A `StringLookup` would find no other, or another word.
            is_found = word == word.encode(errors="ignore").decode()
            require(
                is_found and not word.endswith("\0"),
                "Words must be UTF-8, and not end in NUL, for a "
                "`StringLookup`.",
                **{f"word {row}": word},
            )
        stored, row = self._stored, self._find(unknown)
        if unknown is None:
            stored, row = stored.with_mean()
        elif row < 0:
            raise self._unknown(unknown)
        # What padding gives makes no difference.
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
            "Vectors are stored as `CodeEmbedding`, `QuantizedEmbedding` or "
            f"`ANTEmbedding` store them. Received: {type(layer).__name__}."
        )
    require(layer.built, "`layer` must be built.", layer=layer.name)
    return layer.store.arrays().small()


def _find_method(table, max_bytes, count, sample_weight, seed, verbose):
    """The method that loses least in a file of so many bytes."""
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
    """Weights of words, and behind them those of rows of n-grams."""
    if sample_weight is None:
        sample_weight = np.ones(len(words), "float32")
    weights = ngrams.weights(words, sample_weight)
    # N-grams that no word has are those of unknown words.
    least = weights[weights > 0].min(initial=np.inf)
    weights = np.maximum(weights, least if np.isfinite(least) else 1)
    return np.concatenate([sample_weight, weights])


def _as_list(items):
    """A list of words, arrays and pairs."""
    is_array = getattr(items, "ndim", None) == 1
    # Tensors of other libraries have other types.
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
    """Vectors of length 1 in float64, or of zeros as they are."""
    vectors = np.asarray(vectors, "float64")
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)
