"""Codes by straight-through gradients of a softmax."""

import functools

import keras
import numpy as np
import tensorflow as tf
from keras.optimizers.schedules import LearningRateSchedule

from keras_compembed.compositions.composition import Composition
from keras_compembed.compositions.composition import LinearComposition
from keras_compembed.compositions.composition import ScaledComposition
from keras_compembed.learners.code_learner import GradientCodeLearner
from keras_compembed.learners.coordinate_search import mean_row
from keras_compembed.learners.coordinate_search import second_moments
from keras_compembed.learners.refinement import can_refine
from keras_compembed.learners.refinement import codeword_of_row
from keras_compembed.learners.refinement import nearest_composed
from keras_compembed.learners.task_codes import pick_best
from keras_compembed.learners.training import TemperatureSchedule
from keras_compembed.learners.training import Training
from keras_compembed.learners.training import check_rate
from keras_compembed.learners.training import get_training
from keras_compembed.learners.training import scale_gradient
from keras_compembed.optimizers.device_rows import read_rows
from keras_compembed.optimizers.sparse_row_optimizer import SparseRowOptimizer
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class KDCodeLearner(GradientCodeLearner):
    """Learns codes by straight-through softmax gradients (Chen, Min & Sun).

    The largest logit of each codebook picks the codeword, and a composition
    combines the codewords. The gradient is that of a softmax with a falling
    temperature (Algorithm 1). The published procedure is
    `logits="free", refine=False`.

    The learner is a `keras.Model`. Call `compile` first for another optimizer.
    Build it inside `strategy.scope()` to train on several devices. With an
    encoder, you can call `fit` on your own batches of rows.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> learner = KDCodeLearner(
    ...     num_codebooks=8, codebook_size=16, composition="concat",
    ...     training=kc.learners.Training(iterations=20), seed=0, verbose=0
    ... )
    >>> learner.decode(learner.train(table).codes).shape
    (1000, 64)

    Args:
        num_codebooks, codebook_size: Same as for `AdditiveQuantizer`.
        composition: Same as for `CodeEmbedding`. Defaults to `"linear"`.
        logits: `"encoder"` or `"free"`. Logits are a linear function of the
            row, which can encode new rows, or free parameters for each row.
            Defaults to `"encoder"`.
        temperature: Positive number, a `LearningRateSchedule` of the
            optimizer's step, or a tuple `(base, rate, floor)` for
            `max(floor, base / (1 + rate * step))`. Defaults to
            `(1.0, 1e-3, 0.5)`.
        estimator: `"straight_through"` or `"soft"`. With `"soft"`, training
            mixes codewords by softmax weights. Defaults to
            `"straight_through"`.
        training: Optional `Training`. Defaults to `None`: 10,000 iterations,
            and a learning rate with cosine decay from 1e-2 to 1e-4.
        refine: Optional boolean. Whether `train` and `encode` end with sweeps
            over codes, as in `AdditiveQuantizer`. Defaults to `None`: only for
            `"sum"`, `"linear"` and `"concat"`.
        seed: Optional integer. Makes runs repeatable on one machine.
        verbose: `0`, `1` or `2`, as in `fit`. Defaults to `1`.
        **kwargs: `name` and `dtype` of `keras.Model`. `dtype` defaults to
            `"float32"`.

    Input shape:
        Rows `(batch_size, columns)`; with free logits, row indices
        `(batch_size,)`.

    Output shape:
        Reconstructed rows `(batch_size, columns)`.

    Raises:
        ValueError: If an argument is invalid.

    References:
        - [Chen, Min & Sun, 2018](https://arxiv.org/abs/1806.09464), section 2.3
          and Algorithm 1
        - [Bengio et al., 2013](https://arxiv.org/abs/1308.3432)
    """

    def __init__(
        self,
        num_codebooks: int = 32,
        codebook_size: int = 16,
        composition: str | tuple | Composition = "linear",
        logits: str = "encoder",
        temperature: float | tuple | LearningRateSchedule = (1.0, 1e-3, 0.5),
        estimator: str = "straight_through",
        training: Training | None = None,
        refine: bool | None = None,
        seed: int | None = None,
        verbose: int = 1,
        **kwargs: object,
    ):
        super().__init__(
            num_codebooks,
            codebook_size,
            composition=composition,
            training=get_training(
                training,
                10_000,
                lambda steps: keras.optimizers.schedules.CosineDecay(
                    1e-2, steps, alpha=1e-2
                ),
            ),
            refine=refine,
            seed=seed,
            verbose=verbose,
            **kwargs,
        )
        if isinstance(temperature, (tuple, list)):
            temperature = TemperatureSchedule(*temperature)
        self.logits_from = check_choice("logits", logits, ("encoder", "free"))
        self.temperature = check_rate("temperature", temperature)
        self.estimator = check_choice(
            "estimator", estimator, ("straight_through", "soft")
        )
        # XLA would make gradients of rows as large as the table.
        self.supports_jit = logits == "encoder"

    def learned_composition(self, composition):
        if can_refine(composition) or isinstance(
            composition, ScaledComposition
        ):
            return composition
        # Other compositions cannot put the table's scale into codebooks.
        return ScaledComposition(composition)

    def build(self, input_shape):
        rows_known = len(input_shape) == 2 and input_shape[0] is not None
        require(
            self.logits_from == "encoder" or self.built or rows_known,
            "`logits` must be 'encoder' to build the learner without `train`, "
            "which gives the number of rows.",
            input_shape=tuple(input_shape),
        )
        super().build(input_shape)

    def build_logits(self, num_rows, width):
        size = self.num_codebooks * self.codebook_size
        fixed = functools.partial(
            self.add_weight, trainable=False, autocast=False
        )
        self.offset = fixed((width,), "zeros", name="offset")
        self.scale = fixed((), "ones", name="scale")
        if self.logits_from == "encoder":
            shape, name = (width, size), "kernel"
            initializer = self.seeded(keras.initializers.GlorotUniform, 1)
            self.bias = self.add_weight(
                shape=(size,), initializer="zeros", name="bias"
            )
        else:
            shape, name = (num_rows, size), "row_logits"
            initializer = self.seeded(
                keras.initializers.RandomNormal, 1, stddev=0.1
            )
        self.kernel = self.add_weight(
            shape=shape, initializer=initializer, name=name
        )

    def begin(self, table, sample_weight):
        offset = mean_row(table, sample_weight)
        moments = second_moments(table, offset) / len(table)
        scale = np.sqrt(np.diag(moments).mean()) or 1.0
        self.offset.assign(offset)
        self.scale.assign(scale)
        composition = self.composition
        if isinstance(composition, LinearComposition):
            # Starts from the principal axes, which trains faster than random.
            kernel = composition.kernel.numpy().astype("float32")
            axes = np.linalg.eigh(moments)[1].T[::-1][: len(kernel)]
            kernel[: len(axes)] = axes
            composition.kernel.assign(kernel)
        if isinstance(composition, ScaledComposition):
            composition.offset.assign(offset / scale)
            composition.scale.assign(scale)
        else:
            codeword = codeword_of_row(offset, composition) / scale
            self.codewords.assign(self.codewords + codeword)

    def make_optimizer(self):
        optimizer = super().make_optimizer()
        if self.logits_from == "free":
            optimizer = SparseRowOptimizer(optimizer)
        return optimizer

    def codebooks_initializer(self):
        return self.seeded(
            keras.initializers.RandomNormal, 3, stddev=self.num_codebooks**-0.5
        )

    def current_codebooks(self):
        codebooks = super().current_codebooks()
        if can_refine(self.composition):
            codebooks *= self.scale.value
        return codebooks

    def assign_codebooks(self, codebooks):
        if can_refine(self.composition):
            codebooks = codebooks / self.scale.numpy()
        super().assign_codebooks(codebooks)

    def compute_loss(self, *args, **kwargs):
        # Scales gradients of codewords to the table's scale.
        loss = super().compute_loss(*args, **kwargs)
        return scale_gradient(loss, tf.math.square(1 / self.scale.value))

    def inputs_of(self, places, rows):
        return rows if self.logits_from == "encoder" else places

    def logits(self, inputs):
        if self.logits_from == "free":
            logits = read_rows(self.kernel, tf.cast(inputs, tf.int64))
        else:
            rows = tf.cast(inputs, self.variable_dtype) - self.offset.value
            rows = tf.cast(rows / self.scale.value, self.compute_dtype)
            # Outside a call, variables are not cast.
            kernel, bias = (
                tf.cast(weight, self.compute_dtype)
                for weight in (self.kernel.value, self.bias.value)
            )
            logits = tf.matmul(rows, kernel) + bias
        shape = -1, self.num_codebooks, self.codebook_size
        return tf.cast(tf.reshape(logits, shape), self.variable_dtype)

    def picks(self, logits):
        temperature = tf.cast(self.current_temperature(), logits.dtype)
        if self.estimator == "soft":
            return tf.nn.softmax(logits / temperature)
        return pick_best(logits, temperature)

    def current_temperature(self):
        if not callable(self.temperature):
            return self.temperature
        step = 0
        if self.compiled and self.optimizer is not None:
            step = self.optimizer.iterations
        return self.temperature(step)

    def resume(self, table):
        require(
            self.logits_from == "encoder" or len(table) == self.kernel.shape[0],
            "`table` must have the same number of rows with free logits as "
            "before.",
            rows=len(table),
        )

    def encode(self, table):
        if self.logits_from == "encoder":
            return super().encode(table)
        table = self._check_new_rows(table)
        require(
            self._refines,
            "`logits` must be 'encoder', or `refine` True, to encode rows: "
            "free logits belong to the training rows.",
            refine=self.refine,
        )
        return nearest_composed(table, self.composition, self.codebooks)

    def get_config(self):
        return {
            **super().get_config(),
            "logits": self.logits_from,
            "temperature": keras.saving.serialize_keras_object(
                self.temperature
            ),
            "estimator": self.estimator,
        }
