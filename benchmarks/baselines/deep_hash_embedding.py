"""Deep hash embeddings (Kang et al., 2021, https://arxiv.org/abs/2010.10784).

`code(id)[i] = 2 * hash_i(id) / (num_buckets - 1) - 1`
`E(id) = network(code(id))`
"""

import keras
import numpy as np
import tensorflow as tf

from benchmarks.baselines.embedding_baseline import EmbeddingBaseline
from benchmarks.baselines.hash_embedding import draw_hashes
from benchmarks.baselines.hash_embedding import hash_ids


@keras.saving.register_keras_serializable(package="benchmarks")
class DeepHashEmbedding(EmbeddingBaseline):
    """Turns many hash codes of an id into a vector by a small network (DHE)."""

    def __init__(
        self,
        input_dim,
        output_dim,
        num_hashes=1024,
        hidden_units=(128,),
        activation="mish",
        num_buckets=1_000_000,
        seed=None,
    ):
        super().__init__(input_dim, output_dim, seed)
        self.num_hashes = num_hashes
        self.hidden_units = tuple(hidden_units)
        self.activation = keras.activations.get(activation)
        # float32 holds all integers up to it.
        self.num_buckets = num_buckets

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
        return tf.cast(values, self.kernel_0.dtype)

    def compose(self, ids, read):
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
