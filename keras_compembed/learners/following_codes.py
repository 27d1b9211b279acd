"""Codes that follow vectors which a task trains."""

import warnings

import keras
import tensorflow as tf

from keras_compembed.learners.refinement import nearest_composed
from keras_compembed.learners.task_codes import TaskCodes
from keras_compembed.optimizers.read_rows import read_rows
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class FollowingCodes(TaskCodes):
    """Lets codes follow the task: `codes="follow"`.

    `codes` are those to begin with, an integer array `(input_dim,
    num_codebooks)`; without, they are random.
    """

    starts_from_codes = True

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
        self._begin_training()
        vectors = self.rows.compose(self.subcodes(ids))
        latents = read_rows(self.latents, ids, once=True)
        return vectors + (latents - tf.stop_gradient(latents)), []

    def _begin_training(self):
        self._is_trained = True
        if self.recode_every is not None and not self.is_recoded:
            warnings.warn(
                f"`recode_every`={self.recode_every} is for the callback "
                "`RecodeEmbeddings`: without it, codes stay as they are. Pass "
                "`callbacks=[keras_compembed.compression.RecodeEmbeddings()]` "
                "to `fit`, or call `recode` of the layer now and then.",
                stacklevel=3,
            )

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

    def get_config(self):
        return {**super().get_config(), "recode_every": self.recode_every}
