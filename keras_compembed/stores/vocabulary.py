"""A store of exact rows for some ids; all others share rows or codebooks."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.stores.store import TableStore
from keras_compembed.stores.store import check_layer
from keras_compembed.stores.store import get_layer
from keras_compembed.stores.store import read_all
from keras_compembed.stores.store import read_layer
from keras_compembed.stores.store import stored_bytes
from keras_compembed.utils.files import count_bytes
from keras_compembed.utils.files import count_litert_bytes
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int

SHARING = ("modulo", "nearest")
_CHUNK_NUMBERS = 1 << 22
_ROUNDS = 5
# Kept ids of a block share an offset.
_BLOCK = 64
_BIT_COUNTS = np.array([bin(bits).count("1") for bits in range(256)], "uint8")


@keras.saving.register_keras_serializable(package="keras_compembed")
class KeptRows(TableStore):
    """The row of each id, and a table of rows, or layers with rows."""

    settings = ("num_rows", "num_shared_rows", "sharing", "rows", "rest")

    def __init__(
        self,
        input_dim,
        output_dim,
        num_rows,
        num_shared_rows=1,
        sharing="modulo",
        rows=None,
        rest=None,
    ):
        super().__init__(input_dim, output_dim)
        self.num_rows = check_positive_int(
            "num_rows", num_rows, maximum=input_dim - (rest is not None)
        )
        self.num_shared_rows = check_positive_int(
            "num_shared_rows", num_shared_rows
        )
        self.sharing = check_choice("sharing", sharing, SHARING)
        self.rows, self.rest = rows, rest = get_layer(rows), get_layer(rest)
        if rows is not None:
            why = "`num_rows` + `num_shared_rows`"
            why = why if rest is None else "`num_rows`"
            check_layer("rows", rows, self._sizes_of_rows, why)
        if rest is not None:
            sizes = input_dim - num_rows, output_dim
            check_layer("rest", rest, sizes, "`input_dim` - `num_rows`")

    @property
    def _sizes_of_rows(self):
        shared = self.num_shared_rows if self.rest is None else 0
        return self.num_rows + shared, self.output_dim

    def make_variables(self, add):
        for part in self.parts().values():
            part.build()
        index = np.arange(self.input_dim)
        shared = self.num_rows + index % self.num_shared_rows
        index = np.where(index < self.num_rows, index, shared)
        self.add_arrays(add, self._places(index))
        if self.rows is None:
            self.table = add(
                "table",
                shape=self._sizes_of_rows,
                initializer=keras.initializers.RandomUniform(),
            )

    def take(self, index, rows):
        """Sets the place of each id and, unless a layer has them, rows."""
        for name, values in self._places(index).items():
            getattr(self, name).assign(values)
        if self.rows is None:
            self.table.assign(rows)

    def _places(self, index):
        """Arrays for the row of each id, by names of weights."""
        if self.rest is None and self.sharing == "nearest":
            size = _index_bytes(self.num_rows + self.num_shared_rows)
            return {"row_of_id": index.astype(f"int{8 * size}")}
        is_kept = np.zeros(_count_blocks(self.input_dim) * _BLOCK, bool)
        is_kept[: self.input_dim] = index < self.num_rows
        counts = is_kept.reshape(-1, _BLOCK).sum(axis=1)
        starts = np.cumsum(counts) - counts
        bits = np.packbits(is_kept, bitorder="little").reshape(-1, _BLOCK // 8)
        return {"kept_bits": bits, "kept_starts": starts.astype("int32")}

    def places(self, ids):
        """The row of each id, int32 `(ids,)`."""
        if self.sharing == "nearest":
            return tf.cast(tf.gather(self.row_of_id.value, ids), tf.int32)
        is_kept, ranks = self._ranks(ids)
        shared = self.num_rows + ids % self.num_shared_rows
        return tf.where(is_kept, ranks, shared)

    def _ranks(self, ids):
        """Whether ids are kept, and how many kept ids are before each."""
        bits = tf.gather(self.kept_bits.value, ids // _BLOCK)
        bits = tf.cast(bits, tf.int32)
        counts = tf.cast(tf.gather(_BIT_COUNTS, bits), tf.int32)
        steps = np.arange(_BLOCK // 8, dtype="int32")
        place = tf.expand_dims(ids % _BLOCK // 8, 1)
        before = tf.cast(steps < place, tf.int32)
        own = tf.cast(tf.equal(steps, place), tf.int32)
        byte = tf.reduce_sum(bits * own, axis=1)
        unit = tf.gather(2 ** np.arange(8, dtype="int32"), ids % 8)
        # Kept ids before this one: in its byte, then in earlier bytes.
        below = tf.cast(tf.gather(_BIT_COUNTS, byte % unit), tf.int32)
        ranks = tf.gather(self.kept_starts.value, ids // _BLOCK) + below
        ranks += tf.reduce_sum(counts * before, axis=1)
        return tf.equal(byte // unit % 2, 1), ranks

    def compose(self, ids, read):
        ids = self.known(tf.cast(ids, tf.int32))
        if self.rest is None:
            return self._exact(self.places(ids), read)
        is_kept, ranks = self._ranks(ids)
        is_rest = ~is_kept
        # All ids are read in both: static shapes.
        kept = self._exact(_places_of(is_kept, ranks, read), read, is_kept)
        places = _places_of(is_rest, ids - ranks, read)
        rest = read_layer(self.rest, places, read, is_rest)
        is_kept = tf.expand_dims(is_kept, 1)
        return tf.where(is_kept, kept, tf.cast(rest, kept.dtype))

    def _exact(self, places, read, counts=None):
        """Rows of the table, or of the layer that has them."""
        if self.rows is None:
            return read(self.table, places)
        return read_layer(self.rows, places, read, counts)

    def parts(self):
        parts = {"rows": self.rows, "rest": self.rest}
        return {name: part for name, part in parts.items() if part is not None}

    def sizes(self):
        sizes = super().sizes()
        for part in self.parts().values() if sizes else ():
            extra = stored_bytes(part) - count_bytes(part.weights)
            sizes["parts"]["weights"] += extra
        return sizes


def _places_of(chosen, places, read):
    """Places of chosen ids; other ids repeat one of them."""
    places = tf.where(chosen, places, 0)
    if read is read_all:
        return places
    # Training touches no other rows, unless no id is chosen.
    return tf.where(chosen, places, tf.reduce_max(places))


def split_ids(scores, num_rows):
    """The ids with the highest scores, and all others, both in order."""
    order = np.argsort(-scores, kind="stable")
    return np.sort(order[:num_rows]), np.sort(order[num_rows:])


def share_rows(table, weight, kept, rest, num_shared_rows, sharing):
    """Rows of a table, the row of each id, and the weight of each row."""
    num_rows = len(kept)
    places = rest % num_shared_rows
    means = _means(table, weight, rest, places, num_shared_rows)
    rows = np.concatenate([np.asarray(table[kept], "float32"), means])
    places = places + num_rows
    if sharing == "nearest":
        rows, places = _nearest(table, weight, rest, rows, num_rows)
    # The total weight of the ids of each row.
    sums = np.bincount(places, weight[rest], minlength=len(rows))
    sums[:num_rows] += weight[kept]
    index = np.empty(len(table), "int64")
    index[kept], index[rest] = np.arange(num_rows), places
    return rows, index, sums


def _index_bytes(num_rows):
    """Bytes of a row number."""
    return 2 if num_rows <= 2**15 else 4


def count_place_bytes(input_dim, num_rows, sharing):
    """Bytes of the map from ids to rows in a file."""
    if sharing == "nearest":
        return _index_bytes(num_rows) * input_dim
    return _count_blocks(input_dim) * (_BLOCK // 8 + 4) + _BIT_COUNTS.nbytes


def count_table_bytes(num_rows, width, quantize=None):
    """Bytes in a file of rows that are floats in the layer."""
    # "int8_codebooks" quantizes codebooks and anchors only.
    if quantize == "int8_codebooks":
        quantize = None
    return count_litert_bytes(num_rows * width, quantize)


def _count_blocks(input_dim):
    """Number of blocks of `input_dim` ids."""
    return -(-input_dim // _BLOCK)


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
    """Shared rows, and the row of each other id, improved in turns."""
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
