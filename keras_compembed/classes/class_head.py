"""Base of layers over many classes, and the mark on their outputs."""

import warnings
import weakref

import keras
import tensorflow as tf

from keras_compembed.classes.class_scores import read_excluded
from keras_compembed.classes.noise import random_bits
from keras_compembed.classes.sampling import Draw
from keras_compembed.optimizers.device_rows import sum_over_devices
from keras_compembed.utils.model_parts import is_open
from keras_compembed.utils.model_parts import layer_of
from keras_compembed.utils.saving import WholeLoad
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

_NAME = "_keras_compembed_classes"


class ClassHead(WholeLoad, keras.layers.Layer):
    """Base of layers that hold the parameters of a softmax over classes."""

    # Subclasses have `exact`, `choices`, `row_probabilities` and `top_k`.

    def __init__(self, num_classes: int, **kwargs: object):
        num_classes = check_positive_int("num_classes", num_classes, 2)
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.supports_masking = True
        self.autocast = False
        self._called_by = None
        self._has_warned = False
        self.seed_generator = None

    def add_weight(self, *args, **kwargs):
        kwargs.setdefault("dtype", "float32")
        return super().add_weight(*args, **kwargs)

    def call(self, inputs, context=None, training=False):
        caller = self._get_call_context().entry_layer
        if isinstance(caller, keras.Model):
            self._called_by = weakref.ref(caller)
            if not training:
                self._warn_of_features(caller)
        outputs = tf.identity(inputs)
        return ClassOutput(self, context, training).mark(outputs)

    def _warn_of_features(self, model):
        """Warns in `predict` if this is the last layer of the model."""
        # Only `predict` makes `predict_function`, before the first call of
        # the model. Calls after that one are not checked.
        is_predict = getattr(model, "predict_function", None) is not None
        if self._has_warned or not is_predict or not is_open(model):
            return
        if any(layer_of(output) is self for output in model.outputs):
            self._has_warned = True
            warnings.warn(
                f"`predict` returns the features of the {type(self).__name__} "
                f"{self.name!r}, not classes. For classes, predict with "
                "`keras_compembed.top_k_model(model, k)`.",
                stacklevel=2,
            )

    def _get_own_losses(self):
        # Keras calls this in `fit` and `evaluate`, but not in `predict`.
        model = self._called_by and self._called_by()
        if model is not None and model.compiled:
            check_compiled(model, self)
        return super()._get_own_losses()

    def compute_output_shape(self, input_shape):
        return input_shape

    def probabilities(self, features: tf.Tensor) -> tf.Tensor:
        """Probabilities `(..., num_classes)`. Scores all classes at once."""
        features = tf.convert_to_tensor(features)
        if not self.built:
            self.build(features.shape)
        return unflat(self.row_probabilities(flat_features(features)), features)

    def draw(self, examples: "ClassExamples") -> Draw:
        """The `Draw` of a training step: here, all classes."""
        losses, best = self.choices(examples.features, examples.labels)
        return Draw(losses, tf.ones_like(best), best)

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes}


class ClassOutput:
    """The layer behind an output tensor, and how it was called."""

    def __init__(self, head, context, training):
        self.head = head
        self.context = context
        self.training = training
        self._examples = {}

    def mark(self, tensor):
        """Attaches this to a tensor, as Keras does masks."""
        setattr(tensor, _NAME, self)
        # Keras cross-entropies read this attribute in place of the tensor.
        tensor._keras_logits = _NoLogits(self.head)
        return tensor

    def examples(self, y_true, y_pred, name):
        """`ClassExamples` of an output and its labels."""
        if id(y_true) not in self._examples:
            # Keep the labels alive, as Python reuses ids of deleted objects.
            examples = ClassExamples(self, y_true, y_pred, name)
            self._examples[id(y_true)] = y_true, examples
        return self._examples[id(y_true)][1]


class _NoLogits:
    """Raises an error where Keras reads scores of classes."""

    def __init__(self, head):
        self.__dict__["head"] = head

    def __getattr__(self, name):
        head = self.__dict__["head"]
        raise ValueError(
            f"The output of the {type(head).__name__} {head.name!r} is "
            "features, not scores of classes, so Keras cross-entropies "
            "would be wrong. Use `keras_compembed.CANELoss()` or another "
            "loss of `keras_compembed`."
        )


class ClassExamples:
    """Features, labels and mask of the examples of a loss or metric."""

    def __init__(self, output, y_true, y_pred, name):
        self.head = output.head
        self.training = output.training
        self.context = output.context
        if self.context is not None:
            context = tf.cast(tf.convert_to_tensor(self.context), "int32")
            self.context = tf.reshape(context, (-1,))
        self.features = flat_features(y_pred)
        num_classes = self.head.num_classes
        lists = self.head.seed_generator is not None
        labels = flat_labels(y_true, y_pred, num_classes, name, lists)
        check_dtype(labels.dtype, num_classes, name)
        self.received = tf.cast(labels, "int64")
        self.in_range = (self.received >= 0) & (self.received < num_classes)
        self.not_whole = None
        if labels.dtype.is_floating:
            whole = tf.equal(tf.cast(self.received, labels.dtype), labels)
            self.in_range &= whole
            self.not_whole = tf.where(whole, tf.zeros_like(labels), labels)
        self.mask = None
        self.lists = None
        self._seeds = 0
        if labels.shape.rank == 2:
            self._read_lists(name)
        else:
            labels = tf.where(self.in_range, self.received, 0)
            self.labels = tf.cast(labels, "int32")
        mask = getattr(y_pred, "_keras_mask", None)
        if mask is not None:
            # Masked examples take a label of the batch. A zero gradient for
            # any other row would let momentum move it.
            counted = tf.reshape(mask, (-1,))
            other = tf.reduce_max(tf.where(counted, self.labels, 0))
            self.labels = tf.where(counted, self.labels, other)
        # `functools.cached_property` up to Python 3.11 has one lock for all
        # objects. Devices that wait for each other would deadlock.
        self._exact = None
        self._draw = None

    def counted(self, ignore_class):
        """Boolean for each example: whether it counts."""
        counted = tf.not_equal(self.received, ignore_class)
        if self.lists is None:
            return counted
        others = tf.reduce_any(counted & (self.received != -1), axis=1)
        return others | tf.reduce_all(counted, axis=1)

    def exact(self):
        """Losses and ranks of labels among all classes."""
        losses, ranks = self._exact_of_all()
        if self.lists is None:
            return losses, ranks
        exists = self.lists >= 0
        number = tf.reduce_sum(tf.cast(exists, losses.dtype), axis=1)
        total = tf.reduce_sum(tf.where(exists, losses, 0.0), axis=1)
        best = tf.reduce_min(self.label_ranks(), axis=1)
        return total / tf.maximum(number, 1.0), best

    def label_lists(self):
        """Labels as lists, int32 `(rows, labels)`, padded by -1."""
        if self.lists is not None:
            return self.lists
        return tf.where(self.in_range, self.labels, -1)[:, None]

    def label_ranks(self, exclude=None):
        """Ranks of labels among all classes, or all except `exclude`."""
        _, ranks = self._exact_of_all()
        if self.lists is None:
            ranks = ranks[:, None]
        exists = self.label_lists() >= 0
        if exclude is not None:
            is_out, above = self._compare_with(exclude)
            exists &= ~is_out
            # Scores of few classes may round differently.
            ranks = tf.maximum(tf.cast(ranks, "int32") - above, 0)
        return tf.where(exists, ranks, tf.int32.max)

    def _compare_with(self, exclude):
        """Whether labels are excluded; excluded classes with better scores."""
        labels = tf.maximum(self.label_lists(), 0)
        exclude = read_excluded(exclude)
        require(
            exclude.shape.rank == 2
            and exclude.shape[1] is not None
            and exclude.shape[:1].is_compatible_with(labels.shape[:1]),
            "`exclude` must have a list of classes for each example, padded "
            "by -1.",
            shape=exclude.shape.as_list(),
            examples=labels.shape[0],
        )
        # Ignore ids that are not classes, as `top_k` does.
        exclude = tf.where(exclude < self.head.num_classes, exclude, -1)
        # Count duplicates once.
        exclude = tf.sort(exclude, axis=1)
        is_new = tf.pad(
            tf.not_equal(exclude[:, 1:], exclude[:, :-1]),
            ((0, 0), (1, 0)),
            constant_values=True,
        )
        own, others = self.head.scores.own(
            self.features, labels, tf.maximum(exclude, 0)
        )
        own, others = own[:, :, None], others[:, None]
        labels, exclude = labels[:, :, None], exclude[:, None]
        above = (others > own) | (tf.equal(others, own) & (exclude < labels))
        above &= is_new[:, None] & (exclude >= 0)
        is_out = tf.reduce_any(tf.equal(exclude, labels), axis=2)
        return is_out, tf.reduce_sum(tf.cast(above, "int32"), axis=2)

    def _exact_of_all(self):
        """Same as `ClassHead.exact`, computed once."""
        if self._exact is None:
            labels = self.labels
            if self.lists is not None:
                labels = tf.maximum(self.lists, 0)
            self._exact = self.head.exact(self.features, labels)
        return self._exact

    def _read_lists(self, name):
        require(
            self.head.seed_generator is not None,
            f"`{name}` must be given one label for each example. Only "
            "`keras_compembed.CANESoftmax` supports lists of labels.",
            layer=self.head.name,
        )
        absent = tf.equal(self.received, -1)
        if self.not_whole is not None:
            absent &= tf.equal(self.not_whole, 0)
        same = tf.equal(self.received[:, :, None], self.received[:, None, :])
        earlier = tf.linalg.band_part(tf.cast(same, "int32"), -1, 0)
        first = tf.equal(tf.reduce_sum(earlier, axis=2), 1)
        exists = self.in_range & first
        self.in_range = tf.reduce_any(exists, axis=1) & tf.reduce_all(
            self.in_range | absent, axis=1
        )
        self.lists = tf.cast(tf.where(exists, self.received, -1), "int32")
        bits = random_bits(self.seed(), 1, tf.shape(exists)[0])
        places = tf.cumsum(tf.cast(exists, "int64"), axis=1)
        chosen = 1 + tf.math.floormod(bits, tf.maximum(places[:, -1:], 1))
        chosen = exists & tf.equal(places, chosen)
        self.labels = tf.reduce_sum(tf.where(chosen, self.lists, 0), axis=1)

    def seed(self):
        """Random seed of the next draw in this step, integers `(2,)`."""
        if self.training:
            return self.head.seed_generator.next()
        self._seeds += 1
        total = sum_over_devices(tf.reduce_sum(self.received))
        return tf.stack([tf.cast(self._seeds, total.dtype), total])

    def draw(self):
        """The `Draw` of this step, made once."""
        if self._draw is None:
            self._draw = self.head.draw(self)
        return self._draw

    def keep(self, draw):
        """Sets the result of `draw`, for losses that draw differently."""
        self._draw = draw


def read_examples(y_true, y_pred, name):
    """Returns the `ClassExamples` of an output and its labels."""
    if find_output(y_pred) is None and _in_scratch_graph():
        return None
    return read_output(y_pred, name).examples(y_true, y_pred, name)


def read_output(tensor, name):
    """Returns the `ClassOutput` that marks a tensor."""
    output = find_output(tensor)
    require(
        output is not None,
        f"`{name}` must be given the unchanged output of a layer such as "
        "`keras_compembed.CANESoftmax`, the last layer of the model. Remove "
        "casts and wrappers such as `TimeDistributed`: the layer itself "
        "accepts features `(batch, time, width)`.",
        shape=tensor.shape,
    )
    return output


def find_output(tensor):
    """Same as `read_output`, but returns None for other tensors."""
    return getattr(tensor, _NAME, None)


def _in_scratch_graph():
    # Tensors have no marks while Keras infers shapes.
    if tf.executing_eagerly():
        return False
    graph = tf.compat.v1.get_default_graph()
    return getattr(graph, "name", "").startswith("scratch_graph")


# The largest integers that a dtype holds exactly.
_LARGEST_WHOLE = {
    tf.bfloat16: 2**8,
    tf.float16: 2**11,
    tf.float32: 2**24,
    tf.float64: 2**53,
}


def flat_features(tensor):
    """Reshapes an output `(..., width)` to float32 `(rows, width)`."""
    width = tensor.shape[-1]
    return tf.cast(tf.reshape(tensor, (-1, width)), "float32")


def flat_labels(y_true, y_pred, num_classes, name, lists):
    """Reshapes labels to `(rows,)`, or lists to `(rows, labels)`."""
    require(
        not isinstance(y_true, tf.RaggedTensor),
        f"`{name}` must be given a dense tensor of labels, padded by -1. Use "
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
        f"{tuple(leading)}, or with a last axis of fewer than {num_classes} "
        "(`num_classes`) labels. Use `argmax` for one-hot labels.",
        shape=None if rank is None else tuple(labels.shape),
    )
    if rank is not None and number is not None:
        return tf.reshape(labels, (-1,) if number == 1 else (-1, number))
    rows = tf.reduce_prod(tf.shape(y_pred)[:-1])
    return _reshape_in_the_run(labels, rows, number, num_classes, name)


def _reshape_in_the_run(labels, rows, number, num_classes, name):
    """Reshapes labels of unknown rank, with checks at run time."""
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
    """Raises an error if a dtype cannot represent all classes."""
    if dtype.is_integer or dtype.is_bool:
        return
    if not dtype.is_floating:
        raise ValueError(
            f"`{name}` must be given integer labels. "
            f"Received: labels of dtype {dtype.name}."
        )
    largest = _LARGEST_WHOLE[dtype]
    if num_classes - 1 > largest:
        raise ValueError(
            f"`{name}` must be given labels with a dtype for all classes, 0 to "
            f"{num_classes - 1}, such as integers. Received: labels of dtype "
            f"{dtype.name}, which is exact up to {largest}."
        )


def unflat(rows, like, width=None):
    """Reshapes rows to the leading shape of `like`."""
    leading = tf.shape(like)[:-1]
    width = tf.shape(rows)[1:] if width is None else [width]
    values = tf.reshape(rows, tf.concat([leading, width], axis=0))
    # Tensors of unknown rank have no static shape.
    values.set_shape(like.shape[:-1].concatenate(rows.shape[1:]))
    return values


def check_compiled(model, head):
    """Raises an error for Keras losses and metrics of a head's output."""
    outputs, paths = _find_outputs(model, head)
    compiled = model._compile_config.config
    for argument in ("loss", "metrics", "weighted_metrics"):
        get = keras.losses.get if argument == "loss" else keras.metrics.get
        for part in _parts_of(compiled[argument], outputs, paths, model):
            if _is_of_keras(part, get):
                ours = "a loss such as `keras_compembed.CANELoss()`"
                if argument != "loss":
                    ours = "a metric such as `keras_compembed.ClassAccuracy()`"
                name = part if isinstance(part, str) else type(part).__name__
                raise ValueError(
                    f"`{argument}` must not be from Keras, as the output of "
                    f"the {type(head).__name__} {head.name!r} is features, not "
                    f"scores of classes. Compile the model with {ours}. "
                    f"Received: {argument}={name!r}."
                )


def _parts_of(parts, outputs, paths, model):
    """A flat list of the losses or metrics of some outputs."""
    if parts is None:
        return []
    has_keys = isinstance(outputs, dict) and isinstance(parts, dict)
    if len(keras.tree.flatten(outputs)) == 1 and not has_keys:
        return keras.tree.flatten(parts) if paths else []
    names = getattr(model, "output_names", None)
    found = []
    for path in paths:
        found += keras.tree.flatten(_part_at(parts, path, outputs, names))
    return [part for part in found if part is not None]


def _find_outputs(model, head):
    """Nested outputs of a model, and the paths to a head's outputs."""
    outputs = getattr(model, "outputs", None)
    if outputs:
        if len(outputs) > 1:
            outputs = model.output
        return outputs, [
            path
            for path, output in keras.tree.flatten_with_path(outputs)
            if _comes_from(output, head)
        ]
    # The outputs of a subclassed model are unknown; its losses show them.
    return model.loss, [
        path
        for path, loss in keras.tree.flatten_with_path(model.loss)
        if getattr(loss, "reads_class_output", False)
    ]


def _part_at(parts, path, outputs, names):
    """The losses or metrics of one of several nested outputs."""
    for key in path:
        has_keys = isinstance(outputs, dict)
        if isinstance(parts, dict):
            parts = parts.get(key if has_keys or not names else names[key])
        elif isinstance(parts, (list, tuple)):
            # Lists are in the order in which Keras flattens outputs.
            place = sorted(outputs).index(key) if has_keys else key
            parts = parts[place] if place < len(parts) else None
        outputs = outputs[key]
    return parts


def _comes_from(output, head):
    layer = layer_of(output)
    if isinstance(layer, keras.layers.Wrapper):
        layer = layer.layer
    return layer is head


def _is_of_keras(part, get):
    # Keras resolves these strings by shape.
    if part in ("crossentropy", "ce", "accuracy", "acc"):
        return True
    part = get(part)
    if isinstance(part, (keras.losses.Loss, keras.metrics.Metric)):
        part = type(part)
    # Keras wraps functions of users in this class.
    is_of_user = part is keras.metrics.MeanMetricWrapper
    module = getattr(part, "__module__", "").split(".")[0]
    return module == "keras" and not is_of_user
