"""The softmax over all classes as a loss."""

import keras
import tensorflow as tf

from keras_compembed.baselines.probability_head import ProbabilityHead
from keras_compembed.losses.class_loss import ClassLoss


@keras.saving.register_keras_serializable(package="keras_compembed")
class FullSoftmaxLoss(ClassLoss):
    """Trains a layer of classes on the scores of all classes.

    The cross-entropy itself, and what other losses estimate: a step costs as
    much as there are classes. It is also what trains a `HierarchicalSoftmax`
    or an `AdaptiveSoftmax`, whose cross-entropy costs less.

    Example:

    >>> model = keras.Sequential([keras.Input((8,)), kc.CANESoftmax(1000)])
    >>> model.compile("adam", loss=kc.baselines.FullSoftmaxLoss())

    Args:
        evaluation: As of `keras_compembed.CANELoss`; there is no difference
            but in rounding.
        ignore_class: As of `keras_compembed.CANELoss`.
        name: Optional string.
        reduction: As of `keras.losses.Loss`.

    Call arguments:
        As of `keras_compembed.CANELoss`.

    Raises:
        ValueError: As `keras_compembed.CANELoss`.
    """

    def training_losses(self, examples):
        head = examples.head
        if isinstance(head, ProbabilityHead):
            draw = head.draw(examples)
        else:
            losses = head.full_losses(examples.features, examples.labels)
            draw = FullDraw(losses, examples)
        if examples.training:
            examples.draw = draw
        return draw.losses


class FullDraw:
    """All classes as candidates, for metrics of training.

    Attributes:
        losses, hit, best: As of what a layer draws.
    """

    def __init__(self, losses, examples):
        self.losses = losses
        self.hit = tf.ones_like(examples.labels, "bool")
        self._examples = examples

    @property
    def best(self):
        # Costs what the loss costs, where a metric asks for it.
        _, ranks = self._examples.exact
        return tf.equal(ranks, 0)
