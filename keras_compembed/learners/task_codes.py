"""Codes learned by `fit` along with the task."""

import warnings
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from keras_compembed.codes.packing import code_dtype
from keras_compembed.compositions.composition import Composition
from keras_compembed.compositions.composition import ConcatComposition
from keras_compembed.compositions.composition import split_columns
from keras_compembed.learners.refinement import nearest_composed
from keras_compembed.optimizers.device_rows import computed_once
from keras_compembed.optimizers.device_rows import of_all_devices
from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.device_rows import read_rows
from keras_compembed.optimizers.device_rows import share_of_device
from keras_compembed.optimizers.device_rows import sum_over_devices
from keras_compembed.optimizers.device_rows import transpose
from keras_compembed.optimizers.device_rows import unique
from keras_compembed.utils.saving import Settings
from keras_compembed.utils.tensor_ops import custom_gradient
from keras_compembed.utils.tensor_ops import in_xla
from keras_compembed.utils.tensor_ops import of_all_ids
from keras_compembed.utils.tensor_ops import repeat_rows
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require

_CHUNK_ELEMENTS = 1 << 22
# Decay of statistics: about the last ten batches count, as queries change.
_KEPT = 0.9
# Scores of small queries can be below 1e-6.
_EPSILON = 1e-9
# A normalized product of one column would only keep its sign.
_PART_WIDTH = 4


class TaskCodes(Settings):
    """Base class of methods to learn codes along with a task."""

    # Whether learning starts from codes, and the first codes, if given.
    starts_from_codes = False
    first_codes = None
    _settings = ("teacher_weight",)

    def __init__(
        self, teacher: ArrayLike | None = None, teacher_weight: float = 1.0
    ):
        self.teacher_weight = check_positive_number(
            "teacher_weight", teacher_weight
        )
        self._table_shape = None
        self.teacher = teacher
        self.rows = None

    @property
    def teacher(self) -> np.ndarray | None:
        """The table that guides the vectors, or None. Can be set."""
        return None if self._teacher is None else self._teacher.numpy()

    @teacher.setter
    def teacher(self, table):
        if table is not None:
            table = tf.constant(check_table(table, "teacher"), "float32")
        _check_teacher(table, self._table_shape)
        self._teacher = table

    def check_teacher(self, input_dim: int, output_dim: int) -> None:
        """Raises if there is a teacher of another shape."""
        _check_teacher(self._teacher, (input_dim, output_dim))

    def set_shape(self, input_dim: int, composition: Composition) -> None:
        """Sets the table shape, or raises if it is not supported."""
        self._table_shape = input_dim, composition.output_dim
        self.check_teacher(*self._table_shape)

    def build(self, add_weight: Callable, rows: object) -> None:
        """Makes the training-only weights for a store of codes."""
        self.rows = rows
        # Half precision is too coarse for sums over ids.
        dtype = rows.codebooks.dtype
        self._dtype = keras.backend.result_type(dtype, "float32")
        zeros = {"shape": (), "initializer": "zeros", "trainable": False}
        # Saved with the layer.
        add_weight("codes_are_fixed", dtype="uint8", **zeros)

    def step(self, ids: tf.Tensor, mask: tf.Tensor | None = None) -> tuple:
        """Vectors `(ids, output_dim)` in a training step, and losses."""
        dtype = self._dtype
        counts = tf.ones_like(ids, dtype)
        if mask is not None:
            counts = tf.cast(mask, dtype)
        # Each id once, with a single gradient: Keras optimizers apply the
        # gradients of repeated rows separately.
        different, places = unique(ids, self.rows.input_dim)
        counts = tf.math.unsorted_segment_sum(
            counts, places, tf.size(different)
        )
        # XLA repeats ids, with a count of 0.
        present = counts > 0 if mask is not None or in_xla() else None
        vectors, losses = self.learn(different, present)
        if self._teacher is not None:
            rows = tf.cast(tf.gather(self._teacher, different), dtype)
            distances = tf.square(tf.cast(vectors, dtype) - rows)
            distances = tf.reduce_mean(distances, axis=1)
            losses = [*losses, self.teacher_weight * distances]
        total = share_of_device(sum_over_devices(tf.reduce_sum(counts)))
        losses = [
            tf.math.divide_no_nan(tf.reduce_sum(counts * loss), total)
            for loss in losses
        ]
        return repeat_rows(vectors, places), losses

    def learn(self, ids: tf.Tensor, present: tf.Tensor | None) -> tuple:
        """Vectors of distinct ids, and losses. None: all are in the batch."""
        raise NotImplementedError

    def subcodes(self, ids: tf.Tensor) -> tf.Tensor:
        """Subcodes, int32 `(ids, num_codebooks)`, outside training."""
        raise NotImplementedError

    def all_subcodes(self) -> tf.Tensor:
        """Subcodes, int32 `(rows, num_codebooks)`, outside training."""
        composition = self.rows.composition
        size = composition.num_codebooks * composition.codebook_size
        size = max(1, _CHUNK_ELEMENTS // size)
        return of_all_ids(self.subcodes, self.rows.input_dim, size)

    def restart(self, vectors: tf.Tensor) -> None:
        """Called after the vectors of all ids change, but not their codes."""

    @property
    def codes(self) -> np.ndarray:
        """Codes of all ids, an unsigned array `(input_dim, num_codebooks)`."""
        dtype = code_dtype(self.rows.composition.codebook_size)
        return np.asarray(self.all_subcodes()).astype(dtype)

    def without_teacher(self) -> "TaskCodes":
        """A new object with the same settings."""
        return self.from_config(self.get_config())

    def copy(self) -> "TaskCodes":
        """A new object with the same settings, teacher and first codes."""
        copy = self.without_teacher()
        copy._teacher, copy.first_codes = self._teacher, self.first_codes
        return copy

    def get_config(self):
        return {name: getattr(self, name) for name in self._settings}


def _check_teacher(teacher, shape):
    got = None if teacher is None else tuple(teacher.shape)
    require(
        got is None or shape in (None, got),
        "`teacher` must have the shape of the layer's table, "
        f"(input_dim, output_dim)={shape}.",
        shape=got,
    )


@keras.saving.register_keras_serializable(package="keras_compembed")
class FollowingCodes(TaskCodes):
    """Lets given or random codes follow the task."""

    starts_from_codes = True
    _settings = "teacher_weight", "recode_every"

    def __init__(
        self, recode_every=None, teacher=None, teacher_weight=1.0, codes=None
    ):
        super().__init__(teacher, teacher_weight)
        self.first_codes = codes
        if recode_every is not None:
            recode_every = check_positive_int("recode_every", recode_every)
        self.recode_every = recode_every
        # Whether something calls `recode`, such as `RecodeEmbeddings`.
        self.is_recoded = False
        self._is_trained = False

    def set_shape(self, input_dim, composition):
        super().set_shape(input_dim, composition)
        require(
            composition.is_linear,
            "`composition` must be linear in the codewords with "
            "codes='follow', so that the code nearest a vector can be "
            "found.",
            composition=type(composition.unscaled()).__name__,
        )

    def build(self, add_weight, rows):
        super().build(add_weight, rows)
        self.latents = add_weight(
            "latents",
            shape=(rows.input_dim, rows.output_dim),
            initializer=lambda shape, dtype: tf.cast(
                rows.decode(rows.stored_codes()), dtype
            ),
        )

    def subcodes(self, ids):
        return self.rows.subcodes(ids)

    def learn(self, ids, present):
        self._is_trained = True
        if self.recode_every is not None and not self.is_recoded:
            warnings.warn(
                f"`recode_every`={self.recode_every} has no effect without "
                "`callbacks=[keras_compembed.compression.RecodeEmbeddings()]` "
                "in `fit`. Pass it, or call the layer's `recode` at "
                "intervals.",
                stacklevel=2,
            )
        vectors = self.rows.compose(self.subcodes(ids))
        latents = read_rows(self.latents, ids, once=True)
        return vectors + (latents - tf.stop_gradient(latents)), []

    def restart(self, vectors):
        self.latents.assign(vectors)

    def warn_if_idle(self):
        if self._is_trained and not self.is_recoded:
            warnings.warn(
                "Codes did not change: the layer has codes='follow', but was "
                "trained without the callback `RecodeEmbeddings` and without "
                "a call of `recode` before `kc.strip`.",
                stacklevel=4,
            )

    def recode(self):
        """Gives each id the code nearest its latent vector."""
        self.is_recoded = True
        old = self.rows.stored_codes()
        new = nearest_composed(
            keras.ops.convert_to_numpy(self.latents).astype("float32"),
            self.rows.composition,
            keras.ops.convert_to_numpy(self.rows.codebooks).astype("float32"),
            old,
        )
        self.rows.assign(new)
        return int((old != new).any(axis=1).sum())


@keras.saving.register_keras_serializable(package="keras_compembed")
class SoftmaxCodes(TaskCodes):
    """Learns codes along with the task by dot products: `codes="softmax"`.

    Each id has a query. Each part of the query picks the key with the largest
    dot product. The gradient is that of a softmax.

    Example:

    >>> layer = kc.CodeEmbedding(
    ...     100, 8, num_codebooks=4, codes=SoftmaxCodes(temperature=0.5)
    ... )

    Args:
        temperature: Positive number. Divides the scores in the softmax of the
            gradient. Defaults to `1.0`.
        teacher: Optional array `(input_dim, output_dim)` that guides the
            vectors. It is not saved: set it again after loading. Defaults to
            `None`.
        teacher_weight: Positive number. Weight of the mean squared distance to
            the teacher's rows in the loss. Defaults to `1.0`.

    Raises:
        ValueError: If `teacher` does not have the shape of the table.

    References:
        - [Chen, Li & Sun, 2020](https://arxiv.org/abs/1908.09756)
    """

    _settings = "teacher_weight", "temperature"

    def __init__(
        self,
        temperature: float = 1.0,
        teacher: ArrayLike | None = None,
        teacher_weight: float = 1.0,
    ):
        super().__init__(teacher, teacher_weight)
        self.temperature = check_positive_number("temperature", temperature)

    # Whether scores are distances, and whether codewords are the keys.
    _is_nearest = _codewords_are_keys = False

    def build(self, add_weight, rows):
        super().build(add_weight, rows)
        composition = rows.composition
        self._shape = composition.num_codebooks, composition.codebook_size
        width = composition.output_dim
        # If queries and vectors are in the same space.
        self._codewords_are_keys = self._is_nearest and isinstance(
            composition, ConcatComposition
        )
        if not self._codewords_are_keys:
            width = max(width, _PART_WIDTH * self._shape[0])
        shape = rows.input_dim, width
        self.queries = add_weight("queries", shape=shape, initializer="uniform")
        self.keys = rows.codebooks
        if not self._codewords_are_keys:
            shape = self._shape[1], width
            self.keys = add_weight("keys", shape=shape, initializer="uniform")
        self.score_sums = add_weight(
            "score_sums",
            shape=(3, *self._shape),
            initializer="zeros",
            dtype=self._dtype,
            trainable=False,
            aggregation="mean",
        )

    def subcodes(self, ids):
        keys, parts = self._factors(tf.gather(self.queries.value, ids))
        sums = tf.convert_to_tensor(self.score_sums.value)
        return best_keys(tf.matmul(normalize_keys(keys, sums), parts))

    def learn(self, ids, present):
        _, scores = self._ask(ids, present)
        picks = pick_best(scores, self.temperature, axis=1)
        return self.rows.compose_picks(tf.transpose(picks, (2, 0, 1))), []

    def _ask(self, ids, present):
        """Queries and normalized scores of a training step."""
        queries = read_rows(self.queries, ids, once=True)
        keys, parts = self._factors(queries)
        sums = score_sums(keys, parts, weights_of_different(ids, present))
        before = tf.convert_to_tensor(self.score_sums.value)
        # Constants to gradients.
        sums = tf.stop_gradient(_KEPT * before + sums)
        self.score_sums.assign(sums)
        return queries, tf.matmul(normalize_keys(keys, sums), parts)

    def _factors(self, queries):
        """Keys `(M, K, w)` and parts `(M, w, ids)`: scores are products."""
        queries = tf.cast(queries, self._dtype)
        keys = tf.cast(self.keys.value, self._dtype)
        parts = transpose(split_columns(queries, self._shape[0]), (1, 2, 0))
        keys = tf.transpose(split_columns(keys, self._shape[0]), (1, 0, 2))
        # The last column is for constants.
        ones = tf.ones_like(parts[:, :1])
        if not self._is_nearest:
            keys = tf.pad(keys, ((0, 0), (0, 0), (0, 1)))
            return keys, tf.concat([parts, ones], axis=1)
        # Distances stay the same, and precise far from zero.
        center = tf.stop_gradient(tf.reduce_mean(keys, axis=1, keepdims=True))
        keys -= center
        parts -= tf.transpose(center, (0, 2, 1))
        squares = tf.reduce_sum(tf.square(keys), axis=2, keepdims=True)
        keys = tf.concat([2 * keys, -tf.ones_like(squares), -squares], axis=2)
        squares = tf.reduce_sum(tf.square(parts), axis=1, keepdims=True)
        return keys, tf.concat([parts, squares, ones], axis=1)


@keras.saving.register_keras_serializable(package="keras_compembed")
class NearestCodes(SoftmaxCodes):
    """Learns codes by distances: `codes="nearest"`."""

    _settings = "teacher_weight", "commitment", "temperature"
    _is_nearest = True

    def __init__(
        self, commitment=0.25, temperature=1.0, teacher=None, teacher_weight=1.0
    ):
        super().__init__(temperature, teacher, teacher_weight)
        self.commitment = check_positive_number(
            "commitment", commitment, zero=True
        )

    def learn(self, ids, present):
        if not self._codewords_are_keys:
            return super().learn(ids, present)
        queries, scores = self._ask(ids, present)
        vectors = self.rows.compose(best_keys(scores))
        chosen = tf.cast(vectors, scores.dtype)
        asked = tf.cast(queries, scores.dtype)
        distances = tf.square(chosen - tf.stop_gradient(asked))
        distances += self.commitment * tf.square(
            tf.stop_gradient(chosen) - asked
        )
        vectors += queries - tf.stop_gradient(queries)
        return vectors, [tf.reduce_mean(distances, axis=1)]

    def restart(self, vectors):
        # Keys that are not codewords do not depend on vectors. With zero sums,
        # a distance of 0 is the best for every key.
        if self._codewords_are_keys:
            self.queries.assign(vectors)
            self.score_sums.assign(tf.zeros_like(self.score_sums))


def best_keys(scores):
    """int32 `(ids, num_codebooks)`: the first key of the best score."""
    is_best = scores >= tf.reduce_max(scores, axis=1, keepdims=True)
    return computed_once(tf.transpose(_first(is_best, axis=1)))


def pick_best(scores, temperature=1.0, axis=2):
    """One-hot of the first best score, with the gradient of the softmax."""

    @custom_gradient
    def pick(scores):
        best = tf.reduce_max(scores, axis, keepdims=True)
        picks = tf.one_hot(
            _first(scores >= best, axis), scores.shape[axis], axis=axis
        )

        def gradient(upstream):
            soft = tf.exp((scores - best) / temperature)
            soft /= tf.reduce_sum(soft, axis, keepdims=True)
            upstream -= tf.reduce_sum(soft * upstream, axis, keepdims=True)
            return soft * upstream / temperature

        return tf.cast(picks, scores.dtype), gradient

    return pick(scores)


def _first(is_best, axis):
    """int32 places of the first True along an axis of three."""
    # `tf.argmax` takes three times as long.
    size = is_best.shape[axis]
    left = np.arange(size, 0, -1, "float32").reshape(-1, *[1] * (2 - axis))
    left = tf.reduce_max(tf.cast(is_best, "float32") * left, axis)
    # NaN has no best.
    return size - tf.cast(tf.maximum(left, 1), "int32")


def weights_of_different(ids, present):
    """1 for an id in the batch, split over devices that have it. None: 1."""
    if not on_several_devices():
        return present
    ids = ids if present is None else tf.where(present, ids, -1)
    everywhere = tf.sort(of_all_devices(ids))
    devices = tf.searchsorted(everywhere, ids, "right")
    devices -= tf.searchsorted(everywhere, ids, "left")
    return tf.where(ids < 0, 0.0, 1 / tf.cast(devices, "float32"))


def score_sums(keys, parts, weights):
    """Sums that give mean and variance: `(3, num_codebooks, codebook_size)`."""
    # No pass over all scores.
    weighted = parts
    if weights is not None:
        weighted *= tf.cast(weights, parts.dtype)
    moments = tf.matmul(weighted, parts, transpose_b=True)
    sums = tf.matmul(keys, moments)
    first, second = sums[:, :, -1], tf.reduce_sum(sums * keys, axis=2)
    total = tf.zeros_like(first) + moments[:, -1:, -1]
    return sum_over_devices(tf.stack([first, second, total]))


def normalize_keys(keys, sums):
    """Keys with scores of mean 0 and variance 1."""
    first, second, total = tf.unstack(sums[..., None])
    # There may be no ids yet, or only padding.
    mean = tf.math.divide_no_nan(first, total)
    variance = tf.math.divide_no_nan(second, total) - tf.square(mean)
    variance = tf.maximum(variance, 0.0)
    keys = tf.concat([keys[:, :, :-1], keys[:, :, -1:] - mean], axis=2)
    return keys * tf.math.rsqrt(variance + _EPSILON)


_TASK_CODES = {
    "softmax": SoftmaxCodes,
    "nearest": NearestCodes,
    "follow": FollowingCodes,
}


def get_task_codes(identifier):
    """A new `TaskCodes` and first codes; either may be None."""
    if isinstance(identifier, str) and identifier in _TASK_CODES:
        return _TASK_CODES[identifier](), None
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, TaskCodes):
        return identifier.copy(), identifier.first_codes
    require(
        identifier is None
        or isinstance(identifier, (list, tuple))
        or hasattr(identifier, "__array__"),
        f"`codes` must be None, an array, one of {', '.join(_TASK_CODES)}, "
        "digits, hashed, or an instance such as "
        "`keras_compembed.learners.SoftmaxCodes()`.",
        codes=identifier,
    )
    return None, identifier
