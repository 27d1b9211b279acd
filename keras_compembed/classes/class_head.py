"""The base of layers over many classes, and the mark on their outputs."""

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
        """Warns in the `predict` of a model that this is the last layer of."""
        # `predict` makes its function before it calls the model, and no other
        # method does. Whatever else calls the model later is not the first.
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
        # What Keras asks for in `fit` and `evaluate`, and not in `predict`.
        model = self._called_by and self._called_by()
        if model is not None and model.compiled:
            check_compiled(model, self)
        return super()._get_own_losses()

    def compute_output_shape(self, input_shape):
        return input_shape

    def probabilities(self, features: tf.Tensor) -> tf.Tensor:
        """Probabilities `(..., num_classes)`, in memory all at once."""
        features = tf.convert_to_tensor(features)
        if not self.built:
            self.build(features.shape)
        return unflat(self.row_probabilities(flat_features(features)), features)

    def draw(self, examples: "ClassExamples") -> Draw:
        """What a step considers, a `Draw`: here, all classes."""
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
        # What cross-entropies of Keras take in place of the tensor.
        tensor._keras_logits = _NoLogits(self.head)
        return tensor

    def examples(self, y_true, y_pred, name):
        """`ClassExamples` of an output and its labels."""
        if id(y_true) not in self._examples:
            # The labels are kept: ids of objects may come again.
            examples = ClassExamples(self, y_true, y_pred, name)
            self._examples[id(y_true)] = y_true, examples
        return self._examples[id(y_true)][1]


class _NoLogits:
    """Raises, in place of Keras, where scores are wanted."""

    def __init__(self, head):
        self.__dict__["head"] = head

    def __getattr__(self, name):
        head = self.__dict__["head"]
        raise ValueError(
            f"The output of the {type(head).__name__} {head.name!r} is "
            "features, not scores of classes, so that the cross-entropies of "
            "Keras would be wrong. Use `keras_compembed.CANELoss()` or another "
            "loss of `keras_compembed`."
        )


class ClassExamples:
    """Examples that a loss or metric is about."""

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
            # Of a label of its own an optimizer would see a row that has a
            # gradient of 0, and move it on by its momentum.
            counted = tf.reshape(mask, (-1,))
            other = tf.reduce_max(tf.where(counted, self.labels, 0))
            self.labels = tf.where(counted, self.labels, other)
        # Not `functools.cached_property`, which up to Python 3.11 has a lock
        # for all objects: devices that wait for each other would stand still.
        self._exact = None
        self._draw = None

    def counted(self, ignore_class):
        """Which examples count."""
        counted = tf.not_equal(self.received, ignore_class)
        if self.lists is None:
            return counted
        others = tf.reduce_any(counted & (self.received != -1), axis=1)
        return others | tf.reduce_all(counted, axis=1)

    def exact(self):
        """Losses and ranks by the scores of all classes."""
        losses, ranks = self._exact_of_all()
        if self.lists is None:
            return losses, ranks
        exists = self.lists >= 0
        number = tf.reduce_sum(tf.cast(exists, losses.dtype), axis=1)
        total = tf.reduce_sum(tf.where(exists, losses, 0.0), axis=1)
        best = tf.reduce_min(self.label_ranks(), axis=1)
        return total / tf.maximum(number, 1.0), best

    def label_lists(self):
        """Labels as lists: int32 `(rows, labels)`, -1 where there is none."""
        if self.lists is not None:
            return self.lists
        return tf.where(self.in_range, self.labels, -1)[:, None]

    def label_ranks(self, exclude=None):
        """Ranks of all labels by the scores of all classes, or of others."""
        _, ranks = self._exact_of_all()
        if self.lists is None:
            ranks = ranks[:, None]
        exists = self.label_lists() >= 0
        if exclude is not None:
            is_out, above = self._compare_with(exclude)
            exists &= ~is_out
            # Scores of few classes are rounded in another way.
            ranks = tf.maximum(tf.cast(ranks, "int32") - above, 0)
        return tf.where(exists, ranks, tf.int32.max)

    def _compare_with(self, exclude):
        """Labels that are to be left out, and how many such are above each."""
        labels = tf.maximum(self.label_lists(), 0)
        exclude = read_excluded(exclude)
        require(
            exclude.shape.rank == 2
            and exclude.shape[1] is not None
            and exclude.shape[:1].is_compatible_with(labels.shape[:1]),
            "`exclude` must hold a list of classes for each example, padded by "
            "-1.",
            shape=exclude.shape.as_list(),
            examples=labels.shape[0],
        )
        # No such class, as in `top_k`.
        exclude = tf.where(exclude < self.head.num_classes, exclude, -1)
        # Of equal ones, the first counts.
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
        """What `ClassHead.exact` returns, computed once."""
        if self._exact is None:
            labels = self.labels
            if self.lists is not None:
                labels = tf.maximum(self.lists, 0)
            self._exact = self.head.exact(self.features, labels)
        return self._exact

    def _read_lists(self, name):
        require(
            self.head.seed_generator is not None,
            f"`{name}` must be given one label for each example, not lists, "
            "unless the output is that of a `keras_compembed.CANESoftmax`.",
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
        """What the next numbers of this step are drawn by, integers `(2,)`."""
        if self.training:
            return self.head.seed_generator.next()
        self._seeds += 1
        total = sum_over_devices(tf.reduce_sum(self.received))
        return tf.stack([tf.cast(self._seeds, total.dtype), total])

    def draw(self):
        """What this step considers."""
        if self._draw is None:
            self._draw = self.head.draw(self)
        return self._draw

    def keep(self, draw):
        """Has `draw` return this, for losses that draw in their own way."""
        self._draw = draw


def read_examples(y_true, y_pred, name):
    """The `ClassExamples` of an output and its labels."""
    if find_output(y_pred) is None and _in_scratch_graph():
        return None
    return read_output(y_pred, name).examples(y_true, y_pred, name)


def read_output(tensor, name):
    """The `ClassOutput` that a tensor is marked with."""
    output = find_output(tensor)
    require(
        output is not None,
        f"`{name}` must be given the output of a layer such as "
        "`keras_compembed.CANESoftmax`, unchanged: the last layer of the "
        "model, without a wrapper such as `TimeDistributed` (it takes "
        "features `(batch, time, width)` itself) and without a cast.",
        shape=tensor.shape,
    )
    return output


def find_output(tensor):
    """Same as `read_output`, but None if there is none."""
    return getattr(tensor, _NAME, None)


def _in_scratch_graph():
    # Where Keras runs functions to find out shapes, tensors lose marks.
    if tf.executing_eagerly():
        return False
    graph = tf.compat.v1.get_default_graph()
    return getattr(graph, "name", "").startswith("scratch_graph")


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


def check_compiled(model, head):
    """Refuses what Keras has to measure scores by, which features are not."""
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
                    f"`{argument}` must know what the output of the "
                    f"{type(head).__name__} {head.name!r} is: features, not "
                    "scores of classes, so that losses and metrics of Keras "
                    f"would be wrong. Compile the model with {ours}. "
                    f"Received: {argument}={name!r}."
                )


def _parts_of(parts, outputs, paths, model):
    """Losses or metrics that are for some of the outputs, flat."""
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
    """Nested outputs of a model, and the paths to those of a layer."""
    outputs = getattr(model, "outputs", None)
    if outputs:
        if len(outputs) > 1:
            outputs = model.output
        return outputs, [
            path
            for path, output in keras.tree.flatten_with_path(outputs)
            if _comes_from(output, head)
        ]
    # Those of a subclassed model are told by the losses for them.
    return model.loss, [
        path
        for path, loss in keras.tree.flatten_with_path(model.loss)
        if getattr(loss, "reads_class_output", False)
    ]


def _part_at(parts, path, outputs, names):
    """What losses or metrics hold for one of several nested outputs."""
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
    # What Keras takes for one of several, by shapes.
    if part in ("crossentropy", "ce", "accuracy", "acc"):
        return True
    part = get(part)
    if isinstance(part, (keras.losses.Loss, keras.metrics.Metric)):
        part = type(part)
    # Such a wrapper is of a function of the user.
    is_of_user = part is keras.metrics.MeanMetricWrapper
    module = getattr(part, "__module__", "").split(".")[0]
    return module == "keras" and not is_of_user
