"""Outputs, labels and answers of any leading shape as rows, and back."""

import tensorflow as tf

from keras_compembed.utils.validation import require

# Up to these, floats hold all integers.
_LARGEST_WHOLE = {
    tf.bfloat16: 2**8,
    tf.float16: 2**11,
    tf.float32: 2**24,
    tf.float64: 2**53,
}


def flat_features(tensor):
    """float32 rows `(rows, width)` of an output `(..., width)`."""
    width = tensor.shape[-1]
    return tf.cast(tf.reshape(tensor, (-1, width)), "float32")


def flat_labels(y_true, y_pred, num_classes, name, lists):
    """Labels `(rows,)`, or lists of them `(rows, labels)`, of an output."""
    require(
        not isinstance(y_true, tf.RaggedTensor),
        f"`{name}` must be given lists of labels that are padded by -1, as by "
        "`labels.to_tensor(-1)`.",
        labels="ragged",
    )
    labels = tf.convert_to_tensor(y_true)
    rank, wanted = labels.shape.rank, y_pred.shape.rank - 1
    number = 1
    if rank is None:
        number = None if lists else 1
    elif rank == wanted + 1:
        number = labels.shape[-1]
    fits = rank in (None, wanted, wanted + 1)
    fits &= number is None or number == 1 or 1 < number < num_classes
    leading = y_pred.shape[:-1]
    require(
        fits and labels.shape[:wanted].is_compatible_with(leading),
        f"`{name}` must be given one integer label for each example, of shape "
        f"{tuple(leading)}, or lists of fewer than {num_classes} "
        "(`num_classes`), with a last axis. Use `argmax` for one-hot labels.",
        shape=None if rank is None else tuple(labels.shape),
    )
    if rank is not None and number is not None:
        return tf.reshape(labels, (-1,) if number == 1 else (-1, number))
    rows = tf.reduce_prod(tf.shape(y_pred)[:-1])
    return _reshape_in_the_run(labels, rows, number, num_classes, name)


def _reshape_in_the_run(labels, rows, number, num_classes, name):
    """Labels of a shape that only the run knows, checked there."""
    shape, what = (rows,), "one label"
    if number is None:
        number = tf.maximum(tf.size(labels) // tf.maximum(rows, 1), 1)
        shape, what = (rows, number), "as many labels"
    checks = [
        tf.debugging.assert_equal(
            tf.size(labels),
            rows * number,
            f"`{name}` must be given {what} for each example.",
        ),
        tf.debugging.assert_less(
            number,
            num_classes,
            f"`{name}` must be given lists of fewer than {num_classes} labels "
            "(`num_classes`). Use `argmax` for one-hot labels.",
        ),
    ]
    with tf.control_dependencies(checks):
        return tf.reshape(labels, shape)


def check_dtype(dtype, num_classes, name):
    """Refuses labels that cannot tell all classes apart."""
    if dtype.is_integer or dtype.is_bool:
        return
    if not dtype.is_floating:
        raise ValueError(
            f"`{name}` must be given labels that are integers. "
            f"Received: labels of dtype {dtype.name}."
        )
    largest = _LARGEST_WHOLE[dtype]
    if num_classes - 1 > largest:
        raise ValueError(
            f"`{name}` must be given labels of a dtype that has all classes, "
            f"0 to {num_classes - 1}. Received: labels of dtype {dtype.name}, "
            f"which has whole numbers up to {largest}. Use integers."
        )


def unflat(rows, like, width=None):
    """Rows, perhaps of a known width, in the leading shape of an output."""
    leading = tf.shape(like)[:-1]
    width = tf.shape(rows)[1:] if width is None else [width]
    values = tf.reshape(rows, tf.concat([leading, width], axis=0))
    # Nothing is known of tensors of unknown rank.
    values.set_shape(like.shape[:-1].concatenate(rows.shape[1:]))
    return values
