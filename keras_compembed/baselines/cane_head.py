"""The layer that losses of this folder score classes by."""

from keras_compembed.layers.cane_softmax import CANESoftmax


def check_cane_softmax(head, loss):
    """Returns the layer of a loss, or raises if it is no `CANESoftmax`."""
    if not isinstance(head, CANESoftmax):
        raise ValueError(
            f"`{type(loss).__name__}` must be given the output of a "
            "`keras_compembed.CANESoftmax`, which it takes vectors and noise "
            f"of classes from. Received: the output of the "
            f"{type(head).__name__} {head.name!r}."
        )
    return head
