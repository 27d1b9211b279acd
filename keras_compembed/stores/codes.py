"""A store of rows as learned codes."""

import functools
import itertools
import math
import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import CodeScores
from keras_compembed.codes.packing import FieldColumns
from keras_compembed.codes.packing import bits_per_subcode
from keras_compembed.codes.packing import bytes_per_row
from keras_compembed.codes.packing import check_codes
from keras_compembed.codes.packing import count_codes
from keras_compembed.codes.packing import decode_codes
from keras_compembed.codes.packing import pack_codes
from keras_compembed.codes.packing import sums_by_byte
from keras_compembed.codes.packing import unpack_codes
from keras_compembed.codes.packing import unpack_rows
from keras_compembed.compositions.composition import COMPOSITIONS
from keras_compembed.compositions.composition import ScaledComposition
from keras_compembed.compositions.composition import check_composition
from keras_compembed.compositions.composition import get_composition
from keras_compembed.learners.refinement import nearest_composed
from keras_compembed.learners.task_codes import get_task_codes
from keras_compembed.litert.codes_form import CodesForm
from keras_compembed.optimizers.device_rows import computed_once
from keras_compembed.stores.row_arrays import RowArrays
from keras_compembed.stores.row_arrays import append_rows
from keras_compembed.stores.row_arrays import check_arrays
from keras_compembed.stores.row_arrays import check_shared
from keras_compembed.stores.store import Store
from keras_compembed.stores.store import WeightSpec
from keras_compembed.utils.files import count_bytes
from keras_compembed.utils.files import count_litert_bytes
from keras_compembed.utils.saving import get_settings
from keras_compembed.utils.tensor_ops import each_once
from keras_compembed.utils.tensor_ops import of_all_ids
from keras_compembed.utils.tensor_ops import of_all_ids_again
from keras_compembed.utils.tensor_ops import top_rows
from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require

# Up to this codebook size per row of a group, counts of all codewords are
# faster than sums of single rows.
_COUNTED_SIZE = 16
# Assumed length of a group, if unknown.
_USUAL_LENGTH = 32
# Elements of codewords composed at once.
_CHUNK_ELEMENTS = 1 << 22
# Rows to look up pairs of bytes for at once.
_PAIRED_ROWS = 1 << 15
# Up to this number, codewords of rows are gathered at once.
_FEW_ROWS = 8


@keras.saving.register_keras_serializable(package="keras_compembed")
class Codes(Store):
    """Packed codes, codebooks and a composition."""

    kind = "codes"
    second_table = {"codes": None}
    settings = ("num_codebooks", "codebook_size", "composition")

    def __init__(
        self,
        input_dim,
        output_dim,
        num_codebooks=32,
        codebook_size=16,
        composition="sum",
        codes=None,
        codebooks="uniform",
        dtype=None,
    ):
        super().__init__(input_dim, output_dim)
        self.code_shape = check_code_shape(num_codebooks, codebook_size)
        self.num_codebooks, self.codebook_size = self.code_shape
        self.learn_codes, codes = get_task_codes(codes)
        if codes is not None:
            codes = check_codes(
                codes, codebook_size, shape=(input_dim, num_codebooks)
            )
            codes = pack_codes(codes, codebook_size)
        composition = check_composition(composition)
        self.dtype = dtype or getattr(composition, "variable_dtype", "float32")
        self.composition = self.new_composition(composition)
        shape = self.composition.codebooks_shape
        self.spec, values = get_codebooks(codebooks, shape)
        if self.learn_codes is not None:
            self.learn_codes.set_shape(self.input_dim, self.composition)
        self._first_codes, self._first_codebooks = codes, values

    def new_composition(self, identifier):
        return get_composition(
            identifier, *self.code_shape, self.output_dim, dtype=self.dtype
        )

    @property
    def starts_given(self):
        """Whether weights have initial values, which graphs do not allow."""
        given = self._first_codes, self._first_codebooks
        return self.follows or any(values is not None for values in given)

    @property
    def follows(self):
        return bool(self.learn_codes and self.learn_codes.starts_from_codes)

    def make_variables(self, add):
        self.packed_codes = add(
            "packed_codes",
            shape=(self.input_dim, bytes_per_row(*self.code_shape)),
            initializer=self._initialize_codes,
            dtype="uint8",
            trainable=False,
        )
        shape = self.composition.codebooks_shape
        self.codebooks = add("codebooks", shape=shape, **self.arguments)
        if self.learn_codes is not None:
            self.learn_codes.build(add, self)
        self.integer_weights = (self.packed_codes,)
        self._first_codes = self._first_codebooks = None

    @property
    def arguments(self):
        """Arguments of the variable of codebooks."""
        rest = self.spec, self._first_codebooks, self.composition
        return codebook_arguments(*rest)

    def _initialize_codes(self, shape, dtype=None):
        packed = self._first_codes
        if packed is None:
            codes = np.random.default_rng(random.getrandbits(32)).integers(
                self.codebook_size,
                size=(self.input_dim, self.num_codebooks),
                dtype="uint16",
            )
            packed = pack_codes(codes, self.codebook_size)
        return tf.convert_to_tensor(packed)

    def parts(self):
        return {"composition": self.composition}

    def subcodes(self, ids):
        """Subcodes, int32 `(ids, num_codebooks)`, from stored codes."""
        rows = tf.gather(self.packed_codes.value, ids)
        return computed_once(unpack_rows(rows, *self.code_shape))

    def stored_codes(self):
        """Codes of all ids, an unsigned array `(input_dim, num_codebooks)`."""
        packed = keras.ops.convert_to_numpy(self.packed_codes)
        return unpack_codes(packed, *self.code_shape)

    @property
    def codes(self):
        if self.learn_codes is not None:
            return self.learn_codes.codes
        return self.stored_codes()

    def assign(self, codes):
        """Sets the codes of all rows."""
        self.packed_codes.assign(pack_codes(codes, self.codebook_size))

    def compose(self, subcodes):
        """Vectors `(ids, output_dim)` of int32 subcodes."""
        return self.composition.compose_codes(
            tf.convert_to_tensor(self.codebooks.value), subcodes
        )

    def compose_picks(self, picks):
        """Vectors of picks `(ids, num_codebooks, codebook_size)`."""
        codebooks = tf.convert_to_tensor(self.codebooks.value)
        return self.composition.compose_picks(
            codebooks, tf.cast(picks, codebooks.dtype)
        )

    def decode(self, codes):
        """Rows of codes: arrays in, float32 array out."""
        codebooks = keras.ops.convert_to_numpy(self.codebooks)
        return self.composition.decode(codes, codebooks)

    def read(self, ids, training=False, counts=None):
        if training and self.learn_codes is not None:
            vectors, self.losses = self.learn_codes.step(ids, counts)
            return vectors
        subcodes = (self.learn_codes or self).subcodes
        return each_once(lambda ids: self.compose(subcodes(ids)), ids)

    def sum_rows(self, ids, weights, training=False, counts=None):
        """Weighted sums of vectors, without composing each vector."""
        # If the composition is linear, sum the weights of each codeword and
        # multiply the sums by the codebooks once.
        most = _COUNTED_SIZE * (ids.shape[1] or _USUAL_LENGTH)
        if (
            (training and self.learn_codes is not None)
            or not self.composition.is_linear
            or self.codebook_size > most
        ):
            return super().sum_rows(ids, weights, training, counts)
        subcodes = (self.learn_codes or self).subcodes(tf.reshape(ids, (-1,)))
        counted = count_codes(subcodes, weights, self.codebook_size)
        codebooks = tf.cast(self.codebooks.value, weights.dtype)
        return self.composition.sum_counts(codebooks, counted)

    def read_all(self):
        """Vectors of all rows, in parts if there are many."""
        composition, num_rows = self.composition, self.input_dim
        subcodes = self.subcodes
        if self.learn_codes is not None:
            learned = self.learn_codes.all_subcodes()
            subcodes = functools.partial(tf.gather, learned)
        size = composition.num_codebooks * composition.code_dim
        if num_rows * size <= _CHUNK_ELEMENTS:
            return of_all_ids(lambda ids: self.compose(subcodes(ids)), num_rows)
        size = max(1, _CHUNK_ELEMENTS // size)
        # Pass tensors: a custom gradient must not read variables.
        weights = [
            weight
            for weight in composition.variables
            if keras.backend.is_float_dtype(weight.dtype)
        ]

        def compose(ids, codebooks, *values):
            scope = zip(weights, values, strict=True)
            with keras.StatelessScope(list(scope)):
                return composition.compose_codes(codebooks, subcodes(ids))

        sources = [
            tf.convert_to_tensor(weight.value)
            for weight in (self.codebooks, *weights)
        ]
        return of_all_ids_again(compose, num_rows, size, sources)

    def score(self, vectors):
        def from_codes():
            codes, tables = self._score_codes(vectors)
            return tf.cast(codes.score(tables), vectors.dtype)

        from_rows = functools.partial(super().score, vectors)
        return self._choose(vectors, from_codes, from_rows)

    def top_ids(self, vectors, k):
        def score_codes(part):
            codes, tables = self._score_codes(part)
            return lambda ids: tf.cast(
                codes.score_rows(tables, ids), part.dtype
            )

        return self._choose(
            vectors,
            lambda: top_rows(vectors, k, self.input_dim, score_codes),
            functools.partial(super().top_ids, vectors, k),
        )

    def _choose(self, vectors, from_codes, from_rows):
        """Runs the faster function for this number of vectors."""
        if self.learn_codes is not None or not self.composition.is_linear:
            return from_rows()
        count = vectors.shape[0]
        if count is None:
            is_few = tf.shape(vectors)[0] <= self.output_dim
            return tf.cond(is_few, from_codes, from_rows)
        return from_codes() if count <= self.output_dim else from_rows()

    def _score_codes(self, vectors):
        """`CodeScores` of the rows, and score tables of vectors."""
        packed = tf.convert_to_tensor(self.packed_codes.value)
        codes = CodeScores(packed, *self.code_shape)
        codebooks = self.composition.fold(
            tf.convert_to_tensor(self.codebooks.value)
        )
        # Sums in 16 bits would be less precise than products.
        dtype = "float64" if codebooks.dtype == "float64" else "float32"
        vectors = tf.cast(vectors, dtype)
        return codes, codes.tables(tf.cast(codebooks, dtype), vectors)

    def reset_codebooks(self):
        """Reinitializes codebooks and composition; codes stay."""
        codes = self.codes
        reset_codebooks(self)
        if self.learn_codes is not None:
            self.learn_codes.restart(self.decode(codes))

    def reader(self):
        codes, composition = self.codes, self.composition
        codebooks = keras.ops.convert_to_numpy(self.codebooks)
        return lambda ids: composition.decode(codes[ids], codebooks)

    def packed(self):
        """The current packed codes, as an array."""
        if self.learn_codes is not None:
            return pack_codes(self.codes, self.codebook_size)
        return keras.ops.convert_to_numpy(self.packed_codes).copy()

    @property
    def _floats(self):
        return [self.codebooks, *self.composition.weights]

    def arrays(self):
        composition = self.composition.unscaled()
        names = {cls: name for name, cls in COMPOSITIONS.items()}
        settings = {
            "columns": self.output_dim,
            "num_codebooks": self.num_codebooks,
            "codebook_size": self.codebook_size,
            # A custom composition has no name.
            "composition": names.get(type(composition), composition),
            "code_dim": composition.get_config().get("code_dim"),
        }
        if composition is not self.composition:
            settings["scaled"] = True
        floats = {
            _name(place): np.atleast_1d(keras.ops.convert_to_numpy(weight))
            for place, weight in enumerate(self._floats)
        }
        return CodeRows(settings, {"codes": self.packed()}, floats)

    def load(self, arrays):
        self.packed_codes.assign(arrays.rows["codes"])
        for place, weight in enumerate(self._floats):
            values = arrays.floats[_name(place)]
            weight.assign(np.reshape(values, weight.shape))
        if self.follows:
            latents = arrays.latents
            if latents is None:
                latents = self.decode(self.stored_codes())
            self.learn_codes.restart(latents)

    def stripped(self, max_nonzeros=None, trainable=False):
        if self.follows:
            self.learn_codes.warn_if_idle()
        return {"codes": None}, self.arrays()

    def grown(self, vectors):
        learns = self.learn_codes
        require(
            learns is None or (self.follows and learns.teacher is None),
            "To grow, codes must be fixed (see `kc.strip`), or follow the task "
            "without a teacher.",
            codes=type(learns).__name__,
        )
        require(
            self.composition.is_linear,
            "To grow, codes must have a linear composition.",
            composition=self.composition,
        )
        grown = self.arrays().with_vectors(vectors)
        if self.follows:
            own = keras.ops.convert_to_numpy(learns.latents)
            grown.latents = np.concatenate([own, vectors])
        return {"input_dim": self.input_dim + len(vectors)}, grown

    def sizes(self):
        codewords = math.prod(self.composition.codebooks_shape)
        weights = self.composition.weights
        floats = codewords * tf.as_dtype(self.dtype).size + count_bytes(weights)
        code_bytes = self.input_dim * bytes_per_row(*self.code_shape)
        return {
            "stored_as": f"{self.num_codebooks} x {self.codebook_size} codes",
            "parts": {"codes": code_bytes, "codebooks": floats},
            "num_codebooks": self.num_codebooks,
            "codebook_size": self.codebook_size,
            "num_values": codewords + sum(math.prod(x.shape) for x in weights),
        }

    def litert(self, options, path):
        return CodesForm(self, options, path)

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "codes": serialize(self.learn_codes),
            "codebooks": serialize(self.spec),
        }


class CodeRows(RowArrays):
    """Codes and codebooks as plain arrays."""

    kind = Codes.kind
    shared_kind = "codebooks"
    # Trained float rows, if codes follow them.
    latents = None

    @classmethod
    def check(cls, settings, rows, shared, count):
        """Raises unless arrays of a file are valid."""
        shape = settings["num_codebooks"], settings["codebook_size"]
        check_code_shape(*shape)
        columns = check_positive_int("columns", settings["columns"])
        code_dim = settings["code_dim"]
        width = bytes_per_row(*shape)
        check_arrays(rows, {"codes": ("uint8", (count, width))})
        shapes = {name: small.integers.shape for name, small in shared.items()}
        check_shared(shared, shapes)
        # Check before allocating weights of that width.
        if not any(shape[-1:] == (columns,) for shape in shapes.values()):
            raise ValueError(f"none of its weights has width {columns}")
        if code_dim is not None and code_dim != shapes["codebooks"][-1]:
            raise ValueError(f"its codewords do not have width {code_dim}")

    def small(self):
        composition = self.settings["composition"]
        require(
            isinstance(composition, str),
            f"The composition of codes must be one of "
            f"{', '.join(COMPOSITIONS)} to be stored.",
            composition=type(composition).__name__,
        )
        return super().small()

    def start(self):
        settings = self.settings
        self._code_shape = settings["num_codebooks"], settings["codebook_size"]
        composition = settings["composition"]
        if isinstance(composition, str):
            kind = COMPOSITIONS[composition]
            composition = kind(code_dim=settings["code_dim"])
        if settings.get("scaled"):
            composition = ScaledComposition(composition)
        self._composition = get_composition(
            composition, *self._code_shape, settings["columns"]
        )
        self._codebooks = self.floats[_name(0)].astype("float32")
        weights = self._composition.weights
        wanted = self._composition.codebooks_shape
        if self._codebooks.shape != wanted or len(self.floats) != 1 + len(
            weights
        ):
            raise ValueError("its weights do not fit its composition")
        self._composition.set_weights(
            [
                self.floats[_name(place)].reshape(weight.shape)
                for place, weight in enumerate(weights, 1)
            ]
        )
        self._folded = self._columns = None
        self._first = self._code_shape[1] * np.arange(self._code_shape[0])
        if self._composition.is_linear:
            self._folded = np.asarray(self._composition.fold(self._codebooks))

    @property
    def can_grow(self):
        return self._folded is not None

    @property
    def name(self):
        settings = self.settings
        name = "codes {num_codebooks}x{codebook_size}".format(**settings)
        composition = settings["composition"]
        if composition == "linear":
            return f"{name} rank {self._codebooks.shape[-1]}"
        return name if composition == "sum" else f"{name} {composition}"

    def make_store(self):
        return Codes(*self.shape, *self._code_shape, self._composition)

    def with_vectors(self, vectors):
        codes = nearest_composed(vectors, self._composition, self._codebooks)
        more = {"codes": pack_codes(codes, self._code_shape[1])}
        return self.with_rows(append_rows(self.rows, more))

    def read(self, ids):
        codes = self.rows["codes"].take(ids, axis=0)
        codes = unpack_codes(codes, *self._code_shape)
        if self._folded is None:
            return self._composition.decode(codes, self._codebooks)
        if len(ids) > _FEW_ROWS:
            return decode_codes(codes, self._folded)
        rows = self._folded.reshape(-1, self._folded.shape[-1])
        return rows.take(codes + self._first, axis=0).sum(axis=1)

    def norms(self):
        parts = None if self._folded is None else sums_by_byte(self._folded)
        if parts is None:
            return super().norms()
        columns = self.rows["codes"].T.astype("uint16", order="C")
        squares = np.zeros(self.shape[0])
        # Products of all pairs of bytes, in float64, as they may cancel out.
        for place, other in itertools.combinations_with_replacement(
            range(len(columns)), 2
        ):
            products = (parts[place] @ parts[other].T).ravel()
            products *= 1 + (place < other)
            for start in range(0, len(squares), _PAIRED_ROWS):
                part = slice(start, start + _PAIRED_ROWS)
                pairs = columns[place, part] << 8 | columns[other, part]
                squares[part] += products.take(pairs)
        return np.sqrt(np.maximum(squares, 0)).astype("float32")

    def scores(self, query):
        if self._folded is None:
            return super().scores(query)
        if self._columns is None:
            bits = bits_per_subcode(self._code_shape[1])
            self._columns = FieldColumns(
                self.rows["codes"], self._code_shape[0], bits
            )
        return self._columns.add_up(self._folded @ query)


def count_code_bytes(input_dim, code_shape, matrices, quantize=None):
    """Bytes of codes and of matrices of given sizes in LiteRT files."""
    return input_dim * bytes_per_row(*code_shape) + sum(
        count_litert_bytes(numbers, quantize) for numbers in matrices
    )


def get_codebooks(identifier, shape):
    """Their `WeightSpec`, and their initial array or None."""
    require(
        not isinstance(identifier, keras.layers.Layer),
        "`codebooks` may be a layer only for codes='digits' or 'hashed'.",
        codebooks=identifier,
    )
    spec, values = get_settings(WeightSpec, identifier), None
    start = "uniform" if spec.initializer is None else spec.initializer
    if isinstance(start, (np.ndarray, list, tuple)) or hasattr(start, "numpy"):
        values, start = np.asarray(start), "uniform"
        require(
            values.shape == shape,
            f"`codebooks` must have shape {shape}.",
            shape=values.shape,
        )
        check_table(values.reshape(-1, shape[-1]), name="codebooks")
    parts = spec.arguments | {"initializer": keras.initializers.get(start)}
    return WeightSpec(**parts), values


def codebook_arguments(spec, values, composition, num_last=1):
    """Arguments of `add` for codebooks, which start as `values` if given.

    The last codebook is in the last `num_last` rows.
    """

    def start(shape, dtype=None):
        if values is not None:
            return keras.ops.convert_to_tensor(values, dtype)
        numbers = spec.initializer(shape, dtype=dtype)
        return composition.start(numbers, num_last)

    return {**spec.arguments, "initializer": start}


def reset_codebooks(store):
    """Reinitializes codebooks and composition of a store."""
    weight, start = store.codebooks, store.arguments["initializer"]
    weight.assign(start(weight.shape, weight.dtype))
    fresh = store.new_composition(store.composition)
    store.composition.set_weights(fresh.get_weights())


def _name(place):
    return f"weight_{place}" if place else "codebooks"
