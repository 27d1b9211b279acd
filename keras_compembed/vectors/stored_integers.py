"""Rows stored as integers of few bits."""

import numpy as np

from keras_compembed.codes.field_columns import FieldColumns
from keras_compembed.layers.quantized_embedding import QuantizedEmbedding
from keras_compembed.rounding.round_factors import round_onto
from keras_compembed.rounding.round_rows import round_rows
from keras_compembed.rounding.rounded_table import RoundedTable
from keras_compembed.rounding.rounded_table import count_blocks
from keras_compembed.rounding.rounded_table import integer_range
from keras_compembed.rounding.rounded_table import name_of_rows
from keras_compembed.rounding.rounded_table import pack_integers
from keras_compembed.rounding.rounded_table import packed_width
from keras_compembed.rounding.rounded_table import unpack_integers
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.vectors.stored_rows import StoredRows
from keras_compembed.vectors.stored_rows import check_arrays
from keras_compembed.vectors.stored_rows import check_shared

# Rows that are floats at once, in the cache of a core.
_CHUNK_ROWS = 256
_SETTINGS = ("bits", "block_size", "rank", "scale_dtype")


class StoredIntegers(StoredRows):
    """Rows of a `QuantizedEmbedding`."""

    kind = "rounded"
    shared_kind = "projection"
    layer = QuantizedEmbedding

    @classmethod
    def check(cls, settings, rows, shared, count):
        columns = check_positive_int("columns", settings["columns"])
        bits = check_choice("bits", settings["bits"], (8, 4, 2))
        check_positive_number("unit", settings["unit"], zero=True)
        rank, block_size = settings["rank"], settings["block_size"]
        width = columns
        shapes = {}
        if rank is not None:
            width = check_positive_int("rank", rank, maximum=columns)
            shapes = {"projection": (rank, columns)}
        if block_size is not None:
            check_positive_int("block_size", block_size, maximum=width)
        blocks = count_blocks(width, block_size or width)
        wanted = {
            "integers": ("uint8", (count, packed_width(width, bits))),
            "scales": (settings["scale_dtype"], (count, blocks)),
        }
        check_choice("scale_dtype", settings["scale_dtype"], ("int8", "int16"))
        check_arrays(rows, wanted)
        check_shared(shared, shapes)

    @staticmethod
    def read_settings(layer):
        table = layer.rounded_table()
        return {
            "columns": layer.output_dim,
            "unit": float(table.unit),
            **{name: getattr(layer, name) for name in _SETTINGS},
        }

    @staticmethod
    def read_rows(layer):
        return _pack(layer.rounded_table(), layer.bits)

    @staticmethod
    def read_shared(layer):
        if layer.projection is None:
            return {}
        return {"projection": np.asarray(layer.projection, "float32")}

    def start(self):
        settings = self.settings
        self._bits = settings["bits"]
        self._width = settings["rank"] or settings["columns"]
        self._block_size = settings["block_size"] or self._width
        self._columns = None

    def _table(self, ids):
        return RoundedTable(
            unpack_integers(
                self.rows["integers"][ids], self._width, self._bits
            ),
            self.rows["scales"][ids],
            np.float32(self.settings["unit"]),
            self._block_size,
        )

    @property
    def name(self):
        settings = self.settings
        return name_of_rows(
            self._bits, settings["block_size"], settings["rank"]
        )

    def make_layer(self, **kwargs):
        options = {name: self.settings[name] for name in _SETTINGS}
        layer = QuantizedEmbedding(*self.shape, **options, **kwargs)
        layer.build()
        layer.packed_rows.assign(self.rows["integers"])
        layer.scales.assign(self.rows["scales"])
        layer.scale_unit.assign(self.settings["unit"])
        if layer.projection is not None:
            layer.projection.assign(self.floats["projection"])
        return layer

    def with_vectors(self, vectors):
        # Not by a layer, which warns where vectors are far shorter than rows.
        settings = self.settings
        shape = self._bits, settings["block_size"], settings["scale_dtype"]
        unit = np.float32(settings["unit"])
        if "projection" in self.floats:
            projection = self.floats["projection"]
            table = round_onto(vectors, projection, *shape, unit).rows
        else:
            table = round_rows(vectors, *shape, unit)
        more = _pack(table, self._bits)
        return self.with_rows(
            {x: np.concatenate([y, more[x]]) for x, y in self.rows.items()}
        )

    def read(self, ids):
        vectors = self._table(ids).decode()
        if "projection" in self.floats:
            vectors = vectors @ self.floats["projection"]
        return vectors

    def scores(self, query):
        if "projection" in self.floats:
            query = self.floats["projection"] @ query
        if self._bits == 8:
            # As many tables as numbers would be dearer than products.
            sums = self._products(query)
        else:
            sums = self._sums(query)
        return sums * np.float32(self.settings["unit"])

    def _sums(self, query):
        """Products with rows of few bits, in units of scales."""
        lowest, highest = integer_range(self._bits)
        # Two's complements.
        values = np.r_[: highest + 1, lowest:0].astype("float32")
        total = np.zeros(self.shape[0], "float32")
        for block, columns in enumerate(self._columns_of_blocks()):
            start = block * self._block_size
            part = query[start : start + self._block_size]
            sums = columns.add_up(part[:, None] * values)
            total += sums * self.rows["scales"][:, block]
        return total

    def _products(self, query):
        """Products with rows of bytes, a few of them floats at a time."""
        integers, scales = (
            self.rows["integers"].view("int8"),
            self.rows["scales"],
        )
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

    def _columns_of_blocks(self):
        if self._columns is None:
            fields = self._table(slice(None)).integers.view("uint8")
            fields = fields & (2**self._bits - 1)
            self._columns = [
                FieldColumns(
                    fields[:, start : start + self._block_size], self._bits
                )
                for start in range(0, self._width, self._block_size)
            ]
        return self._columns


def _pack(table, bits):
    """The rows of a `RoundedTable`."""
    return {
        "integers": pack_integers(table.integers, bits),
        "scales": table.scales,
    }
