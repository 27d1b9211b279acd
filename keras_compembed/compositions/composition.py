"""Compositions of codewords: sum, concatenation, matrix, LSTM."""

import functools

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import decode_codes
from keras_compembed.codes.packing import sum_codewords
from keras_compembed.optimizers.device_rows import transpose
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

_CHUNK_ELEMENTS = 1 << 22


@keras.saving.register_keras_serializable(package="keras_compembed")
class Composition(keras.layers.Layer):
    """Base class of compositions, which turn codewords into vectors.

    To write a composition, register a subclass and define `call`, from
    codewords `(ids, num_codebooks, code_dim)` to vectors `(ids, output_dim)`.
    Create weights in `build`, as in any Keras layer. `self.num_codebooks`,
    `self.codebook_size`, `self.code_dim` and `self.output_dim` are set before
    `build`. Each layer and each learner copies the instance.

    Example:

    >>> @keras.saving.register_keras_serializable(package="my_package")
    ... class MaxComposition(kc.compositions.Composition):
    ...     def call(self, codewords):
    ...         return keras.ops.max(codewords, axis=1)
    >>> layer = kc.CodeEmbedding(100, 8, composition=MaxComposition())
    >>> layer(np.array([[3, 4]])).shape
    TensorShape([1, 2, 8])

    Args:
        code_dim: Optional integer. Width of codewords. Defaults to `None`: the
            width of vectors.
        **kwargs: `name` and `dtype` of `keras.layers.Layer`.
    """

    # Whether composing is so slow that export checks fewer vectors.
    is_slow = False

    def __init__(self, code_dim: int | None = None, **kwargs: object):
        code_dim = check_positive_int("code_dim", code_dim, optional=True)
        super().__init__(**kwargs)
        self._given_code_dim = code_dim
        self.code_dim = code_dim
        self.num_codebooks = self.codebook_size = self.output_dim = None

    def set_shape(
        self, num_codebooks: int, codebook_size: int, output_dim: int
    ) -> None:
        """Sets the shape, and builds the composition's weights."""
        self.num_codebooks = num_codebooks
        self.codebook_size = codebook_size
        self.output_dim = output_dim
        self.code_dim = self._given_code_dim or output_dim
        if not self.built:
            self.build((None, num_codebooks, self.code_dim))

    @property
    def codebooks_shape(self):
        return self.num_codebooks, self.codebook_size, self.code_dim

    @property
    def is_linear(self) -> bool:
        """Whether `fold` returns codebooks."""
        return type(self).fold is not Composition.fold

    # Not a property, as Keras would save its value.
    def unscaled(self) -> "Composition":
        """The composition inside a `ScaledComposition`, or this one."""
        return self

    def codewords(self, codebooks: tf.Tensor) -> tf.Tensor:
        """Codewords `(num_codebooks, codebook_size, width)` of the weight."""
        return codebooks

    def compose_codes(
        self, codebooks: tf.Tensor, subcodes: tf.Tensor
    ) -> tf.Tensor:
        """Vectors `(ids, output_dim)` of int32 codes `(ids, num_codebooks)`."""
        # Gradients are dense in the codebooks, so that repeated ids count
        # several times in every optimizer.
        return self(gather_codewords(self.codewords(codebooks), subcodes))

    def compose_picks(
        self, codebooks: tf.Tensor, picks: tf.Tensor
    ) -> tf.Tensor:
        """Vectors of picks `(ids, num_codebooks, codebook_size)`."""
        return self(pick_codewords(self.codewords(codebooks), picks))

    def sum_counts(self, codebooks: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """Sums of vectors from `count_codes`, for linear compositions."""
        return sum_picks(self.fold(codebooks), counts)

    def fold(self, codebooks: tf.Tensor) -> tf.Tensor | None:
        """Codebooks with the same vectors as plain sums, or None."""
        return None

    def decode(self, codes: np.ndarray, codebooks: np.ndarray) -> np.ndarray:
        """Decodes codes to a float32 array of rows, in chunks."""
        rows = max(1, _CHUNK_ELEMENTS // (self.num_codebooks * self.code_dim))
        codebooks = tf.cast(codebooks, self.variable_dtype)
        parts = [
            self.compose_codes(
                codebooks, tf.constant(codes[start : start + rows], "int32")
            )
            for start in range(0, max(1, len(codes)), rows)
        ]
        return tf.concat(parts, axis=0).numpy().astype("float32")

    def start(self, codebooks: tf.Tensor, num_last: int = 1) -> tf.Tensor:
        """Initial codebooks of random numbers, the last in `num_last` rows."""
        return codebooks

    def check_vectors(self) -> None:
        """Raises if the result of `call` does not have the right shape."""
        shape = 2, self.num_codebooks, self.code_dim
        # Layers may be created in a graph.
        with tf.init_scope():
            vectors = self(tf.zeros(shape, self.variable_dtype))
        wanted = shape[0], self.output_dim
        received = getattr(vectors, "shape", type(vectors).__name__)
        require(
            received == wanted,
            f"`call` of a composition must return vectors {wanted} for "
            f"codewords {shape}.",
            received=str(received),
        )

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-2], self.output_dim)

    def get_build_config(self):
        # The layer that has the composition builds it.
        return None

    def get_config(self):
        config = super().get_config()
        if self._given_code_dim is not None:
            config["code_dim"] = self._given_code_dim
        return config


def orthogonal(shape, dtype=None):
    """Same as Keras `"orthogonal"`, but supports half precision."""
    initializer = keras.initializers.Orthogonal()
    return tf.cast(initializer(shape, "float32"), dtype or "float32")


def gather_codewords(codewords, subcodes):
    """Codewords `(ids, num_codebooks, width)` of subcodes."""
    num_codebooks, codebook_size, width = codewords.shape
    flat = tf.reshape(codewords, (-1, width))
    # int64: int32 sums have no GPU kernel.
    first = tf.range(num_codebooks, dtype="int64") * codebook_size
    return tf.gather(flat, tf.cast(subcodes, tf.int64) + first)


def pick_codewords(codewords, picks):
    """Weighted codewords `(ids, num_codebooks, width)`."""
    # (M, width, K) x (M, K, ids)
    picks = tf.transpose(picks, (1, 2, 0))
    products = tf.matmul(codewords, picks, transpose_a=True)
    return transpose(products, (2, 0, 1))


def sum_picks(codebooks, picks):
    """Weighted sums of codewords, `(ids, width)`."""
    width = codebooks.shape[0] * codebooks.shape[1]
    return tf.matmul(
        tf.reshape(picks, (-1, width)), tf.reshape(codebooks, (width, -1))
    )


@keras.saving.register_keras_serializable(package="keras_compembed")
class SumComposition(Composition):
    """The sum of the codewords (Shu & Nakayama, equation 1)."""

    def call(self, codewords):
        return tf.reduce_sum(codewords, axis=1)

    def compose_codes(self, codebooks, subcodes):
        return sum_codewords(codebooks, subcodes)

    def compose_picks(self, codebooks, picks):
        return sum_picks(codebooks, picks)

    def fold(self, codebooks):
        return codebooks

    def decode(self, codes, codebooks):
        return decode_codes(codes, codebooks)


@keras.saving.register_keras_serializable(package="keras_compembed")
class ProductComposition(Composition):
    """The product of the codewords, number by number."""

    def call(self, codewords):
        return functools.reduce(tf.multiply, tf.unstack(codewords, axis=1))

    def start(self, codebooks, num_last=1):
        # Products are as large as the last codewords, and learn as fast.
        rest = codebooks.shape[0] - num_last
        signs = tf.where(codebooks[:rest] < 0, -1.0, 1.0)
        signs = tf.cast(signs, codebooks.dtype)
        return tf.concat([signs, codebooks[rest:]], axis=0)


@keras.saving.register_keras_serializable(package="keras_compembed")
class ConcatComposition(Composition):
    """Concatenates codewords: each is a part of the vector."""

    # The codes of a product quantizer. If `num_codebooks` does not divide
    # `output_dim`, the first codewords are wider by one.

    def set_shape(self, num_codebooks, codebook_size, output_dim):
        require(
            num_codebooks <= output_dim,
            "`num_codebooks` must be at most `output_dim` with 'concat'.",
            num_codebooks=num_codebooks,
            output_dim=output_dim,
        )
        super().set_shape(num_codebooks, codebook_size, output_dim)

    @property
    def codebooks_shape(self):
        return self.codebook_size, self.output_dim

    def codewords(self, codebooks):
        parts = split_columns(codebooks, self.num_codebooks)
        return tf.transpose(parts, (1, 0, 2))

    def call(self, codewords):
        return merge_columns(codewords, self.output_dim)

    # Part by part, as folded codebooks are mostly zeros.
    sum_counts = Composition.compose_picks

    def fold(self, codebooks):
        own = np.arange(self.num_codebooks)[:, None, None] == part_of_column(
            self.output_dim, self.num_codebooks
        )
        return tf.where(own, codebooks[None], 0.0)


def part_of_column(width, num_parts):
    """The part of each column, with `num_parts` parts as even as possible."""
    return np.repeat(np.arange(num_parts), _part_widths(width, num_parts))


def split_columns(matrix, num_parts):
    """Parts `(rows, num_parts, width)` of a matrix's columns."""
    width = matrix.shape[-1]
    widths = _part_widths(width, num_parts)
    if width % num_parts == 0:
        return tf.reshape(matrix, (-1, num_parts, widths[0]))
    # Missing columns read a column of zeros.
    columns = np.full((num_parts, widths[0]), width)
    columns[_is_column(widths)] = np.arange(width)
    return tf.gather(tf.pad(matrix, ((0, 0), (0, 1))), columns, axis=1)


def merge_columns(parts, width):
    """The inverse of `split_columns`, a matrix `(rows, width)`."""
    _, num_parts, part_width = parts.shape
    matrix = tf.reshape(parts, (-1, num_parts * part_width))
    if width % num_parts == 0:
        return matrix
    columns = np.flatnonzero(_is_column(_part_widths(width, num_parts)))
    return tf.gather(matrix, columns, axis=1)


def _part_widths(width, num_parts):
    return width // num_parts + (np.arange(num_parts) < width % num_parts)


def _is_column(widths):
    return np.arange(widths[0]) < widths[:, None]


@keras.saving.register_keras_serializable(package="keras_compembed")
class LinearComposition(Composition):
    """The sum of the codewords times a matrix.

    `E(id) = H' sum_m codebooks[m, codes[id, m]]`

    Codebooks times the matrix are codebooks of a plain sum. Exported files
    have these, or codewords and matrix if they are smaller.

    See Chen, Min & Sun, 2018, section 2.2.
    """

    def build(self, input_shape):
        self.kernel = self.add_weight(
            shape=(self.code_dim, self.output_dim),
            initializer=orthogonal,
            autocast=False,
            name="kernel",
        )

    def call(self, codewords):
        return tf.matmul(tf.reduce_sum(codewords, axis=1), self.kernel)

    def compose_codes(self, codebooks, subcodes):
        return tf.matmul(sum_codewords(codebooks, subcodes), self.kernel)

    def compose_picks(self, codebooks, picks):
        return tf.matmul(sum_picks(codebooks, picks), self.kernel)

    sum_counts = compose_picks

    def fold(self, codebooks):
        # The codebooks of a learner are always float32.
        kernel = tf.cast(self.kernel, codebooks.dtype)
        return tf.matmul(codebooks, kernel)


@keras.saving.register_keras_serializable(package="keras_compembed")
class LSTMComposition(Composition):
    """The sum of an LSTM's outputs over the codewords.

    `E(id) = H' sum_m h_m`, with `h_m` the LSTM's output after codeword m. If
    `code_dim` is `output_dim`, there is no `H`. This is some 20 times slower
    than a sum.

    See Chen, Min & Sun, 2018, section 2.2.
    """

    is_slow = True

    def build(self, input_shape):
        units = self.code_dim
        self._add("kernel", (units, 4 * units), "glorot_uniform")
        self._add("recurrent_kernel", (units, 4 * units), orthogonal)
        self._add("bias", (4 * units,), _forget_gates_open)
        self.projection = None
        if units != self.output_dim:
            shape = units, self.output_dim
            self._add("projection", shape, "glorot_uniform")

    def _add(self, name, shape, initializer):
        # Not cast when a layer of mixed precision composes.
        weight = self.add_weight(
            shape=shape, initializer=initializer, autocast=False, name=name
        )
        setattr(self, name, weight)

    def call(self, codewords):
        # Rank 2, as LiteRT has no products of rank 3 with an open batch.
        flat = tf.reshape(codewords, (-1, self.code_dim))
        gates = self._input_gates(flat)
        shape = (-1, self.num_codebooks, 4 * self.code_dim)
        return self._read(tf.reshape(gates, shape))

    def compose_codes(self, codebooks, subcodes):
        # Computes the gates of each codeword once for all ids.
        gates = self._input_gates(codebooks)
        return self._read(gather_codewords(gates, subcodes))

    def compose_picks(self, codebooks, picks):
        # Picks of a codebook add up to 1, so the bias counts once.
        gates = self._input_gates(codebooks)
        return self._read(pick_codewords(gates, picks))

    def _input_gates(self, codewords):
        return tf.matmul(codewords, self.kernel) + self.bias

    def _read(self, input_gates):
        """Runs the LSTM over the second axis of its input gates."""
        total = output = state = None
        for gates in tf.unstack(input_gates, axis=1):
            if output is not None:
                gates += tf.matmul(output, self.recurrent_kernel)
            write, forget, cell, read = tf.split(gates, 4, axis=1)
            cell = tf.sigmoid(write) * tf.tanh(cell)
            if state is not None:
                cell += tf.sigmoid(forget) * state
            state = cell
            output = tf.sigmoid(read) * tf.tanh(state)
            total = output if total is None else total + output
        if self.projection is None:
            return total
        return tf.matmul(total, self.projection)


def _forget_gates_open(shape, dtype=None):
    """Same as in Keras: forget gates start open."""
    places = tf.range(shape[0]) // (shape[0] // 4)
    return tf.cast(tf.equal(places, 1), dtype or "float32")


COMPOSITIONS = {
    "sum": SumComposition,
    "product": ProductComposition,
    "concat": ConcatComposition,
    "linear": LinearComposition,
    "lstm": LSTMComposition,
}


def get_composition(
    identifier, num_codebooks, codebook_size, output_dim, dtype="float32"
):
    """A new composition with its own weights."""
    composition = copy_composition(check_composition(identifier), dtype)
    composition.set_shape(num_codebooks, codebook_size, output_dim)
    if type(composition.unscaled()) not in COMPOSITIONS.values():
        composition.unscaled().check_vectors()
    return composition


def copy_composition(identifier, dtype):
    """A new composition without a shape, and so without weights."""
    if isinstance(identifier, str):
        return COMPOSITIONS[identifier](dtype=dtype)
    config = identifier.get_config() | {"dtype": dtype}
    return type(identifier).from_config(config)


def check_composition(identifier):
    """Returns the name of a composition, or a `Composition`."""
    if isinstance(identifier, str) and identifier in COMPOSITIONS:
        return identifier
    is_pair = isinstance(identifier, tuple) and len(identifier) == 2
    if is_pair and identifier[0] in COMPOSITIONS:
        name, code_dim = identifier
        identifier = COMPOSITIONS[name](code_dim)
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    require(
        isinstance(identifier, Composition),
        f"`composition` must be one of {list(COMPOSITIONS)}, a tuple of a name "
        "and the width of codewords, or a `Composition`.",
        composition=identifier,
    )
    return identifier


def is_same_composition(one, other):
    """Whether two identifiers mean the same kind of composition."""
    return _kind(one) == _kind(other)


def _kind(identifier):
    identifier = check_composition(identifier)
    if isinstance(identifier, str):
        return identifier, None
    identifier = identifier.unscaled()
    config = identifier.get_config()
    names = {cls: name for name, cls in COMPOSITIONS.items()}
    name = names.get(type(identifier), type(identifier))
    return name, config.get("code_dim")


@keras.saving.register_keras_serializable(package="keras_compembed")
class ScaledComposition(Composition):
    """Another composition's vectors plus an offset, times a scale."""

    # `E(id) = scale * (composition(codewords) + offset)`. Outputs of an LSTM
    # are between -1 and 1, so `KDCodeLearner` sets `offset` to the table's
    # mean row, and `scale` (not trained) to its scale.

    def __init__(self, composition, **kwargs):
        composition = check_composition(composition)
        super().__init__(**kwargs)
        self.composition = copy_composition(composition, self.variable_dtype)
        self.is_slow = self.composition.is_slow

    def set_shape(self, num_codebooks, codebook_size, output_dim):
        self.composition.set_shape(num_codebooks, codebook_size, output_dim)
        super().set_shape(num_codebooks, codebook_size, output_dim)
        self.code_dim = self.composition.code_dim

    def build(self, input_shape):
        add = functools.partial(self.add_weight, autocast=False)
        self.offset = add((self.output_dim,), "zeros", name="offset")
        self.scale = add((), "ones", trainable=False, name="scale")

    @property
    def is_linear(self):
        return self.composition.is_linear

    def unscaled(self):
        return self.composition.unscaled()

    @property
    def codebooks_shape(self):
        return self.composition.codebooks_shape

    def codewords(self, codebooks):
        return self.composition.codewords(codebooks)

    def call(self, codewords):
        return self._in_units(self.composition(codewords))

    def start(self, codebooks, num_last=1):
        return self.composition.start(codebooks, num_last)

    def compose_codes(self, codebooks, subcodes):
        return self._in_units(
            self.composition.compose_codes(codebooks, subcodes)
        )

    def compose_picks(self, codebooks, picks):
        return self._in_units(self.composition.compose_picks(codebooks, picks))

    def sum_counts(self, codebooks, counts):
        sums = self.composition.sum_counts(codebooks, counts)
        # Each vector has the offset, and one codeword of the first codebook.
        times = tf.reduce_sum(counts[:, 0], axis=1, keepdims=True)
        return self._in_units(sums, times)

    def fold(self, codebooks):
        folded = self.composition.fold(codebooks)
        if folded is None:
            return None
        return self._in_units(folded, 1 / self.num_codebooks)

    def _in_units(self, vectors, part=1.0):
        offset = part * tf.convert_to_tensor(self.offset)
        return (vectors + offset) * tf.convert_to_tensor(self.scale)

    def get_config(self):
        config = super().get_config()
        config["composition"] = keras.saving.serialize_keras_object(
            self.composition
        )
        return config
