"""Training of compressed tables towards the outputs of another model."""

import functools

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.compression.tables import check_model
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.model_parts import is_open
from keras_compembed.utils.text_tensors import with_text_tensors
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import on_one_line
from keras_compembed.utils.validation import require

# Larger outputs are computed in each step instead of once.
_MOST_BYTES = 1 << 30
_BATCH_SIZE, _LEARNING_RATE = 32, 1e-3
# One in ten inputs is held out.
_HELD = 10
# Rows that sum to 1 within this are probabilities.
_ROUNDING = 1e-2


def distill(
    small: keras.Model,
    model: keras.Model,
    inputs: object,
    *,
    loss: keras.distillation.DistillationLoss | None = None,
    layer: str | None = None,
    train_all: bool = False,
    validation_inputs: object = None,
    epochs: int = 3,
    optimizer: keras.optimizers.Optimizer | str | None = None,
    seed: int | None = None,
    **kwargs: object,
) -> keras.callbacks.History:
    """Trains compressed tables towards the outputs of another model.

    It needs no labels. `model` is usually the one that `small` was compressed
    from. What the compressed layers of `small` train in `fit` is trained, such
    as codebooks, projections and anchors; all other weights stay as they are.
    Both models are called with `training=False`: there is no dropout, and rows
    and codes that only learn in training stay as they are.

    Some inputs are held out. `small` gets the weights of the epoch that is best
    on them, or its own if no epoch is better. Ctrl-C stops training and keeps
    the best epoch so far.

    Outputs of `model` are computed once if they take at most 1 GB, and else in
    each step.

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((20,), dtype="int32"),
    ...     keras.layers.Embedding(2000, 32),
    ...     keras.layers.GlobalAveragePooling1D(),
    ...     keras.layers.Dense(8),
    ... ])
    >>> small = kc.compress_model(model, kc.methods.Codes(4, 16), verbose=0)
    >>> ids = np.random.default_rng(0).integers(2000, size=(320, 20))
    >>> history = distill(small, model, ids, epochs=2, verbose=0)
    >>> losses = history.history["val_loss"]

    Args:
        small: A model with compressed layers, which is trained.
        model: A `keras.Model` with the same inputs and outputs.
        inputs: Arrays, tensors or texts as for `predict`, or a batched
            `tf.data.Dataset` of inputs, or of tuples that begin with them.
        loss: Optional loss of `keras.distillation`, such as
            `LogitsDistillation()` for logits. Defaults to `None`: for
            probabilities, the Kullback-Leibler divergence; for other outputs,
            the squared error relative to their mean square, plus 1 minus the
            cosine.
        layer: Optional name of a layer of both models. Its outputs are compared
            instead. Defaults to `None`.
        train_all: Boolean. Whether to train all trainable weights. Defaults to
            `False`.
        validation_inputs: Optional inputs to hold out. Defaults to `None`: the
            last tenth of arrays, and none of a dataset.
        epochs: Positive integer. Defaults to `3`.
        optimizer: Optional Keras optimizer. Defaults to `None`: Adam with a
            learning rate that falls from 0.001 by a cosine.
        seed: Optional integer, for `keras.utils.set_random_seed`. Defaults to
            `None`.
        **kwargs: Further arguments of `fit`, such as `batch_size`, `callbacks`
            and `verbose`.

    Returns:
        The `History` of `fit`.

    Raises:
        TypeError, ValueError: If an argument is invalid, `small` has nothing to
            train, or the outputs of the models do not have the same shapes.

    References:
        - [Hinton et al., 2015](https://arxiv.org/abs/1503.02531)
    """
    check_model(small)
    check_model(model)
    check_positive_int("epochs", epochs)
    check_seed(seed)
    check_boolean("train_all", train_all)
    require(
        loss is None or isinstance(loss, keras.distillation.DistillationLoss),
        "`loss` must be None or a loss of `keras.distillation`.",
        loss=loss,
    )
    require(
        getattr(loss, "teacher_layer_name", None) is None,
        "`loss` must not name layers: use `layer`.",
        loss=loss,
    )
    taken = {"x", "y", "validation_data", "validation_split", "sample_weight"}
    require(
        not taken.intersection(kwargs),
        f"`distill` must not be given {', '.join(sorted(taken))}.",
        names=sorted(kwargs),
    )
    tables = [x for x in all_layers(small) if isinstance(x, LookupLayer)]
    chosen = [small] if train_all else tables
    trained = {id(v) for x in chosen for v in x.trainable_variables}
    require(
        trained,
        "`small` must have compressed layers with weights to train.",
        small=small.name,
    )
    teacher, student = _part(model, layer), _part(small, layer)
    data, held = map(with_text_tensors, (inputs, validation_inputs))
    if isinstance(data, tf.data.Dataset):
        # Keras warns if asked to shuffle a dataset.
        kwargs.setdefault("shuffle", False)
    else:
        kwargs.setdefault("batch_size", _BATCH_SIZE)
        count = _count(data)
        if held is None and count >= _HELD:
            last = count - count // _HELD
            data, held = _slice(data, 0, last), _slice(data, last, count)
    size = kwargs.get("batch_size")
    given = _first_outputs(teacher, student, data, size)
    data = _with_outputs(teacher, data, size, given)
    if held is not None:
        held = _with_outputs(teacher, held, size, given)
    if seed is not None:
        keras.utils.set_random_seed(seed)
    flags = [(v, v.trainable) for v in small.variables]
    try:
        for variable, flag in flags:
            variable.trainable = flag and id(variable) in trained
        with small.distribute_strategy.scope():
            pupil = _Pupil(student, teacher, loss or _Difference(given))
            optimizer = optimizer or _optimizer(data, size, epochs)
            pupil.compile(optimizer, jit_compile=False)
        return _fit(pupil, data, held, epochs, kwargs)
    finally:
        for variable, flag in flags:
            variable.trainable = flag


def _part(model, layer):
    """The model up to the outputs to compare."""
    if layer is None:
        return model
    names = [x.name for x in model.layers] if is_open(model) else []
    require(
        layer in names,
        "`layer` must be a layer of both models, Sequential or functional.",
        layer=layer,
        model=model.name,
    )
    return keras.Model(model.input, model.get_layer(layer).output)


def _count(inputs):
    """The number of examples in arrays."""
    shapes = [getattr(x, "shape", ()) for x in keras.tree.flatten(inputs)]
    lengths = {shape[0] if len(shape) else 0 for shape in shapes}
    require(
        len(lengths) == 1 and 0 not in lengths,
        "`inputs` must be arrays of the same length, at least 1.",
        lengths=sorted(lengths),
    )
    return lengths.pop()


def _slice(inputs, start, stop):
    return keras.tree.map_structure(lambda x: x[start:stop], inputs)


def _first_outputs(teacher, student, data, size):
    """The teacher's outputs for one batch, after a check of both models."""
    if isinstance(data, tf.data.Dataset):
        first = next(iter(_only_inputs(data)), None)
        require(first is not None, "`inputs` must not be empty.", inputs=data)
    else:
        first = _slice(data, 0, size)
    try:
        given, found = (x(first, training=False) for x in (teacher, student))
    except Exception as error:
        raise ValueError(
            "`inputs` must be inputs that both models take. Received this "
            f"error: {on_one_line(error)[:300]}"
        ) from error
    shapes = [
        keras.tree.map_structure(lambda x: tuple(x.shape), outputs)
        for outputs in (given, found)
    ]
    require(
        shapes[0] == shapes[1],
        "`small` must have outputs of the same shapes as `model`.",
        small=shapes[1],
        model=shapes[0],
    )
    _check_finite(given)
    return given


def _check_finite(outputs):
    for each in keras.tree.flatten(outputs):
        require(
            np.isfinite(keras.ops.convert_to_numpy(each)).all(),
            "`model` must have finite outputs.",
            outputs="NaN or infinity",
        )


def _only_inputs(dataset):
    if isinstance(dataset.element_spec, tuple):
        return dataset.map(lambda *parts: parts[0])
    return dataset


def _with_outputs(teacher, data, size, first):
    """Arguments `x` and `y` of `fit`; no `y` if outputs are too large."""
    if isinstance(data, tf.data.Dataset):
        return {"x": _only_inputs(data)}
    first = [x.numpy() for x in keras.tree.flatten(first)]
    each = sum(x.nbytes / len(x) for x in first)
    if each * _count(data) > _MOST_BYTES:
        return {"x": data}
    outputs = teacher.predict(data, batch_size=size, verbose=0)
    _check_finite(outputs)
    return {"x": data, "y": outputs}


def _optimizer(data, size, epochs):
    x, rate = data["x"], _LEARNING_RATE
    if isinstance(x, tf.data.Dataset):
        steps = int(x.cardinality())
    else:
        steps = -(-_count(x) // size)
    if steps > 0:
        rate = keras.optimizers.schedules.CosineDecay(rate, steps * epochs)
    return keras.optimizers.Adam(rate)


def _fit(pupil, data, held, epochs, kwargs):
    best = None
    callbacks = keras.tree.flatten(kwargs.pop("callbacks", None) or [])
    if held is not None:
        size = kwargs.get("batch_size")
        loss = pupil.evaluate(**held, batch_size=size, verbose=0)
        best = _BestEpoch(pupil.trainable_variables, loss)
        kwargs["validation_data"] = tuple(held.values())
        if isinstance(held["x"], tf.data.Dataset):
            kwargs["validation_data"] = held["x"]
        callbacks.append(best)
    try:
        pupil.fit(**data, epochs=epochs, callbacks=callbacks, **kwargs)
    except KeyboardInterrupt:
        print("\nInterrupted: keeping the best so far.")
    if best is not None:
        best.restore()
    return pupil.history


class _Pupil(keras.Model):
    """The model that is trained; the teacher's weights are not its own."""

    def __init__(self, student, teacher, loss):
        super().__init__(name="distilled", dtype=student.dtype_policy)
        self.student = student
        self._teach = functools.partial(teacher, training=False)
        self._difference = loss.compute_loss

    def call(self, inputs):
        return self.student(inputs, training=False)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        given = self._teach(x) if y is None else y
        given, found = (
            keras.tree.map_structure(
                lambda each: tf.cast(each, "float32"), outputs
            )
            for outputs in (given, y_pred)
        )
        loss = self._difference(given, found)
        return loss / tf.distribute.get_strategy().num_replicas_in_sync


class _Difference(keras.distillation.DistillationLoss):
    """A sum of differences, 0 for equal outputs."""

    def __init__(self, outputs):
        self._differences = [
            _difference_of(x.numpy().astype("float32"))
            for x in keras.tree.flatten(outputs)
        ]

    def compute_loss(self, teacher_outputs, student_outputs, **kwargs):
        pairs = map(keras.tree.flatten, (teacher_outputs, student_outputs))
        return sum(
            tf.reduce_mean(difference(given, found))
            for difference, given, found in zip(
                self._differences, *pairs, strict=True
            )
        )


def _difference_of(outputs):
    """A function of two outputs, for outputs like these."""
    width = outputs.shape[-1]
    is_one = np.abs(outputs.sum(axis=-1) - 1).max() < _ROUNDING
    if width > 1 and outputs.min() >= 0 and is_one:
        return keras.losses.kl_divergence
    scale = max(float(np.square(outputs).mean()), 1e-12)

    def difference(given, found):
        squares = keras.losses.mean_squared_error(given, found) / scale
        if width == 1:
            return squares
        # Keras's is the negative cosine.
        return squares + 1 + keras.losses.cosine_similarity(given, found)

    return difference


class _BestEpoch(keras.callbacks.Callback):
    """Keeps the weights of the epoch with the lowest loss, or of the start."""

    def __init__(self, variables, loss):
        super().__init__()
        self._variables, self._loss = variables, loss
        self._kept = [x.numpy() for x in variables]

    def on_epoch_end(self, epoch, logs=None):
        if logs["val_loss"] < self._loss:
            self._loss = logs["val_loss"]
            self._kept = [x.numpy() for x in self._variables]

    def restore(self):
        for variable, value in zip(self._variables, self._kept, strict=True):
            variable.assign(value)
