"""Base classes of code learners."""

import abc
import functools
import math
import random

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from keras_compembed.codes.packing import check_codes
from keras_compembed.codes.packing import code_dtype
from keras_compembed.codes.packing import decode_codes
from keras_compembed.compositions.composition import Composition
from keras_compembed.compositions.composition import check_composition
from keras_compembed.compositions.composition import get_composition
from keras_compembed.learners.refinement import can_refine
from keras_compembed.learners.refinement import nearest_composed
from keras_compembed.learners.refinement import refine_until_stopped
from keras_compembed.learners.training import SquaredDistance
from keras_compembed.learners.training import Training
from keras_compembed.learners.training import finish
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import float_chunks
from keras_compembed.utils.validation import require

_CHUNK_LOGITS = 1 << 21


class CodeLearner(abc.ABC):
    """Base class of learners: `train` on a table, then `encode`, `decode`."""

    num_codebooks = None
    codebook_size = None
    composition = "sum"
    # In the composition's `codebooks_shape`.
    codebooks = None
    # Codes of the training table.
    codes = None

    @abc.abstractmethod
    def train(
        self, table: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "CodeLearner":
        """Learns codebooks for `table`, and its codes.

        Ctrl-C before the first result raises `KeyboardInterrupt`, and the
        learner does not change.

        Args:
            table: Array `(rows, columns)` of finite numbers. It is read in
                parts and may be memory-mapped.
            sample_weight: Optional array `(rows,)`. The weight of each row in
                the loss. Defaults to `None`: equal weights.

        Raises:
            ValueError: If an array has another form, or the table's largest
                value is not 0 or from 1e-12 to 1e12.
        """

    @abc.abstractmethod
    def encode(self, table: ArrayLike) -> np.ndarray:
        """Returns codes, unsigned `(rows, num_codebooks)`, also of new rows.

        Args:
            table: Array `(rows, columns)`, as wide as the training table.
        """

    def decode(self, codes: ArrayLike) -> np.ndarray:
        """Returns the float32 rows `(rows, columns)` of `codes`."""
        self._check_trained()
        if isinstance(self.composition, str):
            return decode_codes(codes, self.codebooks)
        shape = None, self.num_codebooks
        codes = check_codes(codes, self.codebook_size, shape)
        return self.composition.decode(codes, self.codebooks)

    def _keep(self, **state):
        """Sets all attributes together, safe from Ctrl-C."""
        vars(self).update(state)

    def _check_new_rows(self, table):
        """Returns a valid table to encode, or raises."""
        self._check_trained()
        width = self.codebooks.shape[-1]
        if not isinstance(self.composition, str):
            width = self.composition.output_dim
        return check_fitted_table(
            table, width, smallest=0, shards=True, warn=False
        )

    def _check_trained(self):
        require(
            self.codebooks is not None,
            "The learner must have codebooks: call `train` first.",
            codebooks=None,
        )


class GradientCodeLearner(keras.Model, CodeLearner):
    """Base class of learners that train codes end to end."""

    def __init__(
        self,
        num_codebooks: int,
        codebook_size: int,
        composition: str | tuple | Composition,
        training: Training | None,
        refine: bool | None,
        seed: int | None,
        verbose: int,
        **kwargs: object,
    ):
        num_codebooks, codebook_size = check_code_shape(
            num_codebooks, codebook_size
        )
        composition = check_composition(composition)
        require(
            not refine or can_refine(composition),
            "`refine` must be False unless the composition is 'sum', 'concat' "
            "or 'linear'.",
            refine=refine,
        )
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.num_codebooks = num_codebooks
        self.codebook_size = codebook_size
        # A partial: a layer as attribute would become part of the model.
        self._make_composition = functools.partial(
            get_composition,
            self.learned_composition(composition),
            num_codebooks,
            codebook_size,
        )
        self._composition = None
        self.training = training
        self.refine = check_choice("refine", refine, (None, True, False))
        self.seed = check_seed(seed)
        self.verbose = check_choice("verbose", verbose, ("auto", 0, 1, 2))
        self._codes = None
        # Whether the first `train` is not finished.
        self._begins = self._compiles = False
        self._fit_history = None
        if seed is None:
            seed = random.getrandbits(31)
        self._seeds = np.random.SeedSequence(seed).generate_state(7) >> 1
        self._distance = SquaredDistance(name="squared_distance")

    def learned_composition(self, composition: object) -> object:
        """The composition to learn for the given one."""
        return composition

    def inputs_of(self, places: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The inputs of `logits` for rows at these places."""
        return rows

    def current_codebooks(self) -> tf.Tensor:
        """Tensor of codebooks in the composition's `codebooks_shape`."""
        return tf.convert_to_tensor(self.codewords.value)

    def assign_codebooks(self, codebooks: ArrayLike) -> None:
        """Sets the codebooks."""
        self.codewords.assign(codebooks)

    def begin(self, table: ArrayLike, sample_weight: ArrayLike | None) -> None:
        """Called by the first `train`, after all weights are made."""

    def resume(self, table: ArrayLike) -> None:
        """Called by further `train`s, before training."""

    def make_optimizer(self) -> keras.Optimizer:
        """The optimizer for `train`."""
        return keras.optimizers.Adam(self.training.learning_rate)

    def codebooks_initializer(self) -> keras.Initializer:
        """Initializer of codebooks as a matrix, one codeword per row."""
        return self.seeded(keras.initializers.GlorotUniform, 3)

    def seeded(self, initializer: type, place: int, **kwargs: object) -> object:
        """An initializer with the seed at this index."""
        return initializer(**kwargs, seed=int(self._seeds[place]))

    def build(self, input_shape):
        if self.built:
            return
        require(
            self._composition is None,
            "The learner must not be interrupted while it is built: make a new "
            "one.",
            built=False,
        )
        num_rows, width = input_shape
        # Keras draws seeds for initializers given by name.
        state = random.getstate()
        random.seed(int(self._seeds[6]))
        try:
            self._composition = self._make_composition(
                width, dtype=self.variable_dtype
            )
        finally:
            random.setstate(state)
        composition = self._composition
        *sizes, code_dim = shape = composition.codebooks_shape
        self.build_logits(num_rows, width)
        initialize = self.codebooks_initializer()
        matrix = math.prod(sizes), code_dim
        self.codewords = self.add_weight(
            shape=shape,
            initializer=lambda shape, dtype: composition.start(
                tf.reshape(initialize(matrix, dtype=dtype), shape)
            ),
            autocast=False,
            name="codewords",
        )

    def call(self, inputs, training=False):
        logits = self.logits(inputs)
        codebooks = self.current_codebooks()
        if training:
            picks = tf.cast(self.picks(logits), codebooks.dtype)
            return self.composition.compose_picks(codebooks, picks)
        codes = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return self.composition.compose_codes(codebooks, codes)

    def compute_output_shape(self, input_shape):
        return input_shape[0], self._composition.output_dim

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        return self._distance(x if y is None else y, y_pred, sample_weight)

    def fit(self, *args, **kwargs):
        # Codes are valid for the weights before `fit` only.
        self._codes = None
        super().fit(*args, **kwargs)
        return self._fit_history

    @property
    def history(self) -> dict:
        """Dict of lists: `"loss"`, `"val_loss"`, `"refined_loss"`."""
        return {} if self._fit_history is None else self._fit_history.history

    @history.setter
    def history(self, callback):
        # `fit` sets it to its `keras.callbacks.History`.
        self._fit_history = callback

    @property
    def composition(self) -> str | tuple | Composition:
        """The learner's `Composition`, or its identifier."""
        if self._composition is None:
            return self._make_composition.args[0]
        return self._composition

    @property
    def codes(self) -> np.ndarray | None:
        """Codes of the training table; None before `train`, after `fit`."""
        return self._codes

    @property
    def codebooks(self) -> np.ndarray | None:
        """float32 array in the composition's `codebooks_shape`, or None."""
        if not self.built:
            return None
        return self.current_codebooks().numpy().astype("float32")

    def train(
        self,
        table: ArrayLike,
        sample_weight: ArrayLike | None = None,
        callbacks: list | None = None,
    ) -> "GradientCodeLearner":
        """Learns codebooks for `table`, and its codes.

        Each batch draws random rows with replacement. The weights of the lowest
        validation loss are kept. `train` again to continue. Ctrl-C stops early.

        Args:
            table: Array `(rows, columns)`, as wide as in an earlier `train`.
            sample_weight: Optional array `(rows,)`. Rows are drawn in
                proportion to it, for training and validation. Defaults to
                `None`.
            callbacks: Optional list of Keras callbacks for `fit`. An epoch is
                one validation interval. Defaults to `None`.
        """
        width = self.composition.output_dim if self.built else None
        table = check_fitted_table(table, width, shards=True)
        weight = check_sample_weight(sample_weight, len(table))
        training = self.training
        steps = min(training.validation_interval, training.iterations)
        with self.distribute_strategy.scope():
            if self.built:
                self.resume(table)
            else:
                self._begins = True
                self.build(table.shape)
            if self._begins:
                self.begin(table, weight)
                self._begins = False
            if self._compiles or not self.compiled:
                self._compiles = True
                self.compile(self.make_optimizer())
                self._compiles = False
            if not self.optimizer.built:
                self.optimizer.build(self.trainable_variables)
        batch = self.inputs_of(np.zeros(1, "int64"), table[:1])
        best = keras.callbacks.EarlyStopping(
            patience=training.iterations, restore_best_weights=True
        )
        batches = tf.data.Dataset.from_generator(
            lambda: self._batches(table, weight, training.batch_size, 5),
            output_signature=tuple(
                tf.TensorSpec((training.batch_size, *part.shape[1:]), kind)
                for part, kind in (
                    (batch, "int64" if batch.ndim == 1 else "float32"),
                    (table, "float32"),
                )
            ),
        )
        self.history = None
        try:
            self.fit(
                batches.prefetch(tf.data.AUTOTUNE),
                epochs=-(-training.iterations // steps),
                steps_per_epoch=steps,
                validation_data=next(
                    self._batches(table, weight, training.validation_rows, 4)
                ),
                validation_batch_size=training.batch_size,
                callbacks=[best, *(callbacks or ())],
                shuffle=False,
                verbose=self.verbose,
            )
        except KeyboardInterrupt:
            print("\nInterrupted: keeping the best weights so far.")
        if best.best_weights is not None:
            if not np.isfinite(best.best):
                raise ValueError(
                    "The loss must be finite at the first validation: lower "
                    "`learning_rate`, or scale the table."
                )
            finish(lambda: self.set_weights(best.best_weights))
        codes = finish(lambda: self._argmax_codes(table))
        if self._refines:
            refined = refine_until_stopped(
                table, codes, self.composition, self.codebooks, weight
            )
            finish(lambda: self._take(*refined))
        else:
            self._codes = codes
        return self

    def _take(self, codes, codebooks, weights, losses):
        self.composition.set_weights(weights)
        self.assign_codebooks(codebooks)
        self.history["refined_loss"] = losses
        self._codes = codes

    def encode(self, table):
        table = self._check_new_rows(table)
        codes = self._argmax_codes(table)
        if self._refines:
            codes = nearest_composed(
                table, self.composition, self.codebooks, codes
            )
        return codes

    @property
    def _refines(self):
        if self.refine is None:
            return can_refine(self.composition)
        return self.refine

    def _batches(self, table, weight, batch_size, seed):
        """Yields `(inputs, rows)` of rows drawn in proportion to weights."""
        rng = np.random.default_rng(self._seeds[seed])
        if weight is not None:
            cumulative = np.cumsum(weight, dtype="float64")
            cumulative /= cumulative[-1]
        while True:
            if weight is None:
                places = rng.integers(len(table), size=batch_size)
            else:
                draws = rng.random(batch_size)
                places = np.searchsorted(cumulative, draws, side="right")
            rows = np.asarray(table[places], dtype="float32")
            # A copy: TensorFlow may write into the array.
            yield self.inputs_of(places, rows), rows.copy()

    def _argmax_codes(self, table):
        shape = self.num_codebooks, self.codebook_size
        codes = np.empty((len(table), shape[0]), code_dtype(shape[1]))
        rows = max(1, _CHUNK_LOGITS // (shape[0] * shape[1]))
        for start, chunk in float_chunks(table, rows):
            places = np.arange(start, start + len(chunk))
            logits = self.logits(self.inputs_of(places, chunk))
            codes[places] = tf.argmax(logits, axis=-1).numpy()
        return codes

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        names = "num_codebooks", "codebook_size", "composition", "training"
        names = *names, "refine", "seed", "verbose"
        settings = {name: serialize(getattr(self, name)) for name in names}
        return {**super().get_config(), **settings}
