"""Embedding computed from hash codes of ids by a network."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.baselines.embedding_baseline import EmbeddingBaseline
from keras_compembed.baselines.embedding_baseline import read_all
from keras_compembed.baselines.id_hashes import PRIME
from keras_compembed.baselines.id_hashes import draw_hashes
from keras_compembed.baselines.id_hashes import hash_ids
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class DeepHashEmbedding(EmbeddingBaseline):
    """Turns many hash codes of an id into a vector by a small network (DHE).

    There is no table: hash functions turn an id into `num_hashes` numbers from
    -1 to 1, which tell ids apart, and dense layers turn these into its vector.

    `code(id)[i] = 2 * hash_i(id) / (num_buckets - 1) - 1`
    `E(id) = network(code(id))`

    It is trained from scratch: no fit of a network to a table is both fast and
    sure. A hash function takes 16 bytes in a file. `embeddings` and `reverse`
    calls compute the codes of all ids at once, `8 * num_hashes` bytes each.

    Example:

    >>> layer = DeepHashEmbedding(1000, 16, num_hashes=64, hidden_units=(32,))
    >>> layer(np.array([[3, 999]])).shape
    TensorShape([1, 2, 16])

    Args:
        input_dim: Integer below 2**31 - 1. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        num_hashes: Integer. Numbers in the code of an id (k). Defaults to
            `1024`.
        hidden_units: Tuple of integers, the hidden layers of the network.
            Defaults to `(128,)`.
        activation: Activation of hidden layers. Defaults to `"mish"`, as in
            the paper.
        num_buckets: Integer from 2 to 2**24. Values of a hash function (m).
            Defaults to `1_000_000`.
        mask_zero: Boolean. Whether id 0 is padding to be masked. Defaults to
            `False`.
        seed: Optional integer. Seed of hash functions and initial weights.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        inputs: Integer tensor of ids from 0 to `input_dim - 1`; with
            `reverse`, float tensor of vectors.
        reverse: Boolean. Whether to multiply vectors by the transposed table.

    Attributes:
        hashes: int64 Keras variable `(2, num_hashes)`, the hash functions,
            which are saved with the weights.

    Raises:
        ValueError: if a size is out of range, or `hidden_units` is no tuple of
            integers.

    References:
        - [Kang et al., 2021](https://arxiv.org/abs/2010.10784), with universal
          hashing and uniform codes
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        num_hashes=1024,
        hidden_units=(128,),
        activation="mish",
        num_buckets=1_000_000,
        mask_zero=False,
        seed=None,
        **kwargs,
    ):
        super().__init__(input_dim, output_dim, mask_zero, seed, **kwargs)
        check_positive_int("input_dim", input_dim, maximum=PRIME - 1)
        self.num_hashes = check_positive_int("num_hashes", num_hashes)
        if not isinstance(hidden_units, (tuple, list)):
            raise ValueError(
                "`hidden_units` must be a tuple of positive integers. "
                f"Received: hidden_units={hidden_units!r}."
            )
        self.hidden_units = tuple(
            check_positive_int("hidden_units", units) for units in hidden_units
        )
        self.activation = keras.activations.get(activation)
        # float32 holds all integers up to it.
        self.num_buckets = check_positive_int(
            "num_buckets", num_buckets, minimum=2, maximum=1 << 24
        )

    @property
    def shapes(self):
        sizes = (self.num_hashes, *self.hidden_units, self.output_dim)
        found = {}
        for k, (size, units) in enumerate(
            zip(sizes[:-1], sizes[1:], strict=True)
        ):
            found[f"kernel_{k}"] = size, units
            found[f"bias_{k}"] = (units,)
        return found

    @property
    def integer_shapes(self):
        return {"hashes": (2, self.num_hashes)}

    def initializers(self):
        number = len(self.hidden_units) + 1
        *seeds, hashes_seed = self.seeds(number + 1)
        found = {
            "hashes": lambda shape, dtype=None: tf.constant(
                draw_hashes(shape[1], hashes_seed), dtype
            )
        }
        # The mean square of numbers from -1 to 1, and then of activations.
        square, later = 1 / 3, _mean_square(self.activation)
        for k, seed in enumerate(seeds):
            variance = 1 if k < number - 1 else self.INITIAL_STDDEV**2
            size = self.shapes[f"kernel_{k}"][0]
            found[f"kernel_{k}"] = keras.initializers.RandomNormal(
                stddev=(variance / (size * square)) ** 0.5, seed=seed
            )
            found[f"bias_{k}"] = keras.initializers.Zeros()
            square = later
        return found

    def codes(self, ids):
        """Hash codes `(ids, num_hashes)` of ids, from -1 to 1."""
        hashes = tf.convert_to_tensor(self.hashes.value)
        values = hash_ids(self.known(ids), hashes, self.num_buckets)
        # By numbers that float16 holds, which files may make of constants.
        largest = (self.num_buckets - 1) / 2048
        values = (tf.cast(values, "float32") / 1024 - largest) / largest
        # Keeps the converter from making all this a part of the kernel.
        values = tf.maximum(values, -1.0)
        return tf.cast(values, self.variable_dtype)

    def embed(self, ids, read=read_all):
        vectors = self.codes(ids)
        last = len(self.hidden_units)
        for k in range(last + 1):
            kernel = tf.convert_to_tensor(getattr(self, f"kernel_{k}").value)
            bias = tf.convert_to_tensor(getattr(self, f"bias_{k}").value)
            vectors = tf.matmul(vectors, kernel) + bias
            if k < last:
                vectors = self.activation(vectors)
        return vectors

    def get_config(self):
        return {
            **super().get_config(),
            "num_hashes": self.num_hashes,
            "hidden_units": self.hidden_units,
            "activation": keras.activations.serialize(self.activation),
            "num_buckets": self.num_buckets,
        }


def _mean_square(activation):
    """The mean square of an activation of numbers of a normal distribution."""
    points, weights = np.polynomial.hermite_e.hermegauss(64)
    with tf.init_scope():
        values = keras.ops.convert_to_numpy(
            activation(keras.ops.convert_to_tensor(points.astype("float32")))
        )
    square = np.sum(weights * values**2) / np.sum(weights)
    return max(float(square), 1e-6)
