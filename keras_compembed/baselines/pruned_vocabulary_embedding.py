"""Embedding with rows for some ids, and a few that all others share."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.baselines.embedding_baseline import EmbeddingBaseline
from keras_compembed.baselines.embedding_baseline import read_all
from keras_compembed.baselines.kept_ids import KeptIds
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.utils.shared_parts import freeze_part
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_scores
from keras_compembed.utils.validation import float_chunks

_SHARING = ("modulo", "nearest")
_CHUNK_NUMBERS = 1 << 22
_ROUNDS = 5


@keras.saving.register_keras_serializable(package="keras_compembed")
class PrunedVocabularyEmbedding(EmbeddingBaseline):
    """Gives some ids rows of their own; the others share a few.

    What is left of a table when its vocabulary is pruned, say to the words
    that are most frequent or of the highest TF-IDF. Which ids these are takes
    a bit and a half for each id. The rows may be those of another layer,
    rounded ones for instance.

    Example:

    >>> layer = PrunedVocabularyEmbedding(1000, 16, num_rows=50)
    >>> vectors = layer(np.array([3, 500, 999])).numpy()
    >>> bool((vectors[1] == vectors[2]).all())
    True

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        num_rows: Integer, at most `input_dim`. Ids that have a row of their
            own.
        num_shared_rows: Integer. Rows that the others share. Defaults to
            `1`.
        sharing: `"modulo"`: an id that is not kept has shared row `id %
            num_shared_rows`; or `"nearest"`: `from_table` gives it whatever
            row is nearest to its own, shared or of one id, which takes 2
            bytes for each id, 4 beyond 32,768 rows. Defaults to `"modulo"`.
        kept_ids: Optional integer array `(num_rows,)`, which ids have a row
            of their own. Defaults to `None`: the first, as in a vocabulary in
            order of frequency.
        rows: Optional layer that gives rows, a `LookupLayer` such as
            `keras_compembed.QuantizedEmbedding` of `num_rows +
            num_shared_rows` rows. Defaults to `None`: a table of floats.
        mask_zero: Boolean. Whether id 0 is padding to be masked. Defaults to
            `False`.
        seed: Optional integer. Seed of initial rows.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: Integer tensor of ids from 0 to `input_dim - 1`; with
            `reverse`, float tensor of vectors.
        reverse: Boolean. Whether to multiply vectors by the transposed table.

    Raises:
        ValueError: if a size or an id is out of range, ids repeat, `sharing`
            is unknown, or `rows` has other sizes.
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        num_rows,
        num_shared_rows=1,
        sharing="modulo",
        kept_ids=None,
        rows=None,
        mask_zero=False,
        seed=None,
        **kwargs,
    ):
        super().__init__(input_dim, output_dim, mask_zero, seed, **kwargs)
        self.num_rows = check_positive_int(
            "num_rows", num_rows, maximum=self.input_dim
        )
        self.num_shared_rows = check_positive_int(
            "num_shared_rows", num_shared_rows
        )
        self.sharing = check_choice("sharing", sharing, _SHARING)
        self._kept_ids = _check_kept_ids(kept_ids, self.num_rows, input_dim)
        self.rows = self._check_rows(rows)
        if self.rows is not None:
            freeze_part(self, self.rows)

    @classmethod
    def from_table(
        cls,
        table,
        num_rows,
        num_shared_rows=1,
        sharing="modulo",
        scores=None,
        fit_rows=None,
        sample_weight=None,
        seed=None,
        verbose=1,
        **kwargs,
    ):
        """Keeps some rows of a trained table; shared rows are means.

        Args:
            table: Array `(input_dim, output_dim)`.
            num_rows: Integer.
            num_shared_rows: Integer. Defaults to `1`.
            sharing: `"modulo"` or `"nearest"`. Defaults to `"modulo"`.
            scores: Optional array `(input_dim,)`: ids of the highest scores
                are kept, how often they occur or their TF-IDF. Of equal
                scores, the lower id. Defaults to `None`: ids are kept whose
                rows are furthest from the mean row, by `sample_weight`.
            fit_rows: Optional callable `fit_rows(table, sample_weight)` that
                makes the layer `rows`. Defaults to `None`: a table of floats.
            sample_weight: Optional array `(input_dim,)`, how much each row
                counts.
            seed: Optional integer.
            verbose: `0` or `1`. It makes no difference.
            **kwargs: Further arguments of the layer.

        Returns:
            A built `PrunedVocabularyEmbedding`.

        Raises:
            ValueError: if the table is not a finite matrix or a number is out
                of range.
        """
        table = check_fitted_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        num_rows = check_positive_int("num_rows", num_rows, maximum=len(table))
        if weight is None:
            weight = np.ones(len(table), "float32")
        if scores is None:
            scores = _distances(table, weight)
        scores = check_scores("scores", scores)
        if len(scores) != len(table):
            raise ValueError(
                "`scores` must hold one number for each row of the table, "
                f"{len(table)}. Received: {len(scores)} numbers."
            )
        kept = np.sort(np.argsort(-scores, kind="stable")[:num_rows])
        rest = np.setdiff1d(np.arange(len(table)), kept, assume_unique=True)
        places = rest % num_shared_rows
        means = _means(table, weight, rest, places, num_shared_rows)
        rows = np.concatenate([np.asarray(table[kept], "float32"), means])
        places = places + num_rows
        if sharing == "nearest":
            rows, places = _nearest(table, weight, rest, rows, num_rows)
        layer = cls(
            *table.shape,
            num_rows,
            num_shared_rows,
            sharing,
            kept,
            rows=fit_rows
            and fit_rows(rows, _sums(weight, kept, rest, places, len(rows))),
            seed=seed,
            **kwargs,
        )
        layer.build()
        if sharing == "nearest":
            index = np.empty(len(table), "int64")
            index[kept], index[rest] = np.arange(num_rows), places
            layer.row_of_id.assign(index)
        if layer.rows is None:
            layer.table.assign(rows)
        return layer

    @property
    def shapes(self):
        if self.rows is not None:
            return {}
        rows = self.num_rows + self.num_shared_rows
        return {"table": (rows, self.output_dim)}

    def initializers(self):
        (seed,) = self.seeds(1)
        return {"table": keras.initializers.RandomUniform(seed=seed)}

    def build(self, input_shape=None):
        if self.built:
            return
        if self.rows is not None and not self.rows.built:
            self.rows.build()
        kept = self._kept_ids
        if kept is None:
            kept = np.arange(self.num_rows)
        if self.sharing == "nearest":
            ids = np.arange(self.input_dim)
            index = self.num_rows + ids % self.num_shared_rows
            index[kept] = np.arange(self.num_rows)
            self.row_of_id = self._add_integers("row_of_id", index, self._index)
        else:
            bits, starts = KeptIds.pack(kept, self.input_dim)
            self.kept_bits = self._add_integers("kept_bits", bits, "uint8")
            self.kept_starts = self._add_integers(
                "kept_starts", starts, "int32"
            )
        super().build(input_shape)

    @property
    def _index(self):
        small = self.num_rows + self.num_shared_rows <= 2**15
        return "int16" if small else "int32"

    def _add_integers(self, name, values, dtype):
        return self.add_weight(
            shape=values.shape,
            initializer=lambda shape, dtype=None: tf.constant(values, dtype),
            dtype=dtype,
            trainable=False,
            autocast=False,
            name=name,
        )

    def places(self, ids):
        """The row of each id, int32 `(ids,)`."""
        ids = self.known(tf.cast(ids, tf.int32))
        if self.sharing == "nearest":
            return tf.cast(tf.gather(self.row_of_id.value, ids), tf.int32)
        kept = KeptIds(self.kept_bits.value, self.kept_starts.value)
        is_kept, ranks = kept(ids)
        shared = self.num_rows + ids % self.num_shared_rows
        return tf.where(is_kept, ranks, shared)

    def embed(self, ids, read=read_all):
        places = self.places(ids)
        if self.rows is None:
            return read(self.table, places)
        if read is read_all:
            return self.rows.embed(places)
        # It may learn in a way of its own.
        return self.rows(places, training=True)

    def litert_bytes(self, quantize=None):
        """Same as for other baselines, without those of a layer of rows."""
        return self.place_bytes + super().litert_bytes(quantize)

    @property
    def place_bytes(self):
        """Bytes of what says which row an id has."""
        if self.sharing == "nearest":
            return (2 if self._index == "int16" else 4) * self.input_dim
        return KeptIds.count_bytes(self.input_dim)

    def _check_rows(self, rows):
        if isinstance(rows, dict):
            rows = keras.saving.deserialize_keras_object(rows)
        if rows is None:
            return None
        wanted = self.num_rows + self.num_shared_rows, self.output_dim
        if not isinstance(rows, LookupLayer) or wanted != (
            rows.input_dim,
            rows.output_dim,
        ):
            sizes = ""
            if isinstance(rows, LookupLayer):
                sizes = f" of sizes {(rows.input_dim, rows.output_dim)}"
            raise ValueError(
                "`rows` must be a look-up layer of sizes (num_rows + "
                f"num_shared_rows, output_dim)={wanted}. Received: a "
                f"{type(rows).__name__}{sizes}."
            )
        return rows

    def get_config(self):
        rows = self.rows
        return {
            **super().get_config(),
            "num_rows": self.num_rows,
            "num_shared_rows": self.num_shared_rows,
            "sharing": self.sharing,
            "rows": rows and keras.saving.serialize_keras_object(rows),
        }


def _check_kept_ids(kept_ids, num_rows, input_dim):
    if kept_ids is None:
        return None
    ids = np.asarray(kept_ids)
    if ids.shape != (num_rows,) or ids.dtype.kind not in "iu":
        raise ValueError(
            f"`kept_ids` must hold num_rows={num_rows} integers. Received: an "
            f"array of shape {ids.shape} and dtype {ids.dtype}."
        )
    number = len(np.unique(ids))
    if ids.min() < 0 or ids.max() >= input_dim or number < num_rows:
        raise ValueError(
            f"`kept_ids` must hold different ids below input_dim={input_dim}. "
            f"Received: {number} different ones from {ids.min()} to "
            f"{ids.max()}."
        )
    return np.sort(ids)


def _distances(table, weight):
    """Weighted squared distances of rows from the mean row."""
    mean = sum(
        weight[start : start + len(rows)] @ rows.astype("float64")
        for start, rows in float_chunks(table)
    ) / weight.sum(dtype="float64")
    squares = [
        np.square(rows - mean).sum(axis=1) for _, rows in float_chunks(table)
    ]
    return np.concatenate(squares) * weight


def _means(table, weight, ids, places, number):
    """Weighted means `(number, columns)` of rows, by their places."""
    sums = np.zeros((number, table.shape[1]))
    size = max(1, _CHUNK_NUMBERS // table.shape[1])
    for start in range(0, len(ids), size):
        part = ids[start : start + size]
        rows = np.asarray(table[part], "float64") * weight[part, None]
        np.add.at(sums, places[start : start + size], rows)
    totals = np.bincount(places, weight[ids], minlength=number)
    return (sums / np.where(totals == 0, 1, totals)[:, None]).astype("float32")


def _sums(weight, kept, rest, places, number):
    """What rows count: the weight of all ids that have them."""
    sums = np.bincount(places, weight[rest], minlength=number)
    sums[: len(kept)] += weight[kept]
    return sums


def _nearest(table, weight, rest, rows, num_rows):
    """Shared rows and the row of each of the rest, in turns."""
    size = max(1, _CHUNK_NUMBERS // len(rows))
    places = np.zeros(len(rest), "int64")
    for _ in range(_ROUNDS):
        squares = np.square(rows).sum(axis=1)
        for start in range(0, len(rest), size):
            part = np.asarray(table[rest[start : start + size]], "float32")
            scores = squares - 2 * part @ rows.T
            places[start : start + size] = scores.argmin(axis=1)
        shared = places >= num_rows
        means = _means(
            table,
            weight,
            rest[shared],
            places[shared] - num_rows,
            len(rows) - num_rows,
        )
        used = np.unique(places[shared]) - num_rows
        if _is_last(rows[num_rows:][used], means[used]):
            break
        rows[num_rows:][used] = means[used]
    return rows, places


def _is_last(before, after):
    return np.allclose(before, after, rtol=1e-4, atol=1e-6)
