"""Base classes of stores, which keep the rows of a table."""

import abc
import functools
import math

import keras
import tensorflow as tf

from keras_compembed.litert.litert_form import LiteRTForm
from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.device_rows import read_rows
from keras_compembed.optimizers.device_rows import without_gradients
from keras_compembed.utils.files import count_bytes
from keras_compembed.utils.saving import Settings
from keras_compembed.utils.saving import get_settings
from keras_compembed.utils.tensor_ops import each_once
from keras_compembed.utils.tensor_ops import repeat_rows
from keras_compembed.utils.tensor_ops import top_rows
from keras_compembed.utils.tensor_ops import weighted_sums
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require


class Store(Settings, abc.ABC):
    """Base of stores, which keep the rows of a table.

    A store owns the variables of a table. It reads and sums rows, scores
    vectors against all rows, counts bytes, and has a form for LiteRT. A new
    kind must define `make_variables`, `read` and `settings`, the names of its
    other arguments. The other methods have defaults; override them for speed.
    See the example in `CONTRIBUTING.md`.

    Args:
        input_dim: Integer, the number of rows.
        output_dim: Integer, the number of columns.

    Attributes:
        variables: List of Keras variables, in the order of `.keras` files.
    """

    # Other arguments, which store and layer have as attributes, and more
    # attributes that the layer shares.
    settings = attributes = ()
    # Its name in files of vectors; see `KINDS` of this folder.
    kind = None
    # If rows are codes, an integer array `(input_dim, num_codebooks)`.
    codes = None
    # Whether codes follow vectors that a task trains.
    follows = False
    # Arguments that differ in a second table for logits; None: no second table.
    second_table = {}
    # Variables of integers, with any value valid.
    integer_weights = ()
    # Losses of the last `read` or `sum_rows` of a training step.
    losses = ()

    def __init__(self, input_dim, output_dim):
        self.input_dim = check_positive_int("input_dim", input_dim)
        self.output_dim = check_positive_int("output_dim", output_dim)
        self.variables = []
        # Dtype of trained floats; the layer sets its own.
        self.dtype = "float32"

    def build(self, add_weight):
        """Creates the variables with a layer's `add_weight`."""

        def add(name, **kwargs):
            variable = add_weight(name, **kwargs)
            self.variables.append(variable)
            return variable

        self.make_variables(add)

    @abc.abstractmethod
    def make_variables(self, add):
        """Creates variables with `add(name, shape=..., ...)`."""

    @abc.abstractmethod
    def read(self, ids, training=False, counts=None):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""

    def get_config(self):
        """Constructor arguments, without rows."""
        serialize = keras.saving.serialize_keras_object
        names = ("input_dim", "output_dim", *self.settings)
        return {name: serialize(getattr(self, name)) for name in names}

    def read_all(self):
        """The full table `(input_dim, output_dim)`."""
        return self.read(tf.range(self.input_dim))

    def sum_rows(self, ids, weights, training=False, counts=None):
        """Weighted sums of vectors of ids `(groups, length)`."""
        if counts is not None:
            counts = tf.reshape(counts, (-1,))
        rows = self.read(tf.reshape(ids, (-1,)), training, counts)
        return weighted_sums(rows, weights)

    def score(self, vectors):
        """Products `(vectors, input_dim)` with `(vectors, output_dim)`."""
        table = tf.cast(self.read_all(), vectors.dtype)
        return tf.matmul(vectors, table, transpose_b=True)

    def score_rows(self, vectors, read=None):
        """A function from ids to products `(vectors, ids)`."""

        def score(ids):
            # Devices cannot synchronize in a loop.
            with without_gradients():
                rows = tf.cast((read or self.read)(ids), vectors.dtype)
            return tf.matmul(vectors, rows, transpose_b=True)

        return score

    def top_ids(self, vectors, k):
        """Scores and ids `(vectors, k)` of the best rows."""
        return top_rows(vectors, k, self.input_dim, self.score_rows)

    def prepare_scores(self):
        """Called before `score` in a training step."""
        for part in self.parts().values():
            if hasattr(part, "store"):
                part.store.prepare_scores()

    def parts(self):
        """Dict of sublayers with some of the weights."""
        return {}

    def reader(self):
        """A function from an integer array of ids to float32 vectors."""

        def read(ids):
            rows = self.read(tf.constant(ids, "int32"))
            return keras.ops.convert_to_numpy(tf.cast(rows, "float32"))

        return read

    def arrays(self):
        """`RowArrays` of the rows, as in inference."""
        raise NotImplementedError

    def load(self, arrays):
        """Takes the rows of `RowArrays`."""
        raise NotImplementedError

    def sizes(self):
        """Fields of an `EmbeddingSize`, without weights for training only.

        None if they are unknown before variables exist.
        """
        if not self.variables:
            return None
        weights = [x for part in self.parts().values() for x in part.weights]
        weights += self.variables
        return {
            "parts": {"weights": count_bytes(weights)},
            "num_values": sum(math.prod(weight.shape) for weight in weights),
        }

    def stripped(self, max_nonzeros=None, trainable=False):
        """Changed arguments and arrays for a store for inference only."""
        return {}, self.arrays()

    def grown(self, vectors):
        """Changed arguments and arrays, with rows for more vectors."""
        raise NotImplementedError

    def litert(self, options, path):
        """The `LiteRTForm` of the rows."""
        return LiteRTForm(self, options)


def read_all(variable, rows):
    """Rows of a variable, with a dense gradient."""
    # The gradient of this reshape sums gradients of repeated rows.
    values = tf.reshape(tf.convert_to_tensor(variable.value), variable.shape)
    return repeat_rows(values, rows)


def read_layer(layer, ids, read, counts=None):
    """Rows of a layer in a store, in its own way to learn."""
    if read is read_all or not layer.trainable:
        return layer.embed(ids)
    return layer.learn(ids, counts)


def get_layer(identifier):
    """A layer in a store, from an argument or its config."""
    if isinstance(identifier, dict):
        return keras.saving.deserialize_keras_object(identifier)
    return identifier


def stored_bytes(layer):
    """Bytes of a layer in a store, without weights for learning only."""
    return sum(layer.store.sizes()["parts"].values())


def check_layer(name, layer, sizes, why):
    """Raises unless a layer has these numbers of rows and columns."""
    store = getattr(layer, "store", None)
    require(
        isinstance(store, Store)
        and sizes == (store.input_dim, store.output_dim),
        f"`{name}` must be a keras_compembed embedding layer of {sizes[0]} "
        f"rows ({why}) of width {sizes[1]}.",
        **{name: layer},
    )


class TableStore(Store):
    """Base of stores that only read rows of variables."""

    @abc.abstractmethod
    def compose(self, ids, read):
        """Vectors of a rank-1 tensor of ids; `read` reads rows of variables."""

    def read(self, ids, training=False, counts=None):
        if not training:
            return self.compose(ids, read_all)
        compose = functools.partial(self.compose, read=read_rows)
        # Several devices exchange the ids of a batch.
        if on_several_devices():
            return compose(ids)
        return each_once(compose, ids)

    def add_arrays(self, add, arrays, trained=None):
        """Adds variables with initial arrays; `trained` names a trained one."""
        for name, values in arrays.items():
            is_trained = name == trained
            variable = add(
                name,
                shape=values.shape,
                initializer=lambda _, dtype, x=values: tf.cast(x, dtype),
                dtype=self.dtype if is_trained else values.dtype.name,
                trainable=is_trained,
            )
            setattr(self, name, variable)

    def known(self, ids):
        """`ids`, or an error if an id is out of range."""
        is_known = (ids >= 0) & (ids < self.input_dim)
        check = tf.debugging.Assert(
            tf.reduce_all(is_known),
            [f"Ids must be from 0 to {self.input_dim - 1}. Received:", ids],
        )
        with tf.control_dependencies([check]):
            return tf.identity(ids)


@keras.saving.register_keras_serializable(package="keras_compembed")
class WeightSpec(Settings):
    """Options of a trained weight: initializer, regularizer, constraint.

    Example:

    >>> codebooks = WeightSpec(regularizer=keras.regularizers.L2(1e-4))
    >>> layer = kc.CodeEmbedding(1000, 64, codebooks=codebooks)

    Args:
        initializer: Optional initializer, or another value that the layer
            accepts for it. Defaults to `None`: the layer's default.
        regularizer: Optional regularizer. Defaults to `None`.
        constraint: Optional constraint. Defaults to `None`.
    """

    def __init__(
        self,
        initializer: object = None,
        regularizer: str | keras.Regularizer | None = None,
        constraint: str | keras.constraints.Constraint | None = None,
    ):
        self.initializer = initializer
        self.regularizer = keras.regularizers.get(regularizer)
        self.constraint = keras.constraints.get(constraint)

    @property
    def arguments(self) -> dict:
        """Arguments of `add_weight`."""
        names = ("initializer", "regularizer", "constraint")
        return {name: getattr(self, name) for name in names}


@keras.saving.register_keras_serializable(package="keras_compembed")
class LowRank(WeightSpec):
    """The rank of a table, and the `WeightSpec` of its projection."""

    def __init__(
        self,
        rank,
        initializer=None,
        regularizer=None,
        constraint=None,
    ):
        initializer = keras.initializers.get(initializer or "glorot_uniform")
        super().__init__(initializer, regularizer, constraint)
        self.rank = check_positive_int("rank", rank)


def get_low_rank(identifier):
    """`LowRank` from an argument or its config, or None."""
    if isinstance(identifier, tuple):
        rank, spec = identifier
        return LowRank(rank, **get_settings(WeightSpec, spec).arguments)
    return None if identifier is None else get_settings(LowRank, identifier)
