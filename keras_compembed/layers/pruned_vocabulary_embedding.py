"""Embedding with rows for some ids, and a few that all others share."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.table_embedding import TableEmbedding
from keras_compembed.layers.table_embedding import read_all
from keras_compembed.utils.shared_parts import freeze_part
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_scores
from keras_compembed.utils.validation import float_chunks
from keras_compembed.utils.validation import require

SHARING = ("modulo", "nearest")
_CHUNK_NUMBERS = 1 << 22
_ROUNDS = 5
# Kept ids are counted from a common number for each block.
_BLOCK = 64
_BIT_COUNTS = np.array([bin(bits).count("1") for bits in range(256)], "uint8")


@keras.saving.register_keras_serializable(package="keras_compembed")
class PrunedVocabularyEmbedding(TableEmbedding):
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
            own: the first, if `from_table` chooses no others.
        num_shared_rows: Integer. Rows that the others share. Defaults to
            `1`.
        sharing: `"modulo"`: an id that is not kept has shared row `id %
            num_shared_rows`; or `"nearest"`: `from_table` gives it whatever
            row is nearest to its own, shared or of one id, which takes 2
            bytes for each id, 4 beyond 32,768 rows. Defaults to `"modulo"`.
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
        ValueError: if a size or an id is out of range, `sharing`
            is unknown, or `rows` has other sizes.
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        num_rows,
        num_shared_rows=1,
        sharing="modulo",
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
        self.sharing = check_choice("sharing", sharing, SHARING)
        if isinstance(rows, dict):
            rows = keras.saving.deserialize_keras_object(rows)
        self.rows = rows
        if rows is not None:
            sizes = self.num_rows + self.num_shared_rows, self.output_dim
            require(
                isinstance(rows, LookupLayer)
                and sizes == (rows.input_dim, rows.output_dim),
                f"`rows` must be a look-up layer of {sizes[0]} (`num_rows` + "
                f"`num_shared_rows`) rows of width {sizes[1]}.",
                rows=rows,
            )
            freeze_part(self, rows)

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
            **kwargs: Further arguments of the layer.

        Returns:
            A built `PrunedVocabularyEmbedding`.

        Raises:
            ValueError: if the table is not a finite matrix or a number is out
                of range.
        """
        table = check_fitted_table(table)
        weight = check_sample_weight(sample_weight, len(table))
        check_positive_int("num_rows", num_rows, maximum=len(table))
        if weight is None:
            weight = np.ones(len(table), "float32")
        if scores is None:
            scores = _distances(table, weight)
        scores = check_scores("scores", scores)
        require(
            len(scores) == len(table),
            "`scores` must hold one number for each row of the table.",
            scores=scores.shape,
            rows=len(table),
        )
        kept = np.sort(np.argsort(-scores, kind="stable")[:num_rows])
        rest = np.setdiff1d(np.arange(len(table)), kept, assume_unique=True)
        places = rest % num_shared_rows
        means = _means(table, weight, rest, places, num_shared_rows)
        rows = np.concatenate([np.asarray(table[kept], "float32"), means])
        places = places + num_rows
        if sharing == "nearest":
            rows, places = _nearest(table, weight, rest, rows, num_rows)
        layer_of_rows = None
        if fit_rows is not None:
            # What rows count: the weight of all ids that have them.
            sums = np.bincount(places, weight[rest], minlength=len(rows))
            sums[:num_rows] += weight[kept]
            layer_of_rows = fit_rows(rows, sums)
        sizes = num_rows, num_shared_rows
        layer = cls(*table.shape, *sizes, sharing, layer_of_rows, **kwargs)
        layer.build()
        index = np.empty(len(table), "int64")
        index[kept], index[rest] = np.arange(num_rows), places
        for name, values in layer._places(index).items():
            getattr(layer, name).assign(values)
        if layer.rows is None:
            layer.table.assign(rows)
        return layer

    def build(self, input_shape=None):
        if self.built:
            return
        if self.rows is not None and not self.rows.built:
            self.rows.build()
        index = np.arange(self.input_dim)
        shared = self.num_rows + index % self.num_shared_rows
        index = np.where(index < self.num_rows, index, shared)
        for name, values in self._places(index).items():
            weight = self.add_values(name, values, values.dtype.name)
            setattr(self, name, weight)
        if self.rows is None:
            self.table = self.add_weight(
                shape=(self.num_rows + self.num_shared_rows, self.output_dim),
                initializer=keras.initializers.RandomUniform(seed=self.seed),
                autocast=False,
                name="table",
            )
        self.built = True

    def _places(self, index):
        """Arrays that hold the row of each id, by the names of weights."""
        if self.sharing == "nearest":
            size = index_bytes(self.num_rows + self.num_shared_rows)
            return {"row_of_id": index.astype(f"int{8 * size}")}
        is_kept = np.zeros(count_blocks(self.input_dim) * _BLOCK, bool)
        is_kept[: self.input_dim] = index < self.num_rows
        counts = is_kept.reshape(-1, _BLOCK).sum(axis=1)
        starts = np.cumsum(counts) - counts
        bits = np.packbits(is_kept, bitorder="little").reshape(-1, _BLOCK // 8)
        return {"kept_bits": bits, "kept_starts": starts.astype("int32")}

    def places(self, ids):
        """The row of each id, int32 `(ids,)`."""
        ids = self.known(tf.cast(ids, tf.int32))
        if self.sharing == "nearest":
            return tf.cast(tf.gather(self.row_of_id.value, ids), tf.int32)
        bits = tf.gather(self.kept_bits.value, ids // _BLOCK)
        bits = tf.cast(bits, tf.int32)
        counts = tf.cast(tf.gather(_BIT_COUNTS, bits), tf.int32)
        steps = np.arange(_BLOCK // 8, dtype="int32")
        place = tf.expand_dims(ids % _BLOCK // 8, 1)
        before = tf.cast(steps < place, tf.int32)
        own = tf.cast(tf.equal(steps, place), tf.int32)
        byte = tf.reduce_sum(bits * own, axis=1)
        unit = tf.gather(2 ** np.arange(8, dtype="int32"), ids % 8)
        # How many kept ids come before: in the byte, then in bytes before it.
        below = tf.cast(tf.gather(_BIT_COUNTS, byte % unit), tf.int32)
        ranks = tf.gather(self.kept_starts.value, ids // _BLOCK) + below
        ranks += tf.reduce_sum(counts * before, axis=1)
        shared = self.num_rows + ids % self.num_shared_rows
        return tf.where(tf.equal(byte // unit % 2, 1), ranks, shared)

    def embed(self, ids, read=read_all):
        places = self.places(ids)
        if self.rows is None:
            return read(self.table, places)
        if read is read_all:
            return self.rows.embed(places)
        # It may learn in a way of its own.
        return self.rows(places, training=True)

    def get_config(self):
        rows = self.rows
        return {
            **super().get_config(),
            "num_rows": self.num_rows,
            "num_shared_rows": self.num_shared_rows,
            "sharing": self.sharing,
            "rows": rows and keras.saving.serialize_keras_object(rows),
        }


def index_bytes(num_rows):
    """Integer, bytes of the number of a row."""
    return 2 if num_rows <= 2**15 else 4


def count_place_bytes(input_dim, num_rows, sharing):
    """Integer, bytes in a file of what says which row an id has."""
    if sharing == "nearest":
        return index_bytes(num_rows) * input_dim
    return count_blocks(input_dim) * (_BLOCK // 8 + 4) + _BIT_COUNTS.nbytes


def count_blocks(input_dim):
    """Integer, blocks of so many ids."""
    return -(-input_dim // _BLOCK)


def _distances(table, weight):
    """Weighted squared distances of rows from the mean row."""
    ids, nothing = np.arange(len(table)), np.zeros(len(table), "int64")
    (mean,) = _means(table, weight, ids, nothing, 1)
    squares = [np.square(x - mean).sum(axis=1) for _, x in float_chunks(table)]
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


def _nearest(table, weight, rest, rows, num_rows):
    """Shared rows and the row of each of the rest, in turns."""
    size = max(1, _CHUNK_NUMBERS // len(rows))
    places = np.zeros(len(rest), "int64")
    shared_rows = rows[num_rows:]
    for _ in range(_ROUNDS):
        squares = np.square(rows).sum(axis=1)
        for start in range(0, len(rest), size):
            part = np.asarray(table[rest[start : start + size]], "float32")
            scores = squares - 2 * part @ rows.T
            places[start : start + size] = scores.argmin(axis=1)
        shared = places >= num_rows
        own, owners = places[shared] - num_rows, rest[shared]
        means = _means(table, weight, owners, own, len(shared_rows))
        used = np.unique(own)
        if np.allclose(shared_rows[used], means[used], 1e-4, 1e-6):
            break
        shared_rows[used] = means[used]
    return rows, places
