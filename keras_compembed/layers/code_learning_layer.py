"""What a layer does to learn its codes while a task is trained."""

import warnings

import keras
import tensorflow as tf

from keras_compembed.layers.learned_codes import FollowedCodes
from keras_compembed.layers.learned_codes import QueriedCodes
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.learners.composition_refinement import nearest_composed
from keras_compembed.learners.key_scores import mean_over_ids
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_table

_LEARNING = {
    "softmax": QueriedCodes,
    "nearest": QueriedCodes,
    "follow": FollowedCodes,
}


class CodeLearningLayer(LookupLayer):
    """Base of `CodeEmbedding`, where the arguments are described."""

    def _set_learning(
        self,
        learn_codes,
        temperature,
        commitment,
        teacher,
        teacher_weight,
        recode_every,
    ):
        if learn_codes == "follow" and not self.composition.is_linear:
            kind = type(self.composition.unscaled()).__name__
            raise ValueError(
                "`composition` must be linear in the codewords with "
                "learn_codes='follow', so that the code nearest a vector can "
                f"be found. Received: {kind}."
            )
        self.learn_codes = learn_codes
        self.temperature = temperature
        self.commitment = commitment
        self.teacher = teacher
        self.teacher_weight = teacher_weight
        self.recode_every = recode_every
        # Whether something calls `recode`, such as `RecodeEmbeddings`.
        self.is_recoded = False
        self._learned = learn_codes and _LEARNING[learn_codes](self)

    def _learn(self, ids):
        """`embed` in a training step, in which codes are learned."""
        self._learned.check_not_fixed()
        if self.recode_every is not None and not self.is_recoded:
            warnings.warn(
                f"The layer {self.name!r} has recode_every="
                f"{self.recode_every}, which is for the callback "
                "`RecodeEmbeddings`: without it, codes stay as they are. Pass "
                "`callbacks=[keras_compembed.compression.RecodeEmbeddings()]` "
                "to `fit`, or call `recode` of the layer now and then.",
                stacklevel=2,
            )
        dtype = self._learned.dtype
        counts = tf.ones_like(ids, dtype)
        if self.mask_zero:
            counts = tf.cast(tf.not_equal(ids, 0), dtype)
        # Each id once, so that its gradients are one: optimizers of Keras
        # take those of repeated rows apart.
        different, places = tf.unique(ids)
        counts = tf.math.unsorted_segment_sum(
            counts, places, tf.size(different)
        )
        vectors = self._learned.embed(different, counts)
        if self._teacher is not None:
            rows = tf.cast(tf.gather(self._teacher, different), dtype)
            apart = tf.cast(vectors, dtype) - rows
            distances = tf.reduce_mean(tf.square(apart), axis=1)
            self.add_loss_of_ids(self.teacher_weight * distances, counts)
        return tf.gather(vectors, places)

    def add_loss_of_ids(self, values, counts):
        """Adds the mean of `values`, `(ids,)`, in which each counts so often.

        Args:
            values: Float tensor `(ids,)`.
            counts: Float tensor `(ids,)`.
        """
        self.add_replica_loss(mean_over_ids(values, counts))

    @property
    def teacher(self):
        """The table that vectors are drawn to while codes are learned."""
        return None if self._teacher is None else self._teacher.numpy()

    @teacher.setter
    def teacher(self, table):
        if table is not None:
            table = check_table(table, "teacher", width=self.output_dim)
            if len(table) != self.input_dim or self.learn_codes is None:
                raise ValueError(
                    "`teacher` must have `input_dim` rows, and is for a layer "
                    "with `learn_codes`. Received: a table of shape "
                    f"{table.shape}, input_dim={self.input_dim}, "
                    f"learn_codes={self.learn_codes!r}."
                )
            table = tf.constant(table, "float32")
        self._teacher = table

    def freeze_codes(self):
        """Fixes the codes learned; what only learning needs is let go.

        The layer then gives each id the vector that it gave outside training
        before. Optimizers forget what they kept for the weights that go, and
        models that hold the layer can be saved, exported and trained further
        as they are. Functions of your own, wrapped in `tf.function` before,
        must be wrapped again.

        Raises:
            ValueError: if the codes are fixed already.
        """
        if self._learned is None:
            raise ValueError(
                "`freeze_codes` must be called once, on a layer that learns "
                f"codes. Received: the layer {self.name!r}, whose codes are "
                "fixed."
            )
        self._require_built("freeze_codes")
        self._store(self.codes)
        self._learned.drop()
        self._learned = self.learn_codes = self.recode_every = None
        self._teacher = None

    def recode(self):
        """Gives each id the code nearest its latent vector.

        With `learn_codes="follow"`, each id has a latent vector: at first the
        id's own vector, or, after `from_table`, the table's row. Training
        adds to it the task's gradients with respect to the id's vector, and
        to codebooks as ever.

        Returns:
            Integer, the ids whose codes changed.

        Raises:
            ValueError: if the layer has another `learn_codes`.
        """
        if self.learn_codes != "follow":
            raise ValueError(
                "`recode` must be called on a layer with learn_codes='follow'."
                f" Received: the layer {self.name!r} with "
                f"learn_codes={self.learn_codes!r}."
            )
        self._require_built("recode")
        self.is_recoded = True
        old = self.stored_codes
        new = nearest_composed(
            keras.ops.convert_to_numpy(self.latents).astype("float32"),
            self.composition,
            keras.ops.convert_to_numpy(self.codebooks).astype("float32"),
            old,
        )
        self._store(new)
        return int((old != new).any(axis=1).sum())

    def _get_learning(self):
        return {
            name: getattr(self, name)
            for name in (
                "learn_codes",
                "temperature",
                "commitment",
                "teacher_weight",
                "recode_every",
            )
        }


def check_learning(
    learn_codes, temperature, commitment, teacher_weight, recode_every
):
    """Raises if an argument of learning is out of range."""
    check_choice("learn_codes", learn_codes, (None, *_LEARNING))
    check_positive_number("temperature", temperature)
    check_positive_number("commitment", commitment, zero=True)
    check_positive_number("teacher_weight", teacher_weight)
    if recode_every is None:
        return
    check_positive_int("recode_every", recode_every)
    if learn_codes != "follow":
        raise ValueError(
            "`recode_every` must be None unless learn_codes='follow'. "
            f"Received: recode_every={recode_every}, {learn_codes=}."
        )
