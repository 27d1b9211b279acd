"""A store of int8, int4 or int2 rows, with scales."""

import copy
import functools
import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import FieldColumns
from keras_compembed.codes.packing import gather_fields
from keras_compembed.litert.flatbuffer import StoredTable
from keras_compembed.litert.litert_form import FLOAT32
from keras_compembed.litert.litert_form import LEAST
from keras_compembed.litert.litert_form import ROUNDING
from keras_compembed.litert.litert_form import LiteRTForm
from keras_compembed.litert.litert_form import RowChunks
from keras_compembed.litert.litert_form import join_weights
from keras_compembed.litert.litert_form import length_of
from keras_compembed.litert.litert_form import unflatten
from keras_compembed.litert.litert_form import unknown_zero
from keras_compembed.rounding.rounded_table import RoundedTable
from keras_compembed.rounding.rounded_table import check_room
from keras_compembed.rounding.rounded_table import count_blocks
from keras_compembed.rounding.rounded_table import fields_of_bytes
from keras_compembed.rounding.rounded_table import integer_range
from keras_compembed.rounding.rounded_table import name_of_rows
from keras_compembed.rounding.rounded_table import pack_integers
from keras_compembed.rounding.rounded_table import packed_width
from keras_compembed.rounding.rounded_table import round_factors
from keras_compembed.rounding.rounded_table import round_onto
from keras_compembed.rounding.rounded_table import round_rows
from keras_compembed.rounding.rounded_table import unpack_integers
from keras_compembed.rounding.rounded_table import warn_if_coarse
from keras_compembed.stores.latent_rows import LatentRows
from keras_compembed.stores.row_arrays import RowArrays
from keras_compembed.stores.row_arrays import append_rows
from keras_compembed.stores.row_arrays import check_arrays
from keras_compembed.stores.row_arrays import check_shared
from keras_compembed.stores.store import Store
from keras_compembed.stores.store import get_low_rank
from keras_compembed.utils.files import count_litert_bytes
from keras_compembed.utils.tensor_ops import each_once
from keras_compembed.utils.tensor_ops import multiply_blocks
from keras_compembed.utils.tensor_ops import of_all_ids
from keras_compembed.utils.tensor_ops import of_all_ids_again
from keras_compembed.utils.tensor_ops import sum_groups
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import float_chunks
from keras_compembed.utils.validation import require

# Range of random rows, as in `keras.initializers.RandomUniform`.
_RANDOM_SIZE = 0.05
# Elements of rows dequantized at once.
_CHUNK_ELEMENTS = 1 << 22
# Rows dequantized at once in plain arrays; they fit in a core's cache.
_CHUNK_ROWS = 256
_SETTINGS = ("bits", "block_size", "rank", "scale_dtype")
# The unit, and each number of the mean row, are float32.
_FLOAT_BYTES = 4
# In files: the scale of packed bytes, and the factors of their fields and what
# is added to them, which gives the integers.
_BYTE_UNIT = 1 / 16
_FIELDS = {8: [(1, 0)], 4: [(1, 0), (16, -8)], 2: [(1, 0), (4, -2)]}


@keras.saving.register_keras_serializable(package="keras_compembed")
class Integers(Store):
    """Integers times scales, and optionally times a low-rank projection."""

    kind = "rounded"
    settings = (*_SETTINGS, "learn_rows")
    attributes = ("width", "num_blocks", "projection")

    def __init__(
        self,
        input_dim,
        output_dim,
        bits=8,
        block_size=None,
        rank=None,
        scale_dtype="int8",
        learn_rows=False,
    ):
        super().__init__(input_dim, output_dim)
        self.low_rank = get_low_rank(rank)
        rank = self.low_rank and self.low_rank.rank
        settings = bits, block_size, rank, scale_dtype
        settings = _check_settings(self.output_dim, *settings)
        self.bits, self.block_size, self.rank, self.scale_dtype = settings
        self.width = self.rank or self.output_dim
        self.num_blocks = count_blocks(self.width, self._block)
        self.rows_initializer = _get_rows_initializer(learn_rows)
        self.latents = self.projection = None

    @property
    def learn_rows(self):
        return self.rows_initializer is not None

    @property
    def _block(self):
        return self.block_size or self.width

    @property
    def _shape(self):
        return self.bits, self.block_size, self.scale_dtype

    def make_variables(self, add):
        fixed = functools.partial(add, trainable=False)
        shape = self.input_dim, packed_width(self.width, self.bits)
        self.packed_rows = fixed(
            "packed_rows", shape=shape, initializer=_random_bytes, dtype="uint8"
        )
        kind, highest = self.scale_dtype, np.iinfo(self.scale_dtype).max
        self.scales = fixed(
            "scales",
            shape=(self.input_dim, self.num_blocks),
            initializer=lambda shape, dtype: tf.cast(
                tf.fill(shape, highest), dtype
            ),
            dtype=kind,
        )
        self.integer_weights = self.packed_rows, self.scales
        if self.learn_rows:
            # Keras may initialize variables later.
            shape, begin = (self.input_dim, self.width), self.rows_initializer
            latents = add("latent_rows", shape=shape, initializer=begin)
            self._first_rows = latents
        unit = {"shape": (), "initializer": self._initialize_unit}
        self.scale_unit = fixed("scale_unit", dtype="float32", **unit)
        if self.rank is not None:
            shape = self.rank, self.output_dim
            trained = self.low_rank.arguments
            self.projection = add("projection", shape=shape, **trained)
        if self.learn_rows:
            # Saved files have this weight. Not boolean: tools that show or sum
            # all weights take numbers only.
            zero = {"shape": (), "initializer": "zeros"}
            fixed("rows_are_fixed", dtype="uint8", **zero)
        # The last one, as earlier files lack it.
        shape = (self.width,)
        zeros = {"shape": shape, "initializer": "zeros", "dtype": "float32"}
        self.mean_row = fixed("mean_row", **zeros)
        if self.learn_rows:
            settings = self.bits, self._block, self.scale_dtype
            shared = self.scale_unit, self.mean_row
            self.latents = LatentRows(latents, *shared, *settings)

    def _initialize_unit(self, shape, dtype=None):
        largest = _RANDOM_SIZE / 2 ** (self.bits - 1)
        if self.learn_rows:
            # At least as much as each row needs.
            _, highest = integer_range(self.bits)
            latents = tf.convert_to_tensor(self._first_rows.value)
            largest = tf.reduce_max(tf.abs(latents)) / highest
        return tf.cast(largest, dtype) / np.iinfo(self.scale_dtype).max

    def integers(self, ids):
        """Integers, int8 `(ids, width)`, of a rank-1 tensor of ids."""
        if self.latents is not None:
            return self.latents.integers(ids)
        packed = tf.gather(self.packed_rows.value, ids)
        return unpack_tensor(packed, self.width, self.bits)

    def _float_scales(self, ids):
        """Scales, float32 `(ids, blocks)`."""
        scales = tf.cast(tf.gather(self.scales.value, ids), tf.float32)
        return scales * tf.convert_to_tensor(self.scale_unit.value)

    def _read_rows(self, ids, training=False):
        """Rows, float32 `(ids, width)`, before they are projected."""
        if self.latents is not None:
            return self.latents.read(ids, training)
        rows = multiply_blocks(
            tf.cast(self.integers(ids), tf.float32),
            self._float_scales(ids),
            self._block,
        )
        return rows + tf.convert_to_tensor(self.mean_row.value)

    def _read_all_rows(self):
        if self.latents is not None:
            return self.latents.read_all()
        return of_all_ids(self._read_rows, self.input_dim)

    def read(self, ids, training=False, counts=None):
        def read(ids):
            return self._project(self._read_rows(ids, training))

        # Latent rows deduplicate ids of all devices.
        return each_once(read, ids) if self.latents is None else read(ids)

    def read_all(self):
        return self._project(self._read_all_rows())

    def sum_rows(self, ids, weights, training=False, counts=None):
        """Sums of rows, projected once."""
        flat = tf.reshape(ids, (-1,))
        if self.latents is not None or self.num_blocks > 1:
            sums = sum_groups(self._read_rows(flat, training), weights)
        else:
            mean = tf.reduce_sum(weights, axis=1, keepdims=True)
            mean *= tf.cast(self.mean_row.value, weights.dtype)
            scales = tf.reshape(self._float_scales(flat), tf.shape(ids))
            weights = weights * tf.cast(scales, weights.dtype)
            sums = sum_groups(self.integers(flat), weights) + mean
        return self._project(sums)

    def _project(self, rows, back=False):
        """Vectors of rows; with `back`, vectors in the space of rows."""
        dtype = keras.backend.result_type(self.dtype, "float32")
        dtype = keras.backend.result_type(rows.dtype, dtype)
        rows = tf.cast(rows, dtype)
        if self.projection is None:
            return rows
        projection = tf.cast(self.projection.value, dtype)
        return tf.matmul(rows, projection, transpose_b=back)

    def prepare_scores(self):
        if self.latents is not None:
            self.latents.grow()

    def score(self, vectors):
        def score(ids, narrow):
            rows = tf.cast(self._read_rows(ids), narrow.dtype)
            return tf.matmul(rows, narrow, transpose_b=True)

        narrow = self._project(vectors, back=True)
        size = max(1, _CHUNK_ELEMENTS // self.width)
        if self.latents is not None or self.input_dim <= size:
            rows = tf.cast(self._read_all_rows(), narrow.dtype)
            scores = tf.matmul(narrow, rows, transpose_b=True)
        else:
            scores = tf.transpose(
                of_all_ids_again(score, self.input_dim, size, [narrow])
            )
        return tf.cast(scores, vectors.dtype)

    def score_rows(self, vectors, read=None):
        narrow = self._project(vectors, back=True)
        score = super().score_rows(narrow, self._read_rows)
        return lambda ids: tf.cast(score(ids), vectors.dtype)

    def table(self):
        """All rows before projection, a `RoundedTable`."""
        if self.latents is not None:
            return self.latents.table()
        to_array = keras.ops.convert_to_numpy
        return RoundedTable(
            unpack_integers(to_array(self.packed_rows), self.width, self.bits),
            to_array(self.scales),
            to_array(self.scale_unit)[()],
            self._block,
            to_array(self.mean_row),
        )

    def round_table(self, table, sample_weight, seed):
        """Sets rows to the nearest of a table; returns how near they are."""
        if self.rank is None:
            rounded, latents = round_rows(table, *self._shape), table
        else:
            rounded, latents, projection = round_factors(
                table, self.rank, *self._shape, sample_weight, seed
            )
            self.projection.assign(projection)
        warn_if_coarse(latents, rounded)
        self.packed_rows.assign(pack_integers(rounded.integers, self.bits))
        self.scales.assign(rounded.scales)
        self.scale_unit.assign(rounded.unit)
        self.mean_row.assign(rounded.mean_row)
        if self.latents is not None:
            self.latents.assign(np.asarray(latents) - rounded.mean_row)
        error = energy = 0.0
        for start, rows in float_chunks(table):
            rest = rows - self.read(tf.range(start, start + len(rows)))
            error += np.sum(np.square(rest), dtype="float64")
            energy += np.sum(np.square(rows), dtype="float64")
        return error / energy if energy else 0.0

    def arrays(self):
        table, floats = self.table(), {}
        settings = {
            "columns": self.output_dim,
            "unit": float(table.unit),
            **{name: getattr(self, name) for name in _SETTINGS},
        }
        if self.projection is not None:
            projection = keras.ops.convert_to_numpy(self.projection)
            floats["projection"] = projection
        # A file is as large with zeros.
        if self.bits < 8:
            floats["mean_row"] = table.mean_row
        return IntegerRows(settings, _pack(table, self.bits), floats)

    def load(self, arrays):
        self.packed_rows.assign(arrays.rows["integers"])
        self.scales.assign(arrays.rows["scales"])
        self.scale_unit.assign(arrays.settings["unit"])
        if self.projection is not None:
            self.projection.assign(arrays.floats["projection"])
        self.mean_row.assign(arrays.mean_row)
        if self.latents is not None:
            self.latents.latents.assign(arrays.latents)

    def stripped(self, max_nonzeros=None, trainable=False):
        return {"learn_rows": False}, self.arrays()

    def grown(self, vectors):
        arrays = self.arrays()
        more, latents = arrays.round(vectors)
        check_room(latents, self.bits, more)
        warn_if_coarse(latents, more)
        grown = arrays.with_rows(
            append_rows(arrays.rows, _pack(more, self.bits))
        )
        if self.latents is not None:
            own = keras.ops.convert_to_numpy(self.latents.latents)
            latents = (latents - more.mean_row).astype(own.dtype)
            grown.latents = np.concatenate([own, latents])
        return {"input_dim": self.input_dim + len(vectors)}, grown

    def sizes(self):
        projection = (self.rank or 0) * self.output_dim
        rows = self.input_dim * packed_width(self.width, self.bits)
        scales = self.input_dim * self.num_blocks
        scales *= np.dtype(self.scale_dtype).itemsize
        scales += _FLOAT_BYTES * (1 + self.width)
        parts = {"quantized rows": rows, "scales": scales}
        if projection:
            parts["projection"] = projection * tf.as_dtype(self.dtype).size
        return {
            "stored_as": name_of_rows(self.bits, self.block_size, self.rank),
            "parts": parts,
            "num_values": self.input_dim * self.width + projection,
        }

    def litert(self, options, path):
        return _IntegersForm(self, options, path)

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "rank": serialize(self.low_rank),
            "learn_rows": serialize(self.rows_initializer or False),
        }


class IntegerRows(RowArrays):
    """Integers and scales as plain arrays."""

    kind = Integers.kind
    shared_kind = "projection"
    # Trained float rows, if rows are learned.
    latents = None

    @classmethod
    def check(cls, settings, rows, shared, count):
        """Raises unless arrays of a file are valid."""
        columns = check_positive_int("columns", settings["columns"])
        own = [settings[name] for name in _SETTINGS]
        bits, block_size, rank, scale_dtype = _check_settings(columns, *own)
        check_positive_number("unit", settings["unit"], zero=True)
        width = rank or columns
        blocks = count_blocks(width, block_size or width)
        wanted = {
            "integers": ("uint8", (count, packed_width(width, bits))),
            "scales": (scale_dtype, (count, blocks)),
        }
        check_arrays(rows, wanted)
        shapes = {"projection": (rank, columns)} if rank else {}
        if "mean_row" in shared:
            shapes["mean_row"] = (width,)
        check_shared(shared, shapes)

    def start(self):
        settings = self.settings
        self._bits = settings["bits"]
        self._width = settings["rank"] or settings["columns"]
        self._block_size = settings["block_size"] or self._width
        self.unit = np.float32(settings["unit"])
        # Earlier files, and those of int8, lack it.
        zeros = np.zeros(self._width, "float32")
        self.mean_row = self.floats.get("mean_row", zeros)
        self._projection = self.floats.get("projection")
        if self._projection is not None:
            self._projection = self._projection.astype("float32")
        self._columns = None

    @property
    def name(self):
        return name_of_rows(*map(self.settings.get, _SETTINGS[:3]))

    def make_store(self):
        options = {name: self.settings[name] for name in _SETTINGS}
        return Integers(*self.shape, **options)

    def _table(self, ids):
        integers = self.rows["integers"][ids]
        return RoundedTable(
            unpack_integers(integers, self._width, self._bits),
            self.rows["scales"][ids],
            self.unit,
            self._block_size,
            self.mean_row,
        )

    def with_vectors(self, vectors):
        more, _ = self.round(vectors)
        return self.with_rows(append_rows(self.rows, _pack(more, self._bits)))

    def round(self, vectors):
        """The `RoundedTable` nearest to vectors, and the unrounded rows."""
        settings = self.settings
        shape = self._bits, settings["block_size"], settings["scale_dtype"]
        shape = *shape, self.unit, self.mean_row
        if self._projection is None:
            return round_rows(vectors, *shape), vectors
        return round_onto(vectors, self._projection, *shape)

    def read(self, ids):
        vectors = self._table(ids).decode()
        if self._projection is not None:
            vectors = vectors @ self._projection
        return vectors

    def norms(self):
        if self._projection is not None:
            # A triangle as wide as rows gives the same lengths.
            triangle = np.linalg.qr(self._projection.T, mode="r").T
            narrow = copy.copy(self)
            narrow._projection = triangle
            return RowArrays.norms(narrow)
        if self._bits == 8:
            return super().norms()
        mean, values = self.mean_row[:, None], self._values
        squares = self._sums(np.tile(values**2, (self._width, 1)), power=2)
        squares += 2 * self._sums(mean * values) + np.square(mean).sum()
        return np.sqrt(np.maximum(squares, 0))

    def scores(self, query):
        if self._projection is not None:
            query = self._projection @ query
        if self._bits == 8:
            # With a table for each number, products are cheaper.
            sums = self._products(query) * self.unit
        else:
            sums = self._sums(query[:, None] * self._values)
        return sums + query @ self.mean_row

    @property
    def _values(self):
        """Integers by their packed fields, two's complements."""
        lowest, highest = integer_range(self._bits)
        return np.r_[: highest + 1, lowest:0].astype("float32")

    def _sums(self, tables, power=1):
        """Sums `(rows,)` of tables of values, times a power of scales."""
        total = np.zeros(self.shape[0], "float32")
        if self._columns is None:
            self._columns = list(self._columns_of_blocks())
        for block, columns in enumerate(self._columns):
            start = block * self._block_size
            sums = columns.add_up(tables[start : start + self._block_size])
            scales = self.rows["scales"][:, block] * self.unit
            total += sums * scales**power
        return total

    def _columns_of_blocks(self):
        packed, bits, size = self.rows["integers"], self._bits, self._block_size
        # Whether no byte is shared by two blocks.
        is_whole = size >= self._width or size * bits % 8 == 0
        if not is_whole:
            integers = unpack_integers(packed, self._width, bits)
        for start in range(0, self._width, size):
            end = min(start + size, self._width)
            if is_whole:
                fields = packed[:, start * bits // 8 : -(-end * bits // 8)]
            else:
                fields = pack_integers(integers[:, start:end], bits)
            yield FieldColumns(fields, end - start, bits)

    def _products(self, query):
        """Products with int8 rows, dequantized in parts."""
        integers = self.rows["integers"].view("int8")
        scales = self.rows["scales"]
        total = np.zeros(self.shape[0], "float32")
        for start in range(0, self.shape[0], _CHUNK_ROWS):
            part = slice(start, start + _CHUNK_ROWS)
            rows = integers[part].astype("float32")
            for block in range(scales.shape[1]):
                place = block * self._block_size
                columns = slice(place, place + self._block_size)
                sums = rows[:, columns] @ query[columns]
                total[part] += sums * scales[part, block]
        return total


class _IntegersForm(LiteRTForm):
    """Integers and scales in a LiteRT file."""

    def __init__(self, store, options, path):
        super().__init__(store, options)
        self.width, self._num_blocks = store.width, store.num_blocks
        table = store.table()
        self._block_size, self._unit = table.block_size, table.unit
        # A file is as large with zeros.
        self._mean_row = table.mean_row if store.bits < 8 else None
        self._bits = store.bits
        self._bytes = _join_fields(table.integers, self._bits)
        self._scales = np.ascontiguousarray(table.scales)
        unit = np.float32(_BYTE_UNIT) if self._bits < 8 else None
        rows = StoredTable(f"{path}/rows", self._bytes, unit)
        scales = StoredTable(f"{path}/scales", self._scales, self._unit)
        options.tables.extend([rows, scales])
        self.num_bytes = self._bytes.size + self._scales.nbytes
        self.projection = None
        if store.projection is not None:
            projection = keras.ops.convert_to_numpy(store.projection)
            self.projection = projection.astype("float32")
        self._scored = RowChunks(store.input_dim, store.width)
        self.has_features = self.can_spread = True
        self.matrix, self.columns = self.projection, self.width
        self.can_fold = self.matrix is not None
        self.num_numbers = self.matrix.size if self.can_fold else 0

    def look_up(self, ids):
        rows = self.scaled(ids)
        if self.projection is None:
            return rows
        return self._options.product(rows, self.projection)

    def scaled(self, ids):
        """Rows `(ids, width)`, before projection."""
        rows = self.scale(self.integers(ids), self.scales(ids))
        return rows if self._mean_row is None else rows + self._mean_row

    def integers(self, ids):
        """Integers of rows, float32 `(ids, width)`."""
        terms = zip(self._fields(ids), _FIELDS[self._bits], strict=True)
        columns = [factor * x + y if y else x for x, (factor, y) in terms]
        numbers = tf.concat(columns, axis=1)
        if numbers.shape[1] > self.width:
            numbers = numbers[:, : self.width]
        return numbers

    def _fields(self, ids):
        """Blocks of columns of integers: vector ops split bytes fast."""
        numbers = tf.cast(tf.gather(self._bytes, ids), tf.float32)
        if self._bits == 8:
            return [numbers]
        return _split_fields(numbers * _BYTE_UNIT, self._bits)

    def scales(self, ids):
        """Scales of rows, float32 `(ids, num_blocks)`."""
        return tf.cast(tf.gather(self._scales, ids), tf.float32) * self._unit

    def scale(self, integers, scales):
        """Integers `(ids, width)` times the scales of their blocks."""
        if self._num_blocks == 1:
            return integers * scales
        columns = self._num_blocks * self._block_size
        if columns > self.width:
            # Pad the last block.
            room = [[0, 0], [0, columns - self.width]]
            integers = tf.pad(integers, room)
        blocks = (-1, self._num_blocks, self._block_size)
        rows = tf.reshape(integers, blocks) * tf.expand_dims(scales, 2)
        return tf.reshape(rows, (-1, columns))[:, : self.width]

    def folded_rows(self, ids):
        return self._options.product(self.scaled(ids), self.fold(self.kernel))

    def features(self, ids):
        return unflatten(self.scaled(tf.reshape(ids, [-1])), ids, self.width)

    def feature_sums(self, ids, counts, weights, mean):
        flat = tf.reshape(ids, [-1])
        integers, scales = self.integers(flat), self.scales(flat)
        weights = join_weights(counts, weights)
        if weights is not None:
            scales *= tf.reshape(weights, [-1, 1])
        rows = unflatten(self.scale(integers, scales), ids, self.width)
        sums = (tf.reduce_mean if mean else tf.reduce_sum)(rows, axis=1)
        if self._mean_row is None:
            return sums
        total = 1.0 if mean else length_of(ids)
        if weights is not None:
            total = tf.reduce_sum(weights, axis=1, keepdims=True)
        return sums + total * self._mean_row

    def score_chunks(self, vectors):
        vectors = tf.cast(vectors, tf.float32)
        if self.projection is not None:
            projection = self._options.note(self.projection)
            vectors = tf.matmul(vectors, projection, transpose_b=True)
        shift = 0.0
        if self._mean_row is not None:
            shift = tf.reduce_sum(vectors * self._mean_row, 1, keepdims=True)
        parts, added = self._parts(vectors)
        scores = None
        for ids in self._scored.ids(vectors):
            if scores is not None:
                # One chunk at a time, within the processor's cache.
                ids += unknown_zero(scores[:1, :1])
            scales = self.scales(ids)
            if self._num_blocks > 1:
                integers = self.scale(self.integers(ids), scales)
                scores = tf.matmul(vectors, integers, transpose_b=True)
            else:
                # Joined columns, and products of rows of them, are slower.
                terms = zip(parts, self._fields(ids), strict=True)
                products = [tf.matmul(*x, transpose_b=True) for x in terms]
                # Scores are fewer than entries of rows.
                scales = tf.reshape(scales, [1, -1])
                scores = (tf.add_n(products) + added) * scales
            yield scores + shift

    def _parts(self, vectors):
        """Factors of fields in scores, and the sum of all other terms."""
        fields = _FIELDS[self._bits]
        room = -self.width % (8 // self._bits)
        parts = tf.split(tf.pad(vectors, [[0, 0], [0, room]]), len(fields), 1)
        sums = [tf.reduce_sum(x, axis=1, keepdims=True) for x in parts]
        added = sum(y * x for x, (_, y) in zip(sums, fields, strict=True))
        return [x * y for x, (y, _) in zip(parts, fields, strict=True)], added

    def tolerance(self, quantize, largest):
        if self.projection is None:
            allowed = 4 * FLOAT32 * largest
            if quantize == "float16" and self._mean_row is not None:
                most = float(np.abs(self._mean_row).max())
                allowed += most * ROUNDING[quantize] + LEAST
            return allowed
        allowed = super().tolerance(quantize, largest)
        # int8 products also round rows.
        if quantize in ("int8", "int8_codebooks"):
            return allowed
        rows = np.abs(self.store.table().decode()).max(axis=0)
        most = (rows @ np.abs(self.projection)).max()
        terms = self.width + 4
        return most * (ROUNDING[quantize] + terms * FLOAT32) + LEAST


def _check_settings(columns, bits, block_size, rank, scale_dtype):
    """Checked settings of rows for vectors of `columns` columns."""
    bits = check_choice("bits", bits, (8, 4, 2))
    if rank is not None:
        rank = check_positive_int("rank", rank, maximum=columns)
    if block_size is not None:
        block_size = check_positive_int(
            "block_size", block_size, maximum=rank or columns
        )
    scale_dtype = check_choice("scale_dtype", scale_dtype, ("int8", "int16"))
    return bits, block_size, rank, scale_dtype


def litert_bytes(shape, bits, block_size, rank, scale_dtype, quantize=None):
    """Bytes of a table's constants in a LiteRT file."""
    input_dim, output_dim = shape
    width = rank or output_dim
    scales = count_blocks(width, block_size or width)
    scales *= np.dtype(scale_dtype).itemsize
    rows = input_dim * (packed_width(width, bits) + scales)
    projection = (rank or 0) * output_dim
    # Only float16 rounds the mean row.
    mean_row = (2 if quantize == "float16" else 4) * width if bits < 8 else 0
    return rows + mean_row + count_litert_bytes(projection, quantize)


def _join_fields(integers, bits):
    """Bytes of integers of several columns."""
    room = -integers.shape[1] % (8 // bits)
    numbers = np.pad(integers, ((0, 0), (0, room)))
    while bits < 8:
        lowest, _ = integer_range(bits)
        high, low = np.split(numbers, 2, axis=1)
        numbers = (high << bits) + (low - lowest)
        bits *= 2
    return np.ascontiguousarray(numbers)


def _split_fields(numbers, bits):
    """Fields of bytes / 16: undoes `_join_fields`, up to `_FIELDS`."""
    high = tf.floor(numbers)
    low = numbers - high
    if bits == 4:
        return [high, low]
    factor, added = _FIELDS[bits][1]
    numbers = tf.concat([high / factor, factor * low + added], axis=1)
    high = tf.floor(numbers)
    return [high, numbers - high]


def unpack_tensor(packed, width, bits):
    """Undoes `pack_integers`, in TensorFlow ops."""
    if bits == 8:
        return tf.cast(packed, tf.int8)
    return gather_fields(packed, fields_of_bytes(bits), width)


def _pack(table, bits):
    """The rows of a `RoundedTable`."""
    return {
        "integers": pack_integers(table.integers, bits),
        "scales": table.scales,
    }


def _random_bytes(shape, dtype=None):
    rng = np.random.default_rng(random.getrandbits(32))
    return tf.convert_to_tensor(rng.integers(256, size=shape, dtype="uint8"))


def _get_rows_initializer(learn_rows):
    """The initializer of learned rows, or None."""
    if isinstance(learn_rows, (bool, np.bool_)):
        return keras.initializers.get("uniform") if learn_rows else None
    require(
        isinstance(learn_rows, (str, dict)) or callable(learn_rows),
        "`learn_rows` must be a boolean or an initializer of rows.",
        learn_rows=learn_rows,
    )
    return keras.initializers.get(learn_rows)
