"""Optimizer wrapper that updates only the rows with gradients."""

import keras
import tensorflow as tf

from keras_compembed.optimizers.device_rows import first_places
from keras_compembed.optimizers.device_rows import in_room
from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.device_rows import pad_ids
from keras_compembed.optimizers.running_optimizer import slots_of
from keras_compembed.utils.tensor_ops import in_xla
from keras_compembed.utils.validation import require

# Optimizers with norms or means over a whole variable, and wrappers.
_REFUSED = "Adafactor", "Lamb", "Muon", "LossScaleOptimizer", "MultiOptimizer"
_DENSE = "weight_decay", "clipnorm", "clipvalue", "global_clipnorm"
_UNSUPPORTED = ("gradient_accumulation_steps", "use_ema", "loss_scale_factor")


def _of_inner(setting):
    """A setting shared with the inner optimizer."""

    def set_inner(self, value):
        # Keras sets defaults before `inner` exists.
        if hasattr(self, "inner"):
            _check_setting(self.inner, setting, value)
            setattr(self.inner, setting, value)

    return property(lambda self: getattr(self.inner, setting), set_inner)


@keras.saving.register_keras_serializable(package="keras_compembed")
class SparseRowOptimizer(keras.optimizers.Optimizer):
    """Makes any optimizer update only the rows that a step looks up.

    Most Keras optimizers update the whole table and its slots in each step,
    and `SGD` copies the table.
    With this wrapper, the time and memory of a step do not grow with the
    number of rows. Repeated rows in a batch or on several devices are merged:
    their gradients add up. Dense gradients are applied as by `inner`.

    This is lazy Adam, generalized to optimizers that treat each element
    separately: `SGD`, `Adam`, `AdamW`, `Nadam`, `Adamax`, `Adagrad`,
    `Adadelta`, `RMSprop`, `Lion`, `Ftrl`. **The result differs from `inner`**,
    as rows without a lookup do not change:

    - Their moments do not decay, and momentum does not move them.
    - Weight decay applies to rows that are looked up. Rare rows decay less.
    - Bias corrections and learning-rate schedules use `iterations`, the steps
      of training, not of a row. With Adam's defaults, the first step of a row
      at a late iteration is about 3.2 times `learning_rate`.

    The wrapper and `inner` share settings such as `learning_rate` and
    `clipnorm`; set them on either. Gradients are clipped on each device,
    before they are summed. Constraints apply to whole variables. A
    `LossScaleOptimizer` is not supported: train in `mixed_bfloat16`, or
    compile with `auto_scale_loss=False`.

    Example:

    >>> model = keras.Sequential([
    ...     kc.CodeEmbedding(1_000_000, 64, codes="softmax"),
    ...     keras.layers.GlobalAveragePooling1D(),
    ...     keras.layers.Dense(1),
    ... ])
    >>> model.compile(SparseRowOptimizer("adam"), "mse")

    Args:
        inner: Keras optimizer, its name or its config, with elementwise
            updates and slots in lists, as in Keras. It must not wrap another
            optimizer or use `gradient_accumulation_steps`, `use_ema` or
            `loss_scale_factor`.
        name: Optional string.

    Raises:
        ValueError: If `inner` is not supported.
    """

    _is_scaled = False

    def __init__(
        self, inner: str | dict | keras.Optimizer, name: str | None = None
    ):
        inner = _check_inner(inner)
        super().__init__(learning_rate=0.0, name=name)
        self.inner = inner

    def build(self, variables):
        if self.built:
            return
        self.inner.build(variables)
        super().build(variables)

    @property
    def variables(self):
        return self.inner.variables

    iterations = _of_inner("iterations")
    learning_rate = _of_inner("learning_rate")
    weight_decay = _of_inner("weight_decay")
    clipnorm = _of_inner("clipnorm")
    clipvalue = _of_inner("clipvalue")
    global_clipnorm = _of_inner("global_clipnorm")
    use_ema = _of_inner("use_ema")
    gradient_accumulation_steps = _of_inner("gradient_accumulation_steps")

    def __setattr__(self, name, value):
        # A `LossScaleOptimizer` sets it. Keras sets it before `inner` exists.
        if name == "loss_scale_factor" and hasattr(self, "inner"):
            self._is_scaled = True
        super().__setattr__(name, value)

    def apply(self, grads, trainable_variables=None):
        # Not before: `load_model` scales losses of every float16 model.
        require(
            not self._is_scaled,
            "Losses must not be scaled for a `SparseRowOptimizer`. Compile "
            "with `auto_scale_loss=False`, or train in 'mixed_bfloat16'.",
            loss_scale_factor=self.loss_scale_factor,
        )
        for setting in _UNSUPPORTED:
            _check_setting(self.inner, setting, getattr(self.inner, setting))
        if trainable_variables is not None and not self.built:
            with keras.name_scope(self.name, caller=self):
                self.build(list(trainable_variables))
        # This class clips and decays, as `inner` would read whole tables.
        settings = dict.fromkeys(_DENSE) | {"update_step": self.update_step}
        stepper = _shallow_copy(self.inner, **settings)
        stepper.apply(self._clip(grads), trainable_variables)

    def set_weights(self, weights):
        self.inner.set_weights(weights)

    def exclude_from_weight_decay(self, var_list=None, var_names=None):
        self.inner.exclude_from_weight_decay(var_list, var_names)

    def _clip(self, grads):
        inner = self.inner
        if not (inner.clipnorm or inner.clipvalue or inner.global_clipnorm):
            return grads
        merged = [_merge(gradient) for gradient in grads]
        values = [getattr(gradient, "values", gradient) for gradient in merged]
        norm, limit = inner.clipnorm, inner.clipvalue
        if inner.global_clipnorm:
            values, _ = tf.clip_by_global_norm(values, inner.global_clipnorm)
        for place, x in enumerate(values):
            if x is not None and norm:
                values[place] = tf.clip_by_norm(x, norm)
            elif x is not None and limit:
                values[place] = tf.clip_by_value(x, -limit, limit)
        return [
            _with_values(gradient, clipped, before)
            for gradient, clipped, before in zip(
                merged, values, grads, strict=True
            )
        ]

    def update_step(self, gradient, variable, learning_rate):
        if not isinstance(gradient, tf.IndexedSlices):
            self._decay(variable, variable, learning_rate)
            self.inner.update_step(gradient, variable, learning_rate)
            return
        gradient = _merge(gradient)
        if tf.executing_eagerly() and not gradient.indices.shape[0]:
            # A batch without ids: Keras cannot update with empty tensors.
            return
        rows = VariableRows(variable, gradient.indices)
        slots = {}
        for name, slot in slots_of(self.inner, variable).items():
            require(
                slot.shape == variable.shape,
                "`inner` must have slots with the shape of their variable, "
                f"{tuple(variable.shape)}.",
                inner=type(self.inner).__name__,
                shape=tuple(slot.shape),
            )
            slots[name] = VariableRows(slot, gradient.indices)
        self._decay(variable, rows, learning_rate)
        index = self.inner._get_variable_index(variable)
        lists = {name: list(getattr(self.inner, name)) for name in slots}
        for name, slot in slots.items():
            lists[name][index] = slot
        inner = _shallow_copy(
            self.inner, _get_variable_index=lambda _: index, **lists
        )
        inner.update_step(gradient.values, rows, learning_rate)
        for part in (rows, *slots.values()):
            part.write()

    def _decay(self, variable, rows, learning_rate):
        if self.inner.weight_decay and self.inner._use_weight_decay(variable):
            decay = tf.cast(self.inner.weight_decay, rows.dtype)
            rows.assign_sub(rows * decay * tf.cast(learning_rate, rows.dtype))

    # Keras saves `inner`, which has all variables.
    def save_own_variables(self, store):
        pass

    def load_own_variables(self, store):
        pass

    def get_config(self):
        return {
            "inner": keras.optimizers.serialize(self.inner),
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        config["inner"] = keras.optimizers.deserialize(
            config["inner"], custom_objects=custom_objects
        )
        return cls(**config)


def _check_inner(inner):
    inner = keras.optimizers.get(inner)
    # The optimizers that exist depend on Keras's version.
    refused = tuple(getattr(keras.optimizers, name, ()) for name in _REFUSED)
    require(
        isinstance(inner, keras.optimizers.Optimizer)
        and not isinstance(inner, SparseRowOptimizer)
        and not isinstance(inner, refused),
        "`inner` must update each element of a variable separately, as Adam "
        "does, and must not wrap another optimizer.",
        inner=type(inner).__name__,
    )
    for setting in _UNSUPPORTED:
        _check_setting(inner, setting, getattr(inner, setting))
    return inner


def _check_setting(inner, setting, value):
    require(
        setting not in _UNSUPPORTED or not value,
        f"`inner` must not have `{setting}`, which needs dense gradients.",
        **{"inner": type(inner).__name__, setting: value},
    )


def _shallow_copy(optimizer, **attributes):
    # `copy.copy` would serialize the optimizer.
    copied = object.__new__(type(optimizer))
    vars(copied).update(vars(optimizer), **attributes)
    return copied


def _merge(gradient):
    """Merges the rows of a sparse gradient."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    indices, values = gradient.indices, gradient.values

    def add():
        return tf.math.unsorted_segment_sum(values, places, size)

    if in_xla():
        # There, `unique` of a result of `unique` ends in undefined values. Each
        # sum stays at its id's first place; other places are not written.
        shape = tf.get_static_value(gradient.dense_shape)
        num_rows = indices.dtype.max if shape is None else shape[0]
        places = first_places(indices, num_rows)
        size = tf.size(indices)
        is_first = tf.equal(places, tf.range(size))
        indices = tf.where(is_first, indices, indices.dtype.max)
        merged = add()
    else:
        indices, places = tf.unique(indices)
        size = tf.size(indices)
        # Often, no id repeats.
        merged = tf.cond(size == tf.size(places), lambda: values, add)
    return tf.IndexedSlices(merged, indices, gradient.dense_shape)


def _with_values(gradient, values, before):
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    indices = gradient.indices
    if on_several_devices():
        # Keep the number of rows, see `read_unique_rows`.
        room = tf.size(before.indices)
        indices = pad_ids(indices, room)
        values = in_room(values, room)
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


class VariableRows:
    """Rows of a variable that are read once, updated and written back."""

    def __init__(self, variable, indices):
        if isinstance(variable, keras.Variable):
            variable = variable.value
        self._variable = variable
        self._indices = indices
        # `tf.gather` reads all of a mirrored variable.
        self._rows = self._read = tf.raw_ops.ResourceGather(
            resource=variable.handle, indices=indices, dtype=variable.dtype
        )

    @property
    def shape(self):
        return self._rows.shape

    @property
    def dtype(self):
        return self._rows.dtype

    @property
    def value(self):
        # As with a Keras variable, this includes assignments.
        return self

    def assign(self, value):
        self._rows = tf.cast(value, self.dtype)

    def assign_add(self, value):
        self.assign(self._rows + tf.cast(value, self.dtype))

    def assign_sub(self, value):
        self.assign(self._rows - tf.cast(value, self.dtype))

    def write(self):
        """Writes the rows to the variable if they have changed."""
        if self._rows is not self._read:
            self._variable.scatter_update(
                tf.IndexedSlices(self._rows, self._indices)
            )

    def __tf_tensor__(self, dtype=None, name=None):
        return tf.convert_to_tensor(self._rows, dtype=dtype, name=name)


def _operator(name):
    def operator(self, *args):
        return getattr(self._rows, name)(*args)

    return operator


for _name in tf.Tensor.OVERLOADABLE_OPERATORS:
    setattr(VariableRows, _name, _operator(_name))
