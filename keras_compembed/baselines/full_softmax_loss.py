"""The softmax over all classes as a loss."""

import keras

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
        evaluation: Same as for `keras_compembed.CANELoss`. Both give the same
            but for rounding; `"sampled"` holds the scores of a whole batch.
        ignore_class: Same as for `keras_compembed.CANELoss`.
        name: Optional string.
        reduction: Same as for `keras.losses.Loss`.

    Call arguments:
        y_true: Same as for `keras_compembed.CANELoss`.
        y_pred: Same as for `keras_compembed.CANELoss`.
        sample_weight: Same as for `keras_compembed.CANELoss`.

    Raises:
        ValueError: Same as for `keras_compembed.CANELoss`.
    """

    def training_losses(self, examples):
        draw = examples.head.draw_all(examples)
        if examples.training:
            examples.keep(draw)
        return draw.losses
