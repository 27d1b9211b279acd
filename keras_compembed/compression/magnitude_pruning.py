"""A callback that prunes the smallest values of tables by a schedule."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.optimizers.running_optimizer import find_running_optimizer
from keras_compembed.utils.model_parts import layer_paths
from keras_compembed.utils.model_parts import named_layers
from keras_compembed.utils.model_parts import own_variables
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_sparsity
from keras_compembed.utils.validation import require


@dataclasses.dataclass(frozen=True)
class PolynomialSparsity:
    """Sparsity that rises fast at first and slowly at the end."""

    final_sparsity: float
    end_step: int
    begin_step: int = 0
    frequency: int = 100
    initial_sparsity: float = 0.0
    power: float = 3

    def __post_init__(self):
        check_sparsity("final_sparsity", self.final_sparsity)
        check_sparsity("initial_sparsity", self.initial_sparsity)
        require(
            self.initial_sparsity <= self.final_sparsity,
            "`initial_sparsity` must be at most `final_sparsity`.",
            initial_sparsity=self.initial_sparsity,
            final_sparsity=self.final_sparsity,
        )
        check_positive_int("begin_step", self.begin_step, minimum=0)
        check_positive_int("end_step", self.end_step, self.begin_step + 1)
        check_positive_int("frequency", self.frequency)
        check_positive_number("power", self.power)

    def __call__(self, step):
        """The share of zeros after a step, a float32 scalar tensor."""
        step = tf.cast(step - self.begin_step, tf.float32)
        # Operations in the order of tensorflow-model-optimization, for the
        # same rounding.
        part = step / (self.end_step - self.begin_step)
        part = tf.minimum(1.0, tf.maximum(0.0, part))
        gap = self.initial_sparsity - self.final_sparsity
        return gap * (1 - part) ** self.power + self.final_sparsity

    def is_due(self, step):
        """Whether zeros are chosen after a step, a boolean tensor."""
        step = tf.cast(step, tf.int64)
        since = step - self.begin_step
        inside = (since >= 0) & (step <= self.end_step)
        return inside & (
            tf.equal(since % self.frequency, 0) | tf.equal(step, self.end_step)
        )

    def last_due(self, step):
        """The last step up to `step` that chose zeros, or None."""
        if step < self.begin_step:
            return None
        if step >= self.end_step:
            return self.end_step
        return step - (step - self.begin_step) % self.frequency


class MagnitudePruning(keras.callbacks.Callback):
    """Sets the smallest values of tables to 0 during training.

    From `begin_step` to `end_step`, every `frequency` steps and in the last
    step, it sets the values nearest 0 to 0. Their share is

    `final + (initial - final) * (1 - (step - begin) / (end - begin)) ** power`

    The same values stay 0 until the next choice, and after `end_step`. Then
    store the table with
    `compress_model(model, keras_compembed.methods.Pruned(sparsity))`. To
    fine-tune a pruned table, set `initial_sparsity` to `final_sparsity`.

    Pruning is part of the training step, after the optimizer. It works with any
    `steps_per_execution` and on several devices. Results equal those of
    tensorflow-model-optimization step by step: a value that its last gradient
    made large may come back at the next choice.

    Steps are those of the model's optimizer. If the optimizer is saved,
    training resumes with a new callback of the same arguments. After an
    interrupted `fit`, call `on_train_end()` of the callback to stop pruning;
    otherwise it continues in the next `fit`.

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((4,), dtype="int32"),
    ...     keras.layers.Embedding(100, 8, name="words"),
    ... ])
    >>> model.compile("sgd", "mse")
    >>> pruning = MagnitudePruning(0.8, end_step=6, frequency=2)
    >>> history = model.fit(
    ...     np.zeros((64, 4)), np.zeros((64, 4, 8)), batch_size=8, verbose=0,
    ...     callbacks=[pruning],
    ... )
    >>> table = model.get_layer("words").embeddings.numpy()
    >>> round(float((table == 0).mean()), 3)
    0.8

    Args:
        final_sparsity: Number from 0 to below 1. The share of zeros at the end.
        end_step: Integer above `begin_step`. The optimizer step that reaches
            `final_sparsity`.
        begin_step: Integer. The step of the first choice. Defaults to `0`.
        frequency: Integer. Steps between choices of zeros. Defaults to `100`.
        initial_sparsity: Number from 0 to `final_sparsity`. The share of zeros
            at first. Defaults to `0.0`.
        power: Positive number. The exponent of the schedule. Defaults to `3`.
        variables: Optional list of names: layers with `embeddings` to prune, or
            paths of variables, such as `"dense/kernel"`. Defaults to `None`:
            the tables of all `keras.layers.Embedding`.

    Raises:
        TypeError, ValueError: If an argument is invalid, or training begins
            with variables or an optimizer that cannot be pruned.

    References:
        - [Zhu & Gupta, 2017](https://arxiv.org/abs/1710.01878), section 3
    """

    def __init__(
        self,
        final_sparsity: float,
        end_step: int,
        begin_step: int = 0,
        frequency: int = 100,
        initial_sparsity: float = 0.0,
        power: float = 3,
        variables: list | None = None,
    ):
        super().__init__()
        self.schedule = PolynomialSparsity(
            final_sparsity,
            end_step,
            begin_step,
            frequency,
            initial_sparsity,
            power,
        )
        if isinstance(variables, str):
            raise TypeError(
                "`variables` must be a list of names. "
                f"Received: variables={variables!r}."
            )
        require(
            variables is None or len(variables),
            "`variables` must be None or a non-empty list.",
            variables=variables,
        )
        self.variables = variables
        self._constraints = []

    def on_train_begin(self, logs=None):
        self._found = _find_variables(self.model, self.variables)
        optimizer = self.model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        if getattr(optimizer, "use_ema", False):
            raise ValueError(
                "`use_ema` must be False with `MagnitudePruning`: averaged "
                "weights are not 0. Received: an optimizer with "
                "use_ema=True."
            )
        # Leftovers of an interrupted training.
        self._constraints = []

    def on_epoch_begin(self, epoch, logs=None):
        # Not in `on_train_begin`: other callbacks may load weights there.
        if self._constraints:
            return
        step = _steps_done(self.model.optimizer)
        for name, variable in self._found.items():
            _check_past(self.schedule, step, name, variable)
        with self.model.distribute_strategy.scope():
            for variable in self._found.values():
                constraint = _Pruned(variable, self.schedule)
                constraint.start(step)
                self._constraints.append(constraint)
        # Existing graphs lack the constraints.
        self.model.make_train_function(force=True)

    def on_train_end(self, logs=None):
        for constraint in self._constraints:
            constraint.release()
        self._constraints = []
        # The next training has no pruning without a callback.
        self.model.train_function = None


class _Pruned(keras.constraints.Constraint):
    """Keeps values of a variable at 0, and chooses which."""

    def __init__(self, variable, schedule):
        inner = variable.constraint
        # A leftover of an interrupted training.
        self._inner = inner._inner if isinstance(inner, _Pruned) else inner
        self._variable = variable
        self._schedule = schedule
        # All devices make the same choice.
        self._is_kept = keras.Variable(
            np.ones(variable.shape, bool),
            dtype="bool",
            trainable=False,
            aggregation="only_first_replica",
            name="is_kept",
        )

    def start(self, step):
        """Begins after a step of the optimizer."""
        values = self._variable.numpy()
        last = self._schedule.last_due(step)
        if last is not None:
            kept = values != 0
            if last == step:
                kept = largest(values, self._schedule(step)).numpy()
            self._is_kept.assign(kept)
            self._variable.assign(np.where(kept, values, 0))
        self._variable.constraint = self

    def release(self):
        self._variable.constraint = self._inner

    def __call__(self, variable):
        values = tf.convert_to_tensor(variable.value)
        if self._inner is not None:
            values = tf.convert_to_tensor(self._inner(values))
        is_kept = tf.convert_to_tensor(self._is_kept.value)
        step = _steps_done(find_running_optimizer(), more=1)
        is_kept = tf.cond(
            self._schedule.is_due(step),
            lambda: largest(values, self._schedule(step)),
            lambda: is_kept,
        )
        self._is_kept.assign(is_kept)
        return tf.where(is_kept, values, tf.zeros_like(values))


def largest(values, sparsity):
    """Which values to keep: the largest sizes, with all ties."""
    sizes = tf.reshape(tf.abs(values), [-1])
    number = tf.cast(tf.size(sizes), tf.float32) * (1 - sparsity)
    number = tf.cast(tf.maximum(tf.round(number), 1), tf.int32)
    threshold = tf.sort(sizes, direction="DESCENDING")[number - 1]
    return tf.abs(values) >= threshold


def _steps_done(optimizer, more=0):
    """Steps that updated weights, also of a wrapped optimizer."""
    # A loss-scale optimizer's inner optimizer skips steps.
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    # `iterations` leaves out accumulation steps; the optimizer's first
    # variable counts all.
    accumulation = optimizer.gradient_accumulation_steps or 1
    calls = optimizer.iterations
    if accumulation > 1:
        calls = optimizer.variables[0]
    if more:
        return (tf.cast(calls.value, tf.int64) + more) // accumulation
    # Under a strategy, each device has a value.
    return int(keras.ops.convert_to_numpy(calls)) // accumulation


def _check_past(schedule, step, name, variable):
    """Raises if the schedule has missed steps."""
    last = schedule.last_due(step - 1)
    if last is None:
        return
    zeros = float(np.mean(variable.numpy() == 0))
    wanted = float(schedule(last))
    # Ties are kept.
    if zeros < 0.99 * wanted - 1 / variable.shape.num_elements():
        raise ValueError(
            f"`begin_step` must not be in the past. Compile the model again or "
            f"add {step} to `begin_step` and `end_step`. Received: {schedule}, "
            f"with {wanted:.1%} of {name} zero after {last} optimizer steps, "
            f"and an optimizer at step {step}, with {zeros:.1%} zero."
        )


def _find_variables(model, names):
    """Dict from names to the variables to prune."""
    tables = {
        name: layer.embeddings
        for name, layer in named_layers(model, keras.layers.Embedding).items()
        if layer.quantization_mode is None and not layer.lora_enabled
    }
    if names is None:
        found = {
            name: table for name, table in tables.items() if table.trainable
        }
        if not found:
            raise ValueError(
                "The model must have a trainable `keras.layers.Embedding`, or "
                "`variables` must name others. "
                f"Received: model={model.name!r}, without one."
            )
        return found
    paths = {}
    for place, layer in layer_paths(model).items():
        for variable in own_variables(layer):
            for key in {variable.path, f"{place}/{variable.name}"}:
                paths.setdefault(key, {})[id(variable)] = variable
    found = {}
    for name in names:
        matches = list(paths.get(name, {}).values())
        if name in tables:
            matches = [tables[name]]
        if len(matches) != 1:
            known = sorted({*tables, *paths})
            raise ValueError(
                "`variables` must be unique names of layers with a table, or "
                f"paths of variables, of: {', '.join(known)}. "
                f"Received: {name!r}, found {len(matches)} times."
            )
        (found[name],) = matches
    for name, variable in found.items():
        if not variable.trainable or "float" not in variable.dtype:
            raise ValueError(
                "`variables` must name trainable float variables. "
                f"Received: {name!r}, of dtype {variable.dtype}, "
                f"trainable={variable.trainable}."
            )
    return found
