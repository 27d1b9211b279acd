"""Replaces the layers of a copy by their forms for LiteRT."""

import dataclasses
import functools
import inspect
import math

import keras
import tensorflow as tf

from keras_compembed.classes.beam_tree import BeamTree
from keras_compembed.exchange.exchange_layers import exchange_layers
from keras_compembed.exchange.only_readers import Graphs
from keras_compembed.exchange.only_readers import find_poolings
from keras_compembed.exchange.only_readers import ids_of
from keras_compembed.layers.cane_softmax import CANESoftmax
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.options import Combiner
from keras_compembed.litert.litert_form import ROOM
from keras_compembed.litert.litert_form import count_ids
from keras_compembed.litert.litert_form import length_of
from keras_compembed.litert.litert_form import scale_inputs
from keras_compembed.utils.files import WEIGHT_BYTES
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.validation import require

# Layers that only pass on their input in inference.
_PASSES = (
    keras.layers.ActivityRegularization,
    keras.layers.AlphaDropout,
    keras.layers.Dropout,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
    keras.layers.Identity,
    keras.layers.SpatialDropout1D,
)


def exchange_forms(model, options):
    """Replaces layers; returns forms by layer, and names of folded layers."""
    layers = all_layers(model)
    for layer in layers:
        if isinstance(layer, CANESoftmax) and layer.temperature is not None:
            layer.scores.fix_lengths()
    # Make all forms before the first exchange: encoders are layers as well.
    forms = {
        layer: layer.store.litert(options, layer.path)
        for layer in layers
        if isinstance(layer, LookupLayer)
    }
    folded = _rewrite_graphs(model, forms, options)
    for layer, form in forms.items():
        layer.store = form
        if layer.combiner is not None and form.has_features:
            layer.combiner = FormCombiner(
                layer.combiner.name, layer.combiner.empty_value, form
            )
    for layer in layers:
        if isinstance(layer, keras.layers.RNN):
            # Not by `unroll`: Keras then ignores `zero_output_for_mask`.
            unrolls = layer.unroll or options.unroll
            layer.inner_loop = functools.partial(inner_loop, layer, unrolls)
        elif isinstance(layer, keras.layers.TimeDistributed):
            layer.call = functools.partial(call_on_all_steps, layer)
        elif isinstance(getattr(layer, "selector", None), BeamTree):
            # One matrix, instead of sums of rows in each call.
            parts = layer.selector.frontier(layer.scores)
            parts = [tf.constant(each.numpy()) for each in parts]
            layer.selector.frontier = functools.partial(_same, parts)
    return forms, folded


def _same(value, *args):
    return value


def _rewrite_graphs(model, forms, options):
    """Pools by tables and folds layers into them; returns folded names."""
    graphs = Graphs(model)
    tables = {layer for layer in forms if _is_plain(layer, forms[layer])}
    poolings = find_poolings(
        graphs, lambda x: x in tables and x.combiner is None, _PASSES
    )
    pairs, pooled, folded = {}, {}, {}
    for graph, node in list(graphs.single_calls(lambda x: x in tables)):
        layer, pooling = node.operation, poolings.get(id(node.operation))
        form, shape = forms[layer], node.input_tensors[0].shape
        sums = pooling is not None or layer.combiner is not None
        if len(shape) != 2 or not (sums or ids_of(node) is not None):
            continue
        owner = _only_reader(graphs, graph, pooling or node)
        made = owner and fold_into(form, layer, owner, options, sums, shape[1])
        if made:
            pairs.update(made)
            folded[owner.name] = None
        if pooling is not None and (made or form.sums_faster(shape[1])):
            pooled[layer] = pooling
    # Layers that also pool rows of other tables stay.
    stay = {
        pooling.operation
        for pooling in poolings.values()
        if pooling not in pooled.values()
    }
    for layer, pooling in pooled.items():
        operation = pooling.operation
        if operation in stay:
            continue
        layer.combiner = Combiner(pooling.combiner, pooling.empty_value)
        layer.mask_zero = pooling.mask_zero
        pairs.update((x, Twin(x, _same)) for x in pooling.passed)
        expand = functools.partial(tf.expand_dims, axis=1)
        hand_on = expand if operation.keepdims else _same
        pairs[operation] = Twin(operation, hand_on)
    exchange_layers(model, list(pairs.items()))
    return tuple(folded)


def _only_reader(graphs, graph, node):
    """The only layer that reads the output of a lookup or its pooling."""
    if graphs.num_calls(node.operation) > 1 or _has_other_value(node.operation):
        return None
    (output,) = node.outputs
    found = graphs.only_reader(graph, output, _PASSES)
    if found is None or graphs.num_calls(found[0].operation) > 1:
        return None
    return found[0].operation


def _is_plain(layer, form):
    """Whether a layer overrides nothing of its base class."""
    return (
        form.has_features
        and type(layer).call is LookupLayer.call
        and type(layer).look_up is LookupLayer.look_up
    )


def _has_other_value(layer):
    """Whether an empty text may have another value than zeros."""
    combiner = getattr(layer, "combiner", None)
    return bool(
        combiner
        and combiner.name != "sum"
        and combiner.empty_value
        and not math.isnan(combiner.empty_value)
    )


@dataclasses.dataclass(frozen=True)
class FormCombiner(Combiner):
    """A combiner that sums rows by the form of a store."""

    form: object = None

    def combine(self, inputs, weights, mask, dtype, mask_zero, sum_rows):
        if (
            weights is not None
            or not isinstance(inputs, tf.Tensor)
            or inputs.shape.rank != 2
            or not self.form.may_sum(inputs.shape[1])
        ):
            return super().combine(
                inputs, weights, mask, dtype, mask_zero, self._sum_rows
            )
        if mask is None:
            mask = getattr(inputs, "_keras_mask", None)
        self.check_shapes(inputs, None, mask)
        counts = None if mask is None else tf.cast(mask, tf.bool)
        if mask_zero:
            counts = inputs != 0 if counts is None else (inputs != 0) & counts
        is_mean = self.name == "mean" and counts is None
        sums = self.form.pool(inputs, counts, mean=is_mean)
        if self.name == "sum" or is_mean:
            return sums
        return self._divide(sums, inputs, counts)

    def _divide(self, sums, ids, counts):
        size = length_of(ids) if counts is None else count_ids(counts)
        is_empty = tf.equal(size, 0.0)
        is_nan = math.isnan(self.empty_value)
        if not is_nan:
            size = tf.maximum(size, 1.0)
        sums /= tf.sqrt(size) if self.name == "sqrtn" else size
        if counts is None or is_nan or not self.empty_value:
            return sums
        return tf.where(is_empty, self.empty_value, sums)

    def _sum_rows(self, ids, weights, counts):
        if ids.shape[1] == 1 or not self.form.may_sum(ids.shape[1]):
            return self.form.sum_rows(ids, weights)
        weights = tf.cast(weights, tf.float32)
        if not math.isnan(self.empty_value):
            return self.form.pool(ids, weights=weights)
        # NaN must not enter products, which may be int8.
        lost = tf.not_equal(weights, weights)
        sums = self.form.pool(ids, weights=tf.where(lost, 0.0, weights))
        is_lost = tf.reduce_any(lost, axis=1, keepdims=True)
        return sums + tf.where(is_lost, math.nan, 0.0)


def fold_into(form, layer, owner, options, sums, length):
    """Replacements that fold a reader into a lookup; {} if that is slow."""
    is_dense = type(owner) is keras.layers.Dense
    if not _can_fold(owner, form, options, sums):
        return {}
    kernel = keras.ops.convert_to_numpy(owner.kernel).astype("float32")
    width = kernel.shape[-1] if is_dense else kernel.shape[0] * kernel.shape[-1]
    if not _pays(options, form, sums, length, width):
        return {}
    if is_dense:
        form.kernel, layer.output_dim = kernel, owner.units
        return {owner: Twin(owner, functools.partial(_finish, owner))}
    twin = keras.layers.Conv1D.from_config(owner.get_config())
    twin.build((None, None, form.columns))
    kernel, scales = options.even_rows(form.fold(kernel))
    twin.set_weights([kernel, *owner.get_weights()[1:]])
    spread = Twin(layer, lambda ids: scale_inputs(form.spread(ids), scales))
    return {layer: spread, owner: twin}


def _pays(options, form, sums, length, width):
    """Whether folding kernels into a table is faster."""
    if not form.can_fold:
        return False
    quantize = options.quantize
    number = WEIGHT_BYTES[quantize]
    # Bytes per weight of a layer; codebooks have others.
    of_kernel = 4 if quantize == "int8_codebooks" else number
    before = number * form.num_numbers
    before += of_kernel * form.store.output_dim * width
    after = number * form.columns * width
    room = ROOM[options.optimize_for] * (form.num_bytes + before)
    if not room:
        return after < before
    return after <= before + room and form.folds_faster(width, sums, length)


def _can_fold(owner, form, options, sums):
    """Whether a layer is only a product with its kernel, as its table needs."""
    if type(owner) is keras.layers.Conv1D:
        is_usual = (
            # int8 can be set for matrices only, not for kernels.
            options.quantize != "int8_codebooks"
            and owner.groups == 1
            and owner.data_format == "channels_last"
            and form.can_spread
            and not sums
        )
    else:
        is_usual = type(owner) is keras.layers.Dense
    return (
        is_usual
        and owner.built
        and owner.compute_dtype == "float32"
        and owner.quantization_mode is None
        and not owner.lora_enabled
        and keras.backend.is_float_dtype(owner.kernel.dtype)
    )


def _finish(layer, outputs):
    """Applies the bias and activation of a layer."""
    if layer.bias is not None:
        outputs = keras.ops.add(outputs, layer.bias)
    return outputs if layer.activation is None else layer.activation(outputs)


class Twin(keras.layers.Layer):
    """Applies a function to the first input of a layer."""

    def __init__(self, layer, function):
        super().__init__(name=layer.name)
        self.autocast = False
        self.supports_masking = self.built = True
        self._function = function

    def call(self, inputs, *args, **kwargs):
        return self._function(inputs)


def takes(layer, name):
    """Whether the `call` of a layer has an argument."""
    return name in inspect.signature(layer.call).parameters


def call_on_all_steps(layer, inputs, training=None, mask=None):
    """Replaces the method `call` of a `TimeDistributed` layer."""

    def merge(tensor):
        shape = tf.concat([[-1], tf.shape(tensor)[2:]], axis=0)
        merged = tf.reshape(tensor, shape)
        merged.set_shape((None, *tensor.shape[2:]))
        return merged

    kwargs = {}
    if mask is not None and takes(layer.layer, "mask"):
        kwargs["mask"] = merge(mask)
    if takes(layer.layer, "training"):
        kwargs["training"] = training
    outputs = layer.layer.call(merge(inputs), **kwargs)

    def split(output):
        shape = tf.concat([tf.shape(inputs)[:2], tf.shape(output)[1:]], axis=0)
        steps = tf.reshape(output, shape)
        steps.set_shape((*inputs.shape[:2], *output.shape[1:]))
        return steps

    return keras.tree.map_structure(split, outputs)


def inner_loop(
    layer, unrolls, sequences, initial_state, mask=None, training=False
):
    """Replaces the method `inner_loop` of a recurrent layer."""
    cell_kwargs = {}
    if takes(layer.cell, "training"):
        cell_kwargs["training"] = training

    def run_cell(inputs, states):
        output, states = layer.cell(inputs, states, **cell_kwargs)
        return output, tuple(keras.tree.flatten(states))

    if keras.tree.is_nested(mask):
        mask = mask[0]
    if layer.go_backwards:
        sequences = tf.reverse(sequences, [1])
        mask = None if mask is None else tf.reverse(mask, [1])
    steps = tf.shape(sequences)[1]
    states = tuple(keras.tree.flatten(initial_state))

    def pack(states):
        return keras.tree.pack_sequence_as(initial_state, list(states))

    # Its value counts only if the mask hides the first step; then it is 0.
    first, _ = run_cell(sequences[:, 0], pack(states))
    output = tf.zeros_like(first)

    def advance(step, output, states):
        new_output, new_states = run_cell(
            tf.gather(sequences, step, axis=1), pack(states)
        )
        if mask is not None:
            seen = tf.gather(tf.cast(mask, tf.bool), step, axis=1)
            other = (
                tf.zeros_like(output) if layer.zero_output_for_mask else output
            )
            new_output = _where(seen, new_output, other)
            new_states = tuple(
                _where(seen, new, old)
                for new, old in zip(new_states, states, strict=True)
            )
        return new_output, new_states

    if unrolls:
        # Unroll for runtimes without loops.
        require(
            sequences.shape[1] is not None,
            "Unrolled layers must have inputs of a known length: give the "
            "tokenizer a `sequence_length`, or the input a shape.",
            layer=layer.name,
            shape=tuple(sequences.shape),
        )
        found = []
        for step in range(sequences.shape[1]):
            output, states = advance(step, output, states)
            found.append(output)
        outputs = found if layer.return_sequences else [output]
        return output, tf.stack(outputs, axis=1), pack(states)

    def body(step, output, outputs, *states):
        new_output, new_states = advance(step, output, states)
        if layer.return_sequences:
            # LiteRT loops cannot grow a tensor.
            here = tf.reshape(tf.equal(every_step, step), ones)
            outputs = tf.where(here, tf.expand_dims(new_output, 1), outputs)
        return (step + 1, new_output, outputs, *new_states)

    ones = (1, -1, *(1 for _ in first.shape[1:]))
    every_step = tf.range(steps)
    outputs = tf.expand_dims(output, 1)
    if layer.return_sequences:
        outputs = tf.repeat(outputs, steps, axis=1)
    _, output, outputs, *states = tf.while_loop(
        lambda step, *_: step < steps,
        body,
        (tf.constant(0), output, outputs, *states),
    )
    if layer.return_sequences:
        outputs.set_shape(sequences.shape[:2] + output.shape[1:])
    return output, outputs, pack(states)


def _where(seen, new, old):
    """`new` where `seen`, else `old`."""
    for _ in range(len(new.shape) - 1):
        seen = tf.expand_dims(seen, -1)
    return tf.where(seen, new, old)
