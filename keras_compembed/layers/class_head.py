"""What layers that end a model over many classes have in common."""

import dataclasses
import weakref

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.layers.class_output import ClassOutput
from keras_compembed.layers.model_outputs import check_compiled
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_scores


@dataclasses.dataclass(frozen=True)
class Draw:
    """What a step considers.

    Attributes:
        losses: Tensor `(rows,)`.
        hit: Boolean tensor `(rows,)`, whether candidates hold the label.
        best: Boolean tensor `(rows,)`, whether the label is scored at least
            as high as all classes considered.
    """

    losses: tf.Tensor
    hit: tf.Tensor
    best: tf.Tensor


class ClassHead(keras.layers.Layer):
    """Base of layers that hold the parameters of a softmax over classes.

    Such a layer passes features through, in training, evaluation and
    prediction alike: scores of a million classes are not a tensor to be
    returned. Its output tensor is marked with the layer, by which
    `keras_compembed` losses and metrics find the parameters. Predictions
    are what `top_k` and `keras_compembed.top_k_model` return.

    Parameters and scores are float32, whatever the dtype policy: sums over
    very many classes, and rows that are moved seldom and little, need it.

    Args:
        num_classes: Integer, at least 2.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.
    """

    def __init__(self, num_classes, **kwargs):
        num_classes = check_positive_int("num_classes", num_classes, 2)
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.supports_masking = True
        self.autocast = False
        self._called_by = None

    def add_weight(self, *args, **kwargs):
        kwargs.setdefault("dtype", "float32")
        return super().add_weight(*args, **kwargs)

    def call(self, inputs, context=None, training=False):
        caller = self._get_call_context().entry_layer
        if isinstance(caller, keras.Model):
            self._called_by = weakref.ref(caller)
        outputs = tf.identity(inputs)
        return ClassOutput(self, context, training).mark(outputs)

    def _get_own_losses(self):
        # What Keras asks for in `fit` and `evaluate`, and not in `predict`.
        model = self._called_by and self._called_by()
        if model is not None and model.compiled:
            check_compiled(model, self)
        return super()._get_own_losses()

    def compute_output_shape(self, input_shape):
        return input_shape

    def exact(self, features, labels):
        """Losses and ranks of labels by the scores of all classes.

        For a part of the examples, and a part of the classes, at a time, so
        that memory grows with neither but by a few numbers an example.

        Args:
            features: float32 tensor `(rows, width)`.
            labels: int32 tensor `(rows,)`.

        Returns:
            Tensors `(rows,)`: cross-entropies, and the number of classes that
            are scored above the label, or equal with a smaller id.
        """
        raise NotImplementedError

    def choices(self, features, labels):
        """Cross-entropies, and whether labels are the best of what is scored.

        Args:
            features: float32 tensor `(rows, width)`.
            labels: int32 tensor `(rows,)`.

        Returns:
            Tensors `(rows,)`: floats, with gradients for all classes, and
            booleans.
        """
        raise NotImplementedError

    def top_k(self, features, k=5):
        """The most probable classes, and their probabilities.

        Args:
            features: Float tensor `(..., width)`, what the layer is given.
            k: Integer. Defaults to `5`.

        Returns:
            Tensors `(..., k)`: int32 ids, best first, and float32
            probabilities.
        """
        raise NotImplementedError

    def draw(self, examples):
        """What a step considers: all classes, in layers that do not sample.

        Args:
            examples: `ClassExamples`.

        Returns:
            A `Draw`.
        """
        return self.draw_all(examples)

    def draw_all(self, examples):
        """All classes as candidates, as of `draw`."""
        losses, best = self.choices(examples.features, examples.labels)
        return Draw(losses, tf.ones_like(best), best)

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes}


def check_class_counts(class_counts, num_classes):
    """Returns positive counts, one a class, or None.

    Raises:
        ValueError: if they are not finite numbers of at least 0, or not one a
            class.
    """
    if class_counts is None:
        return None
    class_counts = check_scores("class_counts", class_counts)
    if len(class_counts) != num_classes:
        raise ValueError(
            "`class_counts` must have one entry for each class, "
            f"num_classes={num_classes}. Received: {len(class_counts)} of them."
        )
    # What was never counted may still come.
    return np.maximum(class_counts, 0.5)
