"""Codes by an auto-encoder with a Gumbel-softmax in the middle."""

import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.codes.code_learner import CodeLearner
from keras_compembed.codes.code_learner import check_code_shape
from keras_compembed.codes.packing import code_dtype
from keras_compembed.codes.refinement import nearest_codes
from keras_compembed.codes.refinement import refine_codes
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import float_chunks

# Below this, softplus(x) is exp(x) in float32.
_SOFTPLUS_IS_EXP = -15.0
_CHUNK_LOGITS = 1 << 21


@keras.saving.register_keras_serializable(package="keras_compembed")
class GumbelCodeLearner(keras.Model, CodeLearner):
    """Learns codes end to end, as published by Shu & Nakayama.

    An encoder with one hidden layer gives each row `num_codebooks`
    distributions over `codebook_size` codewords; Gumbel noise and a softmax
    turn them into nearly one-hot vectors `d`, and the decoder sums the
    codewords they pick:

    - `h = tanh(theta' x + b)` (equation 7)
    - `alpha_m = softplus(theta_m' h + b_m)` (equation 8)
    - `d_m = softmax((log(alpha_m) + G) / temperature)` (equations 5 and 6)
    - `E(x) = sum_m A_m' d_m` (equation 4)

    The loss is the mean over rows of the squared distance between `x` and
    `E(x)` (equation 2). Outside training, `d_m` is the one-hot vector of the
    largest `alpha_m`, without noise, so `val_loss` and `evaluate` tell the
    loss of the codes themselves.

    `train` does the whole job with the paper's settings. The learner is a
    `keras.Model` as well: `compile` it first for another optimizer, build it
    inside `strategy.scope()` to train on several devices, or call `fit` on
    your own batches of rows, which are input and target at once.

    `AdditiveQuantizer` reaches a lower loss in a fraction of the time;
    `refine=True` closes most of the gap.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> learner = GumbelCodeLearner(
    ...     num_codebooks=8, codebook_size=16, iterations=20,
    ...     validation_interval=10, seed=0, verbose=0
    ... )
    >>> learner.train(table).codes.shape
    (1000, 8)
    >>> len(learner.history["val_loss"])
    2

    Args:
        num_codebooks: Integer. Subcodes a row (M). Defaults to `32`.
        codebook_size: Integer from 2 to 65536. Codewords a codebook (K).
            Defaults to `16`.
        hidden_units: Optional integer. Width of the hidden layer. Defaults
            to `None`: `num_codebooks * codebook_size / 2`.
        temperature: Positive number. Defaults to `1.0`.
        learning_rate: Positive number. Rate of the Adam optimizer that
            `train` compiles with, unless `compile` was called. Defaults to
            `1e-4`.
        batch_size: Integer. Rows a step, over all devices. Defaults to
            `128`.
        iterations: Integer. Steps of `train`, rounded up to whole validation
            intervals. Defaults to `200_000`.
        validation_interval: Integer. Steps from one validation to the next.
            Defaults to `1000`.
        validation_rows: Integer. Rows in the fixed validation set, drawn like
            those of a batch. Defaults to `1280`.
        refine: Boolean. Whether `train` ends with sweeps over the codes and
            least squares, and `encode` with sweeps. Not in the paper.
            Defaults to `False`.
        seed: Optional integer. Makes a run repeatable on one machine.
        verbose: `0`, `1` or `2`, as in `fit`. Defaults to `1`.
        **kwargs: `name` and `dtype` of `keras.Model`. `dtype` defaults to
            `"float32"`, whatever the global policy.

    Input shape:
        Tensor of shape `(batch_size, columns)`.

    Output shape:
        The input's: each row's reconstruction.

    Raises:
        ValueError: if a size is out of range or `temperature` or
            `learning_rate` is not a positive number.

    References:
        - [Shu & Nakayama, 2018](https://arxiv.org/abs/1711.01068), equations
          2 to 8
        - [Jang et al., 2017](https://arxiv.org/abs/1611.01144)
        - [Maddison et al., 2017](https://arxiv.org/abs/1611.00712)
    """

    def __init__(
        self,
        num_codebooks=32,
        codebook_size=16,
        hidden_units=None,
        temperature=1.0,
        learning_rate=1e-4,
        batch_size=128,
        iterations=200_000,
        validation_interval=1000,
        validation_rows=1280,
        refine=False,
        seed=None,
        verbose=1,
        **kwargs,
    ):
        num_codebooks, codebook_size = check_code_shape(
            num_codebooks, codebook_size
        )
        if hidden_units is None:
            hidden_units = num_codebooks * codebook_size // 2
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.num_codebooks = num_codebooks
        self.codebook_size = codebook_size
        self.hidden_units = check_positive_int("hidden_units", hidden_units)
        self.temperature = check_positive_number("temperature", temperature)
        self.learning_rate = check_positive_number(
            "learning_rate", learning_rate
        )
        self.batch_size = check_positive_int("batch_size", batch_size)
        self.iterations = check_positive_int("iterations", iterations)
        self.validation_interval = check_positive_int(
            "validation_interval", validation_interval
        )
        self.validation_rows = check_positive_int(
            "validation_rows", validation_rows
        )
        self.refine = refine
        self.seed = seed
        self.verbose = verbose
        self._codes = None
        self._fit_history = None
        if seed is None:
            seed = random.getrandbits(31)
        self._seeds = np.random.SeedSequence(seed).generate_state(6) >> 1
        self._noise_seed = keras.random.SeedGenerator(int(self._seeds[0]))
        self._distance = _SquaredDistance(name="squared_distance")
        self.encoder = keras.Sequential(
            [
                keras.layers.Dense(
                    self.hidden_units,
                    activation="tanh",
                    kernel_initializer=self._initializer(1),
                    dtype=self.dtype_policy,
                    name="hidden",
                ),
                keras.layers.Dense(
                    num_codebooks * codebook_size,
                    kernel_initializer=self._initializer(2),
                    dtype=self.dtype_policy,
                    name="logits",
                ),
            ],
            name="encoder",
        )

    def _initializer(self, place):
        return keras.initializers.GlorotUniform(int(self._seeds[place]))

    def build(self, input_shape):
        if self.built:
            return
        width = input_shape[-1]
        self.encoder.build((None, width))
        self.codewords = self.add_weight(
            shape=(self.num_codebooks * self.codebook_size, width),
            initializer=self._initializer(3),
            name="codewords",
        )
        self.built = True

    def call(self, inputs, training=False):
        shape = (-1, self.num_codebooks, self.codebook_size)
        logits = tf.reshape(self.encoder(inputs), shape)
        if training:
            scores = _log_softplus(logits) + self.gumbel_noise(tf.shape(logits))
            picks = tf.nn.softmax(scores / self.temperature)
        else:
            picks = tf.one_hot(
                tf.argmax(logits, axis=-1),
                self.codebook_size,
                dtype=logits.dtype,
            )
        picks = tf.reshape(picks, (-1, shape[1] * shape[2]))
        return tf.matmul(picks, self.codewords)

    def gumbel_noise(self, shape):
        """Draws G of equation 5, anew in each step and on each device."""
        seed = tf.cast(self._noise_seed.next(), tf.int32)
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            # Every replica's copy of the seed is the same.
            replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
            seed = tf.random.fold_in(seed, replica)
        uniform = tf.random.stateless_uniform(
            shape, seed, minval=np.finfo("float32").tiny
        )
        noise = -tf.math.log(-tf.math.log(uniform))
        return tf.cast(noise, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        return self._distance(x if y is None else y, y_pred, sample_weight)

    def fit(self, *args, **kwargs):
        super().fit(*args, **kwargs)
        return self._fit_history

    @property
    def history(self):
        """Dict of lists: `"loss"` and `"val_loss"`, one entry a validation,
        and with `refine` `"refined_loss"`, one entry a sweep."""
        return {} if self._fit_history is None else self._fit_history.history

    @history.setter
    def history(self, callback):
        # `fit` sets it to its `keras.callbacks.History`.
        self._fit_history = callback

    @property
    def codes(self):
        """Codes of the table trained on, or None before `train`."""
        return self._codes

    @property
    def codebooks(self):
        """float32 array `(num_codebooks, codebook_size, columns)`, or None."""
        if not self.built:
            return None
        codewords = keras.ops.convert_to_numpy(self.codewords)
        shape = (self.num_codebooks, self.codebook_size, -1)
        return codewords.astype("float32").reshape(shape)

    def train(self, table, sample_weight=None, callbacks=None):
        """Learns codebooks for `table`, and its codes.

        Rows of each batch are drawn at random with replacement, so a table
        may have any number of rows. The weights of the validation with the
        lowest loss are kept. Ctrl-C stops early: the best weights so far are
        kept and `train` returns as usual. Training again goes on from there.

        Args:
            table: Array `(rows, columns)` of finite numbers. Only the rows
                of a batch are read at a time; it may be memory-mapped.
            sample_weight: Optional array `(rows,)`, how much each row counts.
                Rows are drawn in proportion to it, for training and for
                validation.
            callbacks: Optional list of Keras callbacks for `fit`. An epoch is
                one validation interval.

        Returns:
            The learner.

        Raises:
            ValueError: if the table is not a finite matrix or not as wide as
                that of an earlier `train`, if `sample_weight` is not a
                non-negative number a row, or if the loss became NaN.
        """
        width = self.codewords.shape[1] if self.built else None
        table = check_table(table, width=width)
        weight = check_sample_weight(sample_weight, len(table))
        steps = min(self.validation_interval, self.iterations)
        with self.distribute_strategy.scope():
            self.build((None, table.shape[1]))
            if not self.compiled:
                self.compile(keras.optimizers.Adam(self.learning_rate))
        validation = _row_batches(
            table, weight, self.validation_rows, self._seeds[4]
        )
        batches = tf.data.Dataset.from_generator(
            lambda: _row_batches(
                table, weight, self.batch_size, self._seeds[5]
            ),
            output_signature=tf.TensorSpec(
                (self.batch_size, table.shape[1]), "float32"
            ),
        )
        best = _KeepBest()
        self.history = None
        try:
            self.fit(
                batches.prefetch(tf.data.AUTOTUNE),
                epochs=-(-self.iterations // steps),
                steps_per_epoch=steps,
                validation_data=(next(validation),),
                validation_batch_size=self.batch_size,
                callbacks=[best, *(callbacks or [])],
                shuffle=False,
                verbose=self.verbose,
            )
        except KeyboardInterrupt:
            print("\nInterrupted: the best weights so far are kept.")
        best.restore()
        self._codes = self._argmax_codes(table)
        if self.refine:
            self._codes, codebooks, losses = refine_codes(
                table, self._codes, self.codebooks, weight
            )
            self.codewords.assign(codebooks.reshape(self.codewords.shape))
            self.history["refined_loss"] = losses
        return self

    def encode(self, table):
        """Codes of rows that may be new.

        Args:
            table: Array `(rows, columns)` as wide as the table trained on.

        Returns:
            Unsigned integer array `(rows, num_codebooks)`.

        Raises:
            ValueError: if there are no codebooks yet, or the table is not a
                finite matrix of their width.
        """
        table = self._check_new_rows(table)
        codes = self._argmax_codes(table)
        if self.refine:
            codes = nearest_codes(table, codes, self.codebooks)
        return codes

    def _argmax_codes(self, table):
        shape = (-1, self.num_codebooks, self.codebook_size)
        codes = np.empty(
            (len(table), self.num_codebooks), code_dtype(self.codebook_size)
        )
        rows = max(1, _CHUNK_LOGITS // (shape[1] * shape[2]))
        for start, chunk in float_chunks(table, rows):
            # softplus and log keep the order.
            logits = tf.reshape(self.encoder(chunk), shape)
            codes[start : start + rows] = tf.argmax(logits, axis=-1).numpy()
        return codes

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "num_codebooks": self.num_codebooks,
                "codebook_size": self.codebook_size,
                "hidden_units": self.hidden_units,
                "temperature": self.temperature,
                "learning_rate": self.learning_rate,
                "batch_size": self.batch_size,
                "iterations": self.iterations,
                "validation_interval": self.validation_interval,
                "validation_rows": self.validation_rows,
                "refine": self.refine,
                "seed": self.seed,
                "verbose": self.verbose,
            }
        )
        return config


class _SquaredDistance(keras.losses.Loss):
    """Squared distance of rows, summed over columns (equation 2)."""

    def call(self, y_true, y_pred):
        return tf.reduce_sum(tf.square(y_true - y_pred), axis=-1)


class _KeepBest(keras.callbacks.Callback):
    """Remembers the weights of the lowest validation loss."""

    def __init__(self):
        super().__init__()
        self.loss = np.inf
        self.weights = None
        self.validations = 0

    def on_epoch_end(self, epoch, logs=None):
        self.validations += 1
        if logs["val_loss"] < self.loss:
            self.loss = logs["val_loss"]
            self.weights = self._values(self.model.trainable_variables)

    def _values(self, variables):
        return [keras.ops.convert_to_numpy(v).copy() for v in variables]

    def restore(self):
        if self.weights is not None:
            for variable, value in zip(
                self.model.trainable_variables, self.weights, strict=True
            ):
                variable.assign(value)
        elif self.validations:
            raise ValueError(
                "The loss became NaN or infinite before the first validation. "
                "Lower `learning_rate`, or scale the table. "
                f"Received: learning_rate={self.model.learning_rate}."
            )


def _log_softplus(x):
    """log(softplus(x)) and its gradient, for any float32 x."""
    common = tf.math.log(tf.nn.softplus(tf.maximum(x, _SOFTPLUS_IS_EXP)))
    return tf.where(x < _SOFTPLUS_IS_EXP, x, common)


def _row_batches(table, weight, batch_size, seed):
    """Yields float32 batches of rows drawn in proportion to `weight`."""
    rng = np.random.default_rng(seed)
    if weight is not None:
        cumulative = np.cumsum(weight, dtype="float64")
        cumulative /= cumulative[-1]
    while True:
        if weight is None:
            rows = rng.integers(len(table), size=batch_size)
        else:
            rows = np.searchsorted(
                cumulative, rng.random(batch_size), side="right"
            )
        yield np.asarray(table[rows], dtype="float32")
