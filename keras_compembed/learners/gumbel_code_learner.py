"""Codes by an autoencoder with a Gumbel-softmax."""

import functools

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.compositions.composition import Composition
from keras_compembed.learners.code_learner import GradientCodeLearner
from keras_compembed.learners.training import Training
from keras_compembed.learners.training import get_training
from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.device_rows import rows_of_all_devices
from keras_compembed.utils.saving import load_seed
from keras_compembed.utils.saving import save_seed
from keras_compembed.utils.validation import check_positive_number

# Below this, softplus(x) is exp(x) in float32.
_SOFTPLUS_IS_EXP = -15.0


@keras.saving.register_keras_serializable(package="keras_compembed")
class GumbelCodeLearner(GradientCodeLearner):
    """Learns codes end to end with a Gumbel-softmax (Shu & Nakayama).

    An encoder with a hidden layer of M * K / 2 units maps each row to M
    distributions over K codewords. Gumbel noise and a softmax turn them into
    nearly one-hot vectors `d`. The decoder sums the chosen codewords:

    - `h = tanh(theta' x + b)` (equation 7)
    - `alpha_m = softplus(theta_m' h + b_m)` (equation 8)
    - `d_m = softmax((log(alpha_m) + G) / temperature)` (equations 5 and 6)
    - `E(x) = sum_m A_m' d_m` (equation 4)

    The loss is the mean squared distance between `x` and `E(x)` (equation 2).
    Outside training, it is the loss of the codes themselves.

    The default settings are the paper's, and suit values of size 0.1 to 1.
    Scale other tables. `AdditiveQuantizer` reaches a lower loss in less time;
    `refine=True` closes most of the gap. See also `KDCodeLearner`.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> learner = GumbelCodeLearner(
    ...     num_codebooks=8, codebook_size=16,
    ...     training=kc.learners.Training(iterations=20), seed=0, verbose=0
    ... )
    >>> learner.train(table).codes.shape
    (1000, 8)

    Args:
        num_codebooks, codebook_size, seed, verbose, **kwargs: Same as for
            `KDCodeLearner`.
        composition: Same as for `KDCodeLearner`. Defaults to `"sum"`.
        temperature: Positive number. Defaults to `1.0`.
        training: Optional `Training`. Defaults to `None`: 200,000 iterations at
            a learning rate of 1e-4, as in the paper.
        refine: Boolean, see `KDCodeLearner`. Defaults to `False`.

    Input shape:
        Rows `(batch_size, columns)`.

    Output shape:
        Reconstructed rows `(batch_size, columns)`.

    Raises:
        ValueError: If an argument is invalid.

    References:
        - [Shu & Nakayama, 2018](https://arxiv.org/abs/1711.01068), equations 2
          to 8
        - [Jang et al., 2017](https://arxiv.org/abs/1611.01144)
        - [Maddison et al., 2017](https://arxiv.org/abs/1611.00712)
    """

    def __init__(
        self,
        num_codebooks: int = 32,
        codebook_size: int = 16,
        composition: str | tuple | Composition = "sum",
        temperature: float = 1.0,
        training: Training | None = None,
        refine: bool = False,
        seed: int | None = None,
        verbose: int = 1,
        **kwargs: object,
    ):
        super().__init__(
            num_codebooks,
            codebook_size,
            composition=composition,
            training=get_training(training, 200_000, lambda steps: 1e-4),
            refine=refine,
            seed=seed,
            verbose=verbose,
            **kwargs,
        )
        self.temperature = check_positive_number("temperature", temperature)
        self._noise_seed = keras.random.SeedGenerator(int(self._seeds[0]))
        units = self.num_codebooks * self.codebook_size

        def dense(units, place, **kwargs):
            begin = self.seeded(keras.initializers.GlorotUniform, place)
            kwargs |= {"kernel_initializer": begin, "dtype": self.dtype_policy}
            return keras.layers.Dense(units, **kwargs)

        hidden = dense(units // 2, 1, activation="tanh", name="hidden")
        logits = dense(units, 2, name="logits")
        self.encoder = keras.Sequential([hidden, logits], name="encoder")

    def build_logits(self, num_rows, width):
        self.encoder.build((None, width))

    def logits(self, inputs: tf.Tensor) -> tf.Tensor:
        """The inputs of the softplus of `alpha`."""
        shape = -1, self.num_codebooks, self.codebook_size
        return tf.reshape(self.encoder(inputs), shape)

    def picks(self, logits):
        scores = _log_softplus(logits) + self.gumbel_noise(tf.shape(logits))
        return tf.nn.softmax(scores / self.temperature)

    def gumbel_noise(self, shape: tf.Tensor) -> tf.Tensor:
        """Noise G of equation 5, the same for any number of devices."""
        seed = tf.cast(self._noise_seed.next(), tf.int32)
        draw = functools.partial(
            tf.random.stateless_uniform,
            seed=seed,
            minval=np.finfo("float32").tiny,
        )
        if on_several_devices():
            start, total = rows_of_all_devices(shape[0])
            uniform = draw(tf.concat([[total], shape[1:]], axis=0))
            uniform = uniform[start : start + shape[0]]
        else:
            uniform = draw(shape)
        noise = -tf.math.log(-tf.math.log(uniform))
        return tf.cast(noise, self.compute_dtype)

    def save_own_variables(self, store):
        super().save_own_variables(store)
        save_seed(store, self._noise_seed)

    def load_own_variables(self, store):
        super().load_own_variables(load_seed(store, self._noise_seed))

    def get_config(self):
        return {**super().get_config(), "temperature": self.temperature}


def _log_softplus(x):
    """log(softplus(x)) and its gradient, for any float32 x."""
    common = tf.math.log(tf.nn.softplus(tf.maximum(x, _SOFTPLUS_IS_EXP)))
    return tf.where(x < _SOFTPLUS_IS_EXP, x, common)
