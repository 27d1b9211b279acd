"""Training of compressed tables towards the outputs of another model."""

import functools

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.compression.budget import HELD
from keras_compembed.compression.budget import BestEpoch
from keras_compembed.compression.budget import count_examples
from keras_compembed.compression.tables import check_model
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.lookup_layer import rows_that_learn
from keras_compembed.layers.top_classes import list_heads
from keras_compembed.layers.top_classes import top_k_model
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
_BATCH_SIZE, _EPOCHS, _LEARNING_RATE = 32, 3, 1e-3
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
    epochs: int = _EPOCHS,
    optimizer: keras.optimizers.Optimizer | str | None = None,
    seed: int | None = None,
    **kwargs: object,
) -> keras.callbacks.History:
    """Trains compressed tables towards the outputs of another model.

    It needs no labels. `model` is usually the one that `small` was compressed
    from. What the compressed layers of `small` train in `fit` is trained, such
    as codebooks, projections, anchors and the rows of `Quantized(2,
    learn_rows=True)`; all other weights stay as they are. There is no dropout:
    all other layers are called with `training=False`.

    Some inputs are held out. `small` gets the weights of the epoch that is best
    on them, or its own if no epoch is better. Ctrl-C stops training and keeps
    the best epoch so far.

    Outputs of `model` are computed once if `inputs` are arrays or texts, and
    outputs take at most 1 GB. They are computed in each step if not, or if the
    output of a text depends on the longest text of its batch.

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
        loss: Optional loss of `keras.distillation`. Defaults to `None`: the
            Kullback-Leibler divergence for probabilities, and for logits if
            `model` is compiled with a categorical crossentropy
            `from_logits=True`. For other outputs, the squared error relative to
            their mean square, plus 1 minus the cosine. A `CANESoftmax` with a
            `class_embedding` gives probabilities of all classes.
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
            and `verbose`. `ModelCheckpoint` saves `small`; it must not have
            `save_weights_only=True`.

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
    trained = small.trainable_variables if train_all else _of_tables(small)
    require(
        trained,
        "`small` must have compressed layers that are `trainable`, and have "
        "weights to train, such as codes, or rows with `learn_rows=True`.",
        small=small.name,
    )
    if not isinstance(inputs, tf.data.Dataset):
        kwargs.setdefault("batch_size", _BATCH_SIZE)
    teacher = Teacher(
        model, inputs, validation_inputs, layer, kwargs.get("batch_size")
    )
    teacher.check(small)
    kwargs["epochs"] = epochs
    return teacher.train(small, trained, seed, kwargs, loss, optimizer)[0]


def _of_tables(model):
    """What compressed layers train."""
    tables = [x for x in all_layers(model) if isinstance(x, LookupLayer)]
    return [variable for x in tables for variable in x.trainable_variables]


def _part(model, layer):
    """The model up to the outputs to compare."""
    if layer is None:
        heads = list_heads(model) if is_open(model) else ()
        if any(getattr(x, "class_embedding", None) is not None for x in heads):
            # Features do not depend on the rows of classes.
            model = top_k_model(model, k=None)
            if len(model.outputs) == 1:
                return keras.Model(model.input, model.outputs[0])
        return model
    names = [x.name for x in model.layers] if is_open(model) else []
    require(
        layer in names,
        "`layer` must be a layer of both models, Sequential or functional.",
        layer=layer,
        model=model.name,
    )
    return keras.Model(model.input, model.get_layer(layer).output)


def _slice(inputs, start, stop):
    return keras.tree.map_structure(lambda x: x[start:stop], inputs)


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


class Teacher:
    """Inputs, and the outputs of a model that others learn."""

    def __init__(self, model, inputs, held=None, layer=None, size=_BATCH_SIZE):
        self._part, self._layer, self._size = _part(model, layer), layer, size
        self._is_logits = layer is None and _gives_logits(model)
        data, held = map(with_text_tensors, (inputs, held))
        if isinstance(data, tf.data.Dataset):
            data = _only_inputs(data)
            self._first = next(iter(data), None)
            require(
                self._first is not None,
                "`inputs` must not be empty.",
                inputs=inputs,
            )
        else:
            count = count_examples(data)
            if held is None and count >= HELD:
                last = count - count // HELD
                data, held = _slice(data, 0, last), _slice(data, last, count)
            self._first = _slice(data, 0, size)
        if isinstance(held, tf.data.Dataset):
            held = _only_inputs(held)
        self._inputs, self._held = data, held
        self._given = self._call(self._part)
        _check_finite(self._given)

    def _call(self, model):
        try:
            return model(self._first, training=False)
        except Exception as error:
            raise ValueError(
                "`inputs` must be inputs that both models take, a dataset in "
                f"batches. Received this error: {on_one_line(error)[:300]}"
            ) from error

    def check(self, small):
        """Raises unless outputs of a model have the same shapes."""
        shapes = [
            keras.tree.map_structure(lambda x: tuple(x.shape), outputs)
            for outputs in (self._given, self._call(_part(small, self._layer)))
        ]
        require(
            shapes[0] == shapes[1],
            "`small` must have outputs of the same shapes as `model`.",
            small=shapes[1],
            model=shapes[0],
        )

    @functools.cached_property
    def _data(self):
        """Arguments of `fit`, and of `evaluate` or None."""
        held = None if self._held is None else self._with_outputs(self._held)
        return self._with_outputs(self._inputs), held

    def _with_outputs(self, data):
        """Arguments `x` and `y` of `fit`; no `y` if it differs by batch."""
        if isinstance(data, tf.data.Dataset) or self._pads(data):
            return {"x": data}
        first = [x.numpy() for x in keras.tree.flatten(self._given)]
        each = sum(x.nbytes / len(x) for x in first)
        if each * count_examples(data) > _MOST_BYTES:
            return {"x": data}
        outputs = self._part.predict(data, batch_size=self._size, verbose=0)
        _check_finite(outputs)
        return {"x": data, "y": outputs}

    def _pads(self, data):
        """Whether the output of a text depends on longer ones beside it."""
        lengths = [
            tf.reduce_sum(tf.reshape(tf.strings.length(x), (len(x), -1)), 1)
            for x in keras.tree.flatten(data)
            if x.dtype == tf.string
        ]
        if not lengths:
            return False
        ends = tf.gather(tf.argsort(sum(lengths)), [0, len(lengths[0]) - 1])
        both = keras.tree.map_structure(lambda x: tf.gather(x, ends), data)
        alone, beside = (
            keras.tree.flatten(self._part(x, training=False))
            for x in (_slice(both, 0, 1), both)
        )
        return any(
            x.shape[1:] != y.shape[1:]
            or not np.allclose(x[0], y[0], 0, 0.01 * np.abs(x).max())
            for x, y in zip(alone, beside, strict=True)
        )

    def train(self, small, trained, seed, kwargs, loss=None, optimizer=None):
        """Trains variables; returns the `History`, and the loss if known."""
        data, held = self._data
        if seed is not None:
            keras.utils.set_random_seed(seed)
        kept = {id(variable) for variable in trained}
        flags = [(variable, variable.trainable) for variable in small.variables]
        try:
            for variable, flag in flags:
                variable.trainable = flag and id(variable) in kept
            with small.distribute_strategy.scope():
                student = _part(small, self._layer)
                loss = loss or _Difference(self._given, self._is_logits)
                pupil = _Pupil(student, self._part, loss)
                optimizer = optimizer or self._optimizer(kwargs["epochs"])
                pupil.compile(optimizer, jit_compile=False)
                # For `ModelCheckpoint`.
                pupil.save = small.save
            return _fit(pupil, data, held, kwargs)
        finally:
            for variable, flag in flags:
                variable.trainable = flag

    def _optimizer(self, epochs):
        x, rate = self._inputs, _LEARNING_RATE
        if isinstance(x, tf.data.Dataset):
            steps = int(x.cardinality())
        else:
            steps = -(-count_examples(x) // self._size)
        if steps > 0:
            steps *= epochs
            rate = keras.optimizers.schedules.CosineDecay(rate, steps)
        return keras.optimizers.Adam(rate)


def _fit(pupil, data, held, kwargs):
    best, size = None, kwargs.get("batch_size")
    callbacks = keras.tree.flatten(kwargs.pop("callbacks", None) or [])
    if held is not None:
        best = BestEpoch(
            # Also the state of rows that learn.
            pupil.student.variables,
            pupil.evaluate(**held, batch_size=size, verbose=0),
            lambda logs: logs["val_loss"],
        )
        kwargs["validation_data"] = tuple(held.values())
        if isinstance(held["x"], tf.data.Dataset):
            kwargs["validation_data"] = held["x"]
        callbacks.append(best)
    if isinstance(data["x"], tf.data.Dataset):
        # Keras warns if asked to shuffle a dataset.
        kwargs.setdefault("shuffle", False)
    try:
        if pupil.trainable_variables:
            pupil.fit(**data, callbacks=callbacks, **kwargs)
    except KeyboardInterrupt:
        print("\nInterrupted: keeping the best so far.")
    if best is not None:
        best.restore()
    return pupil.history, best and best.loss


class DistilledCopies:
    """Same as `TunedCopies`, for inputs without labels."""

    metric, number = "loss", 3

    def __init__(self, model, inputs, seed, verbose):
        self._teacher = Teacher(model, inputs)
        self._seed, self._verbose = seed, verbose

    def loss(self, score):
        return score

    def tune(self, copy):
        kwargs = {"batch_size": _BATCH_SIZE, "verbose": self._verbose}
        kwargs["epochs"], trained = _EPOCHS, _of_tables(copy)
        history, loss = self._teacher.train(copy, trained, self._seed, kwargs)
        return loss, trained and len(history.epoch) < _EPOCHS


class _Pupil(keras.Model):
    """The model that is trained; the teacher's weights are not its own."""

    def __init__(self, student, teacher, loss):
        super().__init__(name="distilled", dtype=student.dtype_policy)
        self.student = student
        self._teach = functools.partial(teacher, training=False)
        self._difference = loss.compute_loss

    def call(self, inputs, training=False):
        with rows_that_learn(training):
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
        if training:
            loss += sum(self.losses)
        return loss / tf.distribute.get_strategy().num_replicas_in_sync


class _Difference(keras.distillation.DistillationLoss):
    """A sum of differences, 0 for equal outputs."""

    def __init__(self, outputs, is_logits):
        self._differences = [
            _divergence
            if is_logits
            else _difference_of(x.numpy().astype("float32"))
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


def _gives_logits(model):
    """Whether the one loss that a model is compiled with takes logits."""
    kinds = (
        keras.losses.CategoricalCrossentropy,
        keras.losses.SparseCategoricalCrossentropy,
    )
    loss = getattr(model, "loss", None)
    return isinstance(loss, kinds) and loss.get_config()["from_logits"]


def _divergence(given, found):
    """The Kullback-Leibler divergence of logits."""
    given, found = map(keras.ops.log_softmax, (given, found))
    return keras.ops.sum(keras.ops.exp(given) * (given - found), axis=-1)


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
