"""What losses and metrics have to know of the output of a layer of classes."""

import tensorflow as tf

_NAME = "_keras_compembed_classes"
# Up to these, floats hold all integers.
_LARGEST_WHOLE = {
    tf.bfloat16: 2**8,
    tf.float16: 2**11,
    tf.float32: 2**24,
    tf.float64: 2**53,
}


class ClassOutput:
    """The layer behind an output tensor, and how it was called.

    Args:
        head: A `ClassHead`.
        context: Optional integer tensor, as of the layer's call.
        training: Boolean.
    """

    def __init__(self, head, context, training):
        self.head = head
        self.context = context
        self.training = training
        self._examples = {}

    def mark(self, tensor):
        """Attaches this to a tensor, as Keras does masks."""
        setattr(tensor, _NAME, self)
        # What cross-entropies of Keras take in place of the tensor.
        tensor._keras_logits = _NoLogits(self.head)
        return tensor

    def examples(self, y_true, y_pred, name):
        """`ClassExamples` of an output and its labels.

        Losses and metrics, which Keras calls with the same tensors, get the
        same object.

        Args:
            y_true: Integer labels.
            y_pred: The tensor that was marked.
            name: String, who asks, for messages.

        Raises:
            ValueError: if the labels are not one integer for each example.
        """
        if id(y_true) not in self._examples:
            # The labels are kept: ids of objects may come again.
            examples = ClassExamples(self, y_true, y_pred, name)
            self._examples[id(y_true)] = y_true, examples
        return self._examples[id(y_true)][1]


class _NoLogits:
    """Refuses to be anything."""

    def __init__(self, head):
        self.__dict__["head"] = head

    def __getattr__(self, name):
        head = self.__dict__["head"]
        raise ValueError(
            f"The output of the {type(head).__name__} {head.name!r} is "
            "features, not scores of classes, so that the cross-entropies of "
            "Keras would be wrong. Use `keras_compembed.CANELoss()`, or a loss "
            "of `keras_compembed.baselines`."
        )


class ClassExamples:
    """Examples that a loss or metric is about.

    Attributes:
        head: The `ClassHead`.
        training: Boolean.
        context: Optional int32 tensor `(rows,)`.
        features: float32 tensor `(rows, width)`.
        labels: int32 tensor `(rows,)`, with 0 for labels out of range.
        received: int64 tensor `(rows,)`, labels as they came.
        in_range: Boolean tensor `(rows,)`, false also of labels that are not
            whole numbers.
        not_whole: Labels `(rows,)` as they came if they are floats, 0 where
            they are whole numbers; otherwise None.
    """

    def __init__(self, output, y_true, y_pred, name):
        self.head = output.head
        self.training = output.training
        self.context = output.context
        if self.context is not None:
            context = tf.cast(tf.convert_to_tensor(self.context), "int32")
            self.context = tf.reshape(context, (-1,))
        self.features = flat_features(y_pred)
        labels = flat_labels(y_true, y_pred, name)
        check_dtype(labels.dtype, self.head.num_classes, name)
        self.received = tf.cast(labels, "int64")
        self.in_range = (self.received >= 0) & (
            self.received < self.head.num_classes
        )
        self.not_whole = None
        if labels.dtype.is_floating:
            whole = tf.equal(tf.cast(self.received, labels.dtype), labels)
            self.in_range &= whole
            self.not_whole = tf.where(whole, tf.zeros_like(labels), labels)
        labels = tf.where(self.in_range, self.received, 0)
        self.labels = tf.cast(labels, "int32")
        # Not `functools.cached_property`, which up to Python 3.11 has a lock
        # for all objects: devices that wait for each other would stand still.
        self._exact = None
        self._draw = None

    @property
    def exact(self):
        """Losses and ranks by the scores of all classes."""
        if self._exact is None:
            self._exact = self.head.exact(self.features, self.labels)
        return self._exact

    @property
    def draw(self):
        """The candidates and noises drawn for these examples."""
        if self._draw is None:
            self._draw = self.head.draw(self)
        return self._draw

    @draw.setter
    def draw(self, draw):
        # By losses that draw in a way of their own.
        self._draw = draw


def read_examples(y_true, y_pred, name):
    """The `ClassExamples` of an output and its labels.

    Args:
        y_true: Integer labels.
        y_pred: The output of a model.
        name: String, who asks, for messages.

    Returns:
        `ClassExamples`, or None where Keras only asks for shapes.

    Raises:
        ValueError: if the output does not come from a layer of classes, or
            the labels are not one integer for each example.
    """
    if getattr(y_pred, _NAME, None) is None and _in_scratch_graph():
        return None
    return read_output(y_pred, name).examples(y_true, y_pred, name)


def read_output(tensor, name):
    """The `ClassOutput` that a tensor is marked with.

    Args:
        tensor: The output of a layer.
        name: String, who asks, for messages.

    Raises:
        ValueError: if there is none.
    """
    output = getattr(tensor, _NAME, None)
    if output is None:
        raise ValueError(
            f"`{name}` must be given the output of a layer such as "
            "`keras_compembed.CANESoftmax`, unchanged: let it be the last "
            "layer of the model, without a wrapper such as `TimeDistributed` "
            "(it takes features `(batch, time, width)` itself) and without a "
            "cast. Received: a tensor of shape "
            f"{tuple(tensor.shape)} that does not come from one."
        )
    return output


def _in_scratch_graph():
    # Where Keras runs functions to find out shapes, tensors lose marks.
    if tf.executing_eagerly():
        return False
    graph = tf.compat.v1.get_default_graph()
    return getattr(graph, "name", "").startswith("scratch_graph")


def flat_features(tensor):
    """float32 rows `(rows, width)` of an output `(..., width)`."""
    width = tensor.shape[-1]
    return tf.cast(tf.reshape(tensor, (-1, width)), "float32")


def flat_labels(y_true, y_pred, name):
    """Labels `(rows,)` of the examples of an output."""
    labels = tf.convert_to_tensor(y_true)
    rank, wanted = labels.shape.rank, y_pred.shape.rank - 1
    if rank == wanted + 1:
        fits = labels.shape[-1] == 1
    else:
        # Keras may not know the rank, after batches of different ranks.
        fits = rank in (None, wanted)
    if not fits:
        raise ValueError(
            f"`{name}` must be given one integer label for each example, of "
            f"shape {tuple(y_pred.shape[:-1])}. Received: labels of shape "
            f"{tuple(labels.shape)}. Use `argmax` for one-hot labels."
        )
    return tf.reshape(labels, (-1,))


def check_dtype(dtype, num_classes, name):
    """Refuses labels that cannot tell all classes apart.

    Whole numbers as floats are what pipelines of Keras often make of labels.

    Raises:
        ValueError: if the labels are not numbers, or of a float dtype that
            does not have all integers below `num_classes`.
    """
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


def unflat(values, y_pred):
    """Values `(rows,)` in the leading shape of an output."""
    values = tf.reshape(values, tf.shape(y_pred)[:-1])
    values.set_shape(y_pred.shape[:-1])
    return values
