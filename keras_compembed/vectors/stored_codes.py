"""Rows stored as codes."""

import keras
import numpy as np

from keras_compembed.codes.field_columns import FieldColumns
from keras_compembed.codes.packing import bits_per_subcode
from keras_compembed.codes.packing import bytes_per_row
from keras_compembed.codes.packing import pack_codes
from keras_compembed.codes.packing import unpack_codes
from keras_compembed.compositions.registry import COMPOSITIONS
from keras_compembed.compositions.registry import get_composition
from keras_compembed.compositions.scaled_composition import ScaledComposition
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.vectors.stored_rows import StoredRows
from keras_compembed.vectors.stored_rows import check_arrays
from keras_compembed.vectors.stored_rows import check_shared

# Rows that are added up at once, in the cache of a core.
_CHUNK_ROWS = 256


class StoredCodes(StoredRows):
    """Rows of a `CodeEmbedding`."""

    kind = "codes"
    shared_kind = "codebooks"
    layer = CodeEmbedding

    @classmethod
    def check(cls, settings, rows, shared, count):
        shape = settings["num_codebooks"], settings["codebook_size"]
        check_code_shape(*shape)
        columns = check_positive_int("columns", settings["columns"])
        code_dim = settings["code_dim"]
        width = bytes_per_row(*shape)
        check_arrays(rows, {"codes": ("uint8", (count, width))})
        shapes = {name: small.integers.shape for name, small in shared.items()}
        check_shared(shared, shapes)
        # Before weights of that width are made.
        if not any(shape[-1:] == (columns,) for shape in shapes.values()):
            raise ValueError(f"none of its weights is {columns} wide")
        if code_dim is not None and code_dim != shapes["codebooks"][-1]:
            raise ValueError(f"its codewords are not {code_dim} wide")

    @staticmethod
    def read_settings(layer):
        names = {cls: name for name, cls in COMPOSITIONS.items()}
        composition = layer.composition.unscaled()
        if type(composition) not in names:
            raise ValueError(
                "The composition of codes must be one of "
                f"{', '.join(COMPOSITIONS)} to be stored. Received: "
                f"{type(composition).__name__}."
            )
        settings = {
            "columns": layer.output_dim,
            "num_codebooks": layer.num_codebooks,
            "codebook_size": layer.codebook_size,
            "composition": names[type(composition)],
            "code_dim": composition.get_config().get("code_dim"),
        }
        if composition is not layer.composition:
            settings["scaled"] = True
        return settings

    @staticmethod
    def read_rows(layer):
        if layer.learn_codes is None:
            codes = keras.ops.convert_to_numpy(layer.packed_codes)
            return {"codes": codes.copy()}
        return {"codes": pack_codes(layer.codes, layer.codebook_size)}

    @staticmethod
    def read_shared(layer):
        weights = [layer.codebooks, *layer.composition.weights]
        return {
            _name(place): np.atleast_1d(np.asarray(weight, "float32"))
            for place, weight in enumerate(weights)
        }

    def start(self):
        settings = self.settings
        self._code_shape = settings["num_codebooks"], settings["codebook_size"]
        composition = COMPOSITIONS[settings["composition"]](
            code_dim=settings["code_dim"]
        )
        if settings.get("scaled"):
            composition = ScaledComposition(composition)
        self._composition = get_composition(
            composition, *self._code_shape, settings["columns"]
        )
        weights = self._composition.weights
        wanted = self._composition.codebooks_shape
        if self._codebooks.shape != wanted or len(self.floats) != 1 + len(
            weights
        ):
            raise ValueError("its weights are not those of its composition")
        self._composition.set_weights(
            [
                self.floats[_name(place)].reshape(weight.shape)
                for place, weight in enumerate(weights, 1)
            ]
        )
        self._folded = self._columns = None
        if self._composition.is_linear:
            self._folded = np.asarray(self._composition.fold(self._codebooks))

    @property
    def can_grow(self):
        return self._folded is not None

    @property
    def _codebooks(self):
        return self.floats[_name(0)]

    @property
    def name(self):
        settings = self.settings
        name = "codes {num_codebooks}x{codebook_size}".format(**settings)
        composition = settings["composition"]
        if composition == "linear":
            return f"{name} rank {self._codebooks.shape[-1]}"
        return name if composition == "sum" else f"{name} {composition}"

    def make_layer(self, **kwargs):
        layer = CodeEmbedding(
            *self.shape,
            *self._code_shape,
            composition=self._composition,
            codes=self._codes(slice(None)),
            codebooks=self._codebooks,
            **kwargs,
        )
        layer.composition.set_weights(self._composition.get_weights())
        return layer

    def _codes(self, ids):
        return unpack_codes(self.rows["codes"][ids], *self._code_shape)

    def read(self, ids):
        codes = self._codes(ids)
        if self._folded is None:
            return self._composition.decode(codes, self._codebooks)
        vectors = np.zeros((len(codes), self.shape[1]), "float32")
        for start in range(0, len(codes), _CHUNK_ROWS):
            chunk = slice(start, start + _CHUNK_ROWS)
            total = vectors[chunk]
            for codebook, subcodes in zip(
                self._folded, codes[chunk].T, strict=True
            ):
                total += codebook.take(subcodes, axis=0)
        return vectors

    def scores(self, query):
        if self._folded is None:
            return super().scores(query)
        if self._columns is None:
            bits = bits_per_subcode(self._code_shape[1])
            self._columns = FieldColumns(self._codes(slice(None)), bits)
        return self._columns.add_up(self._folded @ query)


def _name(place):
    return f"weight_{place}" if place else "codebooks"
