"""Candidates vs. Noises Estimation as a Keras loss."""

import keras

from keras_compembed.losses.class_loss import ClassLoss


@keras.saving.register_keras_serializable(package="keras_compembed")
class CANELoss(ClassLoss):
    """Trains a `keras_compembed.CANESoftmax` on candidates and noises.

    The loss of an example is that of its label among a few candidates and a
    few noises, drawn from the other classes (Algorithm 1), as the layer chooses
    them. Its minimum is that of the softmax over all classes, but a step costs
    the same however many classes there are.

    An example may have several labels: a list, padded by -1, in which a label
    that comes twice counts once. Its loss is the mean of the losses of its
    labels, the cross-entropy of labels that are equally probable. `evaluate`
    computes it for all labels; a step of training draws one label of each
    list, which leaves the expectation of loss and gradients as it is.

    A label out of range stops training with an error, or, where XLA compiles
    the step, makes the loss NaN. Labels may be floats that are whole numbers.

    Example:

    >>> model = keras.Sequential([keras.Input((8,)), kc.CANESoftmax(1000)])
    >>> model.compile("adam", loss=CANELoss())
    >>> x = np.random.normal(size=(100, 8))
    >>> _ = model.fit(x, np.arange(100), verbose=0)

    Args:
        evaluation: `"exact"` or `"sampled"`. Whether `evaluate`, and the
            validation of `fit`, report the cross-entropy over all classes,
            computed in chunks, or what training reports, by noises that are
            the same each time. Defaults to `"exact"`.
        ignore_class: Optional integer. Label of examples that do not count.
            Defaults to `None`.
        name: Optional string.
        reduction: Same as for `keras.losses.Loss`. Defaults to
            `"sum_over_batch_size"`.

    Call arguments:
        y_true: Integer labels, of the shape of the output without its last
            axis; a last axis may follow, of one label or, padded by -1, of
            several, fewer than there are classes.
        y_pred: The output of a model that ends in a `CANESoftmax`.
        sample_weight: Optional weights of examples.

    Raises:
        ValueError: if `y_pred` does not come from a layer of classes, or
            labels are not of its leading shape.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), equations 2 to
          8 and Algorithm 1
    """
