"""Codes learned by `fit`, along with the task."""

import warnings

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import code_dtype
from keras_compembed.learners.refinement import nearest_composed
from keras_compembed.optimizers.device_rows import read_rows
from keras_compembed.optimizers.device_rows import share_of_device
from keras_compembed.optimizers.device_rows import sum_over_devices
from keras_compembed.utils.chunks import of_all_ids
from keras_compembed.utils.row_ops import repeat_rows
from keras_compembed.utils.saving import Settings
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require

_CHUNK_ELEMENTS = 1 << 22


class TaskCodes(Settings):
    """Base class of the ways to learn codes along with a task."""

    # Whether learning starts from codes, and those given, if any.
    starts_from_codes = False
    first_codes = None
    _settings = ("teacher_weight",)

    def __init__(self, teacher=None, teacher_weight=1.0):
        self.teacher_weight = check_positive_number(
            "teacher_weight", teacher_weight
        )
        self._table_shape = None
        self.teacher = teacher
        self.rows = None
        self.weights = []

    @property
    def teacher(self):
        """The table that vectors are drawn to, or None. May be set."""
        return None if self._teacher is None else self._teacher.numpy()

    @teacher.setter
    def teacher(self, table):
        if table is not None:
            table = tf.constant(check_table(table, "teacher"), "float32")
        _check_teacher(table, self._table_shape)
        self._teacher = table

    def check_teacher(self, input_dim, output_dim):
        """Raises if there is a teacher, and it is not of a table's shape."""
        _check_teacher(self._teacher, (input_dim, output_dim))

    def set_shape(self, input_dim, composition):
        """Says whose codes are learned, and raises if they cannot be."""
        self._table_shape = input_dim, composition.output_dim
        self.check_teacher(*self._table_shape)

    def build(self, add_weight, rows):
        """Makes what only learning needs of the rows, a store of codes."""
        self._add_weight = add_weight
        self.rows = rows
        # Files of the layer have it.
        self.add_weight("codes_are_fixed", (), dtype="uint8", trainable=False)

    def add_weight(self, name, shape, **kwargs):
        """Makes a weight that goes when codes are fixed."""
        weight = self._add_weight(
            name=name, shape=shape, **{"initializer": "zeros", **kwargs}
        )
        self.weights.append(weight)
        return weight

    def step(self, ids, mask=None):
        """Vectors `(ids, output_dim)` in a training step, and losses."""
        dtype = exact_dtype(self.rows)
        counts = tf.ones_like(ids, dtype)
        if mask is not None:
            counts = tf.cast(mask, dtype)
        # Each id once, so that its gradients are one: optimizers of Keras
        # take those of repeated rows apart.
        different, places = tf.unique(ids)
        counts = tf.math.unsorted_segment_sum(
            counts, places, tf.size(different)
        )
        vectors, losses = self.learn(different, counts)
        if self._teacher is not None:
            rows = tf.cast(tf.gather(self._teacher, different), dtype)
            distances = tf.square(tf.cast(vectors, dtype) - rows)
            distances = tf.reduce_mean(distances, axis=1)
            losses = [*losses, self.teacher_weight * distances]
        losses = [mean_over_ids(loss, counts) for loss in losses]
        return repeat_rows(vectors, places), losses

    def learn(self, ids, counts):
        """Vectors of different ids, and losses of each id."""
        raise NotImplementedError

    def subcodes(self, ids):
        """Subcodes, int32 `(ids, num_codebooks)`, outside training."""
        raise NotImplementedError

    def all_subcodes(self):
        """Subcodes, int32 `(rows, num_codebooks)`, outside training."""
        composition = self.rows.composition
        size = composition.num_codebooks * composition.codebook_size
        size = max(1, _CHUNK_ELEMENTS // size)
        return of_all_ids(self.subcodes, self.rows.input_dim, size)

    def restart(self, vectors):
        """Called when the vectors of all ids have changed, not their codes."""

    @property
    def codes(self):
        """Codes of all ids, an unsigned array `(input_dim, num_codebooks)`."""
        dtype = code_dtype(self.rows.composition.codebook_size)
        return np.asarray(self.all_subcodes()).astype(dtype)

    def without_teacher(self):
        """Another one of the same settings."""
        return self.from_config(self.get_config())

    def copy(self):
        """Another one of the same settings, teacher and first codes."""
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


def exact_dtype(rows):
    """Dtype of what is summed over ids, which half precision does not hold."""
    return keras.backend.result_type(rows.codebooks.dtype, "float32")


def mean_over_ids(values, counts):
    """Mean of `values`, `(ids,)`, in which each id counts so often."""
    total = sum_over_devices(tf.reduce_sum(counts))
    return tf.math.divide_no_nan(
        tf.reduce_sum(counts * values), share_of_device(total)
    )


@keras.saving.register_keras_serializable(package="keras_compembed")
class FollowingCodes(TaskCodes):
    """Lets codes follow the task: `codes="follow"`.

    `codes` are those to begin with, an integer array `(input_dim,
    num_codebooks)`; without, they are random.
    """

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
        self.latents = self.add_weight(
            "latents",
            (rows.input_dim, rows.output_dim),
            initializer=lambda shape, dtype: tf.cast(
                rows.decode(rows.stored_codes()), dtype
            ),
        )

    def subcodes(self, ids):
        return self.rows.subcodes(ids)

    def learn(self, ids, counts):
        self._is_trained = True
        if self.recode_every is not None and not self.is_recoded:
            warnings.warn(
                f"`recode_every`={self.recode_every} is for the callback "
                "`RecodeEmbeddings`: without it, codes stay as they are. Pass "
                "`callbacks=[keras_compembed.compression.RecodeEmbeddings()]` "
                "to `fit`, or call `recode` of the layer now and then.",
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
                "Codes followed nothing: the layer was trained with "
                "codes='follow', and neither the callback "
                "`RecodeEmbeddings` nor `recode` was called before "
                "`kc.strip`. Ids keep the codes that they had before.",
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
