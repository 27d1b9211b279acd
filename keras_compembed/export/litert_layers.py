"""Gives the layers of a copy the forms that they have in LiteRT files."""

import dataclasses
import functools
import math

import keras
import tensorflow as tf

from keras_compembed.classes.beam_tree import BeamTree
from keras_compembed.exchange.exchange_layers import exchange_layers
from keras_compembed.exchange.only_readers import Graphs
from keras_compembed.exchange.only_readers import find_poolings
from keras_compembed.exchange.only_readers import ids_of
from keras_compembed.export.recurrent import call_on_all_steps
from keras_compembed.export.recurrent import inner_loop
from keras_compembed.layers.cane_softmax import CANESoftmax
from keras_compembed.layers.combiner import Combiner
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.litert.row_products import ROOM
from keras_compembed.litert.row_products import count_ids
from keras_compembed.litert.row_products import length_of
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.sizes import WEIGHT_BYTES

# What hands on its input outside of training.
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
    """Makes the layers of a copy compute in ops that LiteRT has.

    Returns the forms of look-up layers by layer, and names of folded layers.
    """
    layers = all_layers(model)
    # All before one is exchanged: encoders of features are layers, too.
    forms = {
        layer: layer.store.litert(options, layer.path)
        for layer in layers
        if isinstance(layer, LookupLayer)
    }
    folded = _rewrite_graphs(model, forms, options)
    for layer, form in forms.items():
        layer.store = form
        if layer.combiner is not None and form.products is not None:
            layer.combiner = FormCombiner(
                layer.combiner.name, layer.combiner.empty_value, form
            )
    for layer in layers:
        if isinstance(layer, keras.layers.RNN):
            layer.inner_loop = functools.partial(inner_loop, layer)
        elif isinstance(layer, keras.layers.TimeDistributed):
            layer.call = functools.partial(call_on_all_steps, layer)
        elif isinstance(layer, CANESoftmax):
            if isinstance(layer.selector, BeamTree):
                _fix_frontier(layer)
    return forms, folded


def _fix_frontier(head):
    """One matrix, in place of rows to be added up in each call."""
    parts = head.selector.frontier(head.scores)
    constants = [tf.constant(each.numpy()) for each in parts]
    head.selector.frontier = lambda scores: constants


def _rewrite_graphs(model, forms, options):
    """Pools by tables, and folds layers into them; names of the latter."""
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
        if pooling is not None and (made or form.products.may_sum(shape[1])):
            pooled[layer] = pooling
    # What pools rows of others, too, which stay.
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
        pairs.update((x, Twin(x, lambda rows: rows)) for x in pooling.passed)
        pairs[operation] = Twin(
            operation, functools.partial(_pass, operation.keepdims)
        )
    exchange_layers(model, list(pairs.items()))
    return tuple(folded)


def _only_reader(graphs, graph, node):
    """The layer that alone reads what a look-up or its pooling gives."""
    if graphs.num_calls(node.operation) > 1 or _has_other_value(node.operation):
        return None
    (output,) = node.outputs
    found = graphs.only_reader(graph, output, _PASSES)
    if found is None or graphs.num_calls(found[0].operation) > 1:
        return None
    return found[0].operation


def _is_plain(layer, form):
    """Whether a layer does no more than its own base."""
    return (
        form.products is not None
        and type(layer).call is LookupLayer.call
        and type(layer).look_up is LookupLayer.look_up
    )


def _has_other_value(layer):
    """Whether there may be something else where there is nothing to add up."""
    combiner = getattr(layer, "combiner", None)
    return bool(
        combiner
        and combiner.name != "sum"
        and combiner.empty_value
        and not math.isnan(combiner.empty_value)
    )


def _pass(keepdims, vectors):
    """Hands on vectors that are pooled already."""
    return tf.expand_dims(vectors, 1) if keepdims else vectors


@dataclasses.dataclass(frozen=True)
class FormCombiner(Combiner):
    """A combiner that adds up rows by the form of a store."""

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
        # Not into products, which may be of 8-bit numbers.
        lost = tf.not_equal(weights, weights)
        sums = self.form.pool(ids, weights=tf.where(lost, 0.0, weights))
        is_lost = tf.reduce_any(lost, axis=1, keepdims=True)
        return sums + tf.where(is_lost, math.nan, 0.0)


def fold_into(form, layer, owner, options, sums, length):
    """Pairs to exchange so that a look-up gives what its reader makes of it.

    Empty where that is not possible, or does not pay. `sums` tells whether
    vectors are added up before.
    """
    is_dense = type(owner) is keras.layers.Dense
    if not _can_fold(owner, form, options, sums):
        return {}
    kernel = keras.ops.convert_to_numpy(owner.kernel).astype("float32")
    width = kernel.shape[-1] if is_dense else kernel.shape[0] * kernel.shape[-1]
    if not _pays(options, form.products, sums, length, width):
        return {}
    finish = functools.partial(_finish, owner)
    if is_dense:
        form.kernel, layer.output_dim = kernel, owner.units
        return {owner: Twin(owner, finish)}
    kernel = tf.constant(form.products.fold(kernel))
    return {
        layer: Twin(layer, form.spread),
        owner: Twin(owner, lambda x: finish(_convolve(owner, x, kernel))),
    }


def _pays(options, products, sums, length, width):
    """Whether kernels shall become part of a table."""
    if not products.can_fold:
        return False
    quantize = options.quantize
    number = WEIGHT_BYTES[quantize]
    # Of layers, unlike of codebooks.
    of_kernel = 4 if quantize == "int8_codebooks" else number
    before = number * products.num_numbers
    before += of_kernel * products.width * width
    after = number * products.columns * width
    room = ROOM[options.optimize_for] * (products.num_bytes + before)
    if not room:
        return after < before
    return after <= before + room and products.folds_faster(width, sums, length)


def _can_fold(owner, form, options, sums):
    """Whether a layer computes what its kernel says, in ops of its table."""
    if type(owner) is keras.layers.Conv1D:
        is_usual = (
            # Only of matrices, not of kernels, can int8 be asked for.
            options.quantize != "int8_codebooks"
            and owner.groups == 1
            and owner.data_format == "channels_last"
            and form.products.can_spread
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
    """Adds the bias of a layer, and its activation."""
    if layer.bias is not None:
        outputs = keras.ops.add(outputs, layer.bias)
    return outputs if layer.activation is None else layer.activation(outputs)


def _convolve(layer, inputs, kernel):
    """What a `Conv1D` gives before bias and activation, by another kernel."""
    padding = layer.padding
    if padding == "causal":
        before = layer.dilation_rate[0] * (layer.kernel_size[0] - 1)
        inputs = keras.ops.pad(inputs, [[0, 0], [before, 0], [0, 0]])
        padding = "valid"
    return keras.ops.conv(
        inputs,
        kernel,
        strides=list(layer.strides),
        padding=padding,
        data_format=layer.data_format,
        dilation_rate=layer.dilation_rate,
    )


class Twin(keras.layers.Layer):
    """Gives what a function makes of the first input of a layer."""

    def __init__(self, layer, function):
        super().__init__(name=layer.name)
        self.autocast = False
        self.supports_masking = self.built = True
        self._function = function

    def call(self, inputs, *args, **kwargs):
        return self._function(inputs)
