"""Follows vectors of look-up layers through layers that are linear in them.

While a model is traced, what a look-up layer gives is remembered, by the
tensor itself, and so is what some layers make of it. Layers between that give
back the same tensor, as Dropout, change nothing; others make another tensor,
of which nothing is known.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.export.marks import MarkedLookup
from keras_compembed.export.marks import Texts
from keras_compembed.export.marks import is_known
from keras_compembed.layers.ant_embed_reduce import ANTEmbedReduce
from keras_compembed.layers.code_embed_reduce import CodeEmbedReduce
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.utils.swapped import swapped

# Part of what layers take in a file that may be added to make them faster.
_SMALL_PART = 0.02
# Bytes of a number of codebooks, and of one of a kernel.
_BYTES_OF_NUMBER = {None: 4, "float16": 2, "int8": 1, "int8_codebooks": 1}
_BYTES_OF_KERNEL = {**_BYTES_OF_NUMBER, "int8_codebooks": 4}
# Layers that add vectors up.
_REDUCING = (CodeEmbedReduce, ANTEmbedReduce)
# Of the operations behind `keras.ops`, which have no public name.
_MODULE_OF_OPS = "keras.src.ops.numpy"


@dataclasses.dataclass(eq=False)
class Vectors:
    """What is known of a tensor.

    Attributes:
        tensor: The tensor, vectors of a look-up layer or sums of them; None
            if nothing is composed.
        layer: The look-up layer.
        inputs: Tensor that the layer was called with.
        ids: The same as int32.
        products: `CodeProducts` or `AnchorProducts`.
        reference: Function from int32 arrays of ids to what Keras gives.
        features: For sums, function from ids to features.
        finish: For sums, function of what features times a matrix are, and of
            ids.
        is_held: Boolean, whether `reference` needs nothing but ids.
    """

    tensor: tf.Tensor
    layer: keras.layers.Layer
    inputs: tf.Tensor
    ids: tf.Tensor
    products: object
    reference: Callable
    features: Callable | None = None
    finish: Callable | None = None
    is_held: bool = True


@dataclasses.dataclass(eq=False)
class Site:
    """A place where a layer took something else than its input.

    Attributes:
        key: The same in each trace of a model.
        owner: The layer, or the operation.
        source: `Vectors`, the input.
        output: The tensor made.
        width: Integer, numbers folded for each feature; 0 if none is.
        lookup: `MarkedLookup` of what was made.
    """

    key: tuple
    owner: object
    source: Vectors
    output: tf.Tensor | None = None
    width: int = 0
    lookup: MarkedLookup | None = None


class LinearLayers:
    """Pools in code space, and folds layers into codebooks, while tracing.

    A first trace takes all that may be pooled and folded. `reconsider` then
    finds what must be left alone, because others read the vectors too or the
    file would grow, and asks for another trace.

    Args:
        lookups: List that `MarkedLookup`s are appended to.
        options: `ExportOptions`.
    """

    def __init__(self, lookups, options):
        self._lookups = lookups
        self._options = options
        self._folded = {}
        self._refused = set()
        self.restart()

    def restart(self):
        """Forgets a trace, but not what must be left alone."""
        self._known, self._calls, self.sites = {}, {}, []
        self._lookups[:] = [x for x in self._lookups if x.method != "texts"]
        for lookup in self._lookups:
            lookup.calls, lookup.has_constants = 0, False
            lookup.outputs.clear()

    @property
    def pooled_layers(self):
        """Names of look-up layers that were pooled, in order."""
        return _names(
            site.source.layer
            for site in self.sites
            if not site.width or site.source.features is not None
        )

    @property
    def folded_layers(self):
        """Names of layers that became part of a table, in order."""
        return _names(s.owner for s in self.sites if s.width)

    @contextlib.contextmanager
    def of_table(self, layer, products):
        """Follows the vectors of a look-up layer for a while.

        Args:
            layer: The layer.
            products: Its `CodeProducts` or `AnchorProducts`.
        """
        look_up = layer.look_up

        def remember(inputs, embed):
            tensor = look_up(inputs, embed)
            if isinstance(tensor, tf.Tensor):
                ids = tf.convert_to_tensor(inputs)
                if tensor.dtype == tf.float32 and not is_known(ids):
                    self._remember(
                        Vectors(
                            tensor,
                            layer,
                            ids,
                            tf.cast(ids, tf.int32),
                            products,
                            lambda x: look_up(x, layer.embed),
                        )
                    )
            return tensor

        swaps, kind = {}, type(layer)
        # Not what a subclass does in another way.
        if kind.look_up is LookupLayer.look_up:
            swaps["look_up"] = remember
        if isinstance(layer, _REDUCING):
            swaps["sum_rows"] = self._weighted_sums(layer, products)
            if kind.call in [each.call for each in _REDUCING]:
                swaps["call"] = self._reducing(layer, products)
        with swapped(layer, **swaps):
            yield

    def stand_in(self, layer):
        """A function in place of a layer's `call`, or None."""
        if type(layer) is keras.layers.GlobalAveragePooling1D:
            if layer.data_format == "channels_last":
                return self._pooling(layer, True, layer.keepdims)
        elif not self._options.fold:
            return None
        elif type(layer) is keras.layers.Dense:
            if _is_plain(layer):
                return self._dense(layer)
        elif type(layer) is keras.layers.Conv1D:
            if (
                _is_plain(layer)
                # Only of matrices, not of kernels, can int8 be asked for.
                and self._options.quantize != "int8_codebooks"
                and layer.groups == 1
                and layer.data_format == "channels_last"
            ):
                return self._convolution(layer)
        return None

    def stand_in_of_operation(self, operation):
        """Same, for an operation of a functional model."""
        kind = type(operation)
        if kind.__module__ != _MODULE_OF_OPS:
            return None
        if kind.__name__ not in ("Mean", "Sum"):
            return None
        axis = operation.axis
        if axis is None or [x % 3 for x in _as_list(axis)] != [1]:
            return None
        return self._pooling(
            operation, kind.__name__ == "Mean", operation.keepdims
        )

    def _remember(self, vectors):
        self._known[id(vectors.tensor)] = vectors

    def _find(self, tensor, owner):
        """What is known of a tensor here, and the key of the place."""
        number = self._calls.get(id(owner), 0)
        self._calls[id(owner)] = number + 1
        key = id(owner), number
        known = self._known.get(id(tensor))
        if (
            known is None
            or key in self._refused
            or known.ids.graph is not tf.compat.v1.get_default_graph()
        ):
            return None, key
        return known, key

    def _mark(self, vectors, texts, function):
        """Calls a function of the ids, written down between marks."""
        lookup = MarkedLookup(
            vectors.layer, "texts", len(self._lookups), texts=texts
        )
        lookup.has_other_inputs = not vectors.is_held
        self._lookups.append(lookup)
        return lookup.marked(function)(vectors.ids)

    def _add_site(self, key, owner, vectors, output, width=0):
        """Notes what was made by the last mark."""
        self.sites.append(
            Site(key, owner, vectors, output, width, self._lookups[-1])
        )

    def _pooling(self, owner, mean, keepdims):
        original = owner.call

        def call(inputs, mask=None):
            def as_it_was(x, mask):
                return original(x) if mask is None else original(x, mask=mask)

            vectors, key = self._find(inputs, owner)
            if (
                vectors is None
                or vectors.features is not None
                or vectors.ids.shape.rank != 2
                or (mask is not None and not _is_mask(mask))
            ):
                return as_it_was(inputs, mask)
            length = vectors.ids.shape[1]
            divides = mean and mask is not None
            is_of_ids = mask is None or _is_mask_of(mask, vectors)
            size = None if is_of_ids else _count(mask)

            def reference(ids):
                known = None if mask is None else tf.not_equal(ids, 0)
                pooled = as_it_was(vectors.reference(ids), known)
                return pooled[:, 0] if keepdims else pooled

            def counts(ids):
                if mask is None:
                    return None
                # Of the same ids, which then are all that goes in. Others
                # may be for all texts, or all ids of one, as Keras has it.
                return ids != 0 if is_of_ids else mask & (ids >= 0)

            def finish(sums, ids):
                if not divides:
                    return sums
                return sums / (_count(ids != 0) if is_of_ids else size)

            pooled = dataclasses.replace(
                vectors,
                reference=reference,
                features=lambda ids: vectors.products.sums(
                    ids,
                    counts(ids),
                    mean=mean and not divides,
                ),
                finish=finish,
                is_held=is_of_ids,
            )
            if not vectors.products.may_sum(length):
                # As it was, unless a layer behind it is folded.
                pooled.tensor = as_it_was(inputs, mask)
                if not keepdims:
                    self._remember(pooled)
                return pooled.tensor
            pooled.tensor = self._multiply(pooled)
            self._add_site(key, owner, vectors, pooled.tensor)
            if keepdims:
                return tf.expand_dims(pooled.tensor, 1)
            self._remember(pooled)
            return pooled.tensor

        return call

    def _multiply(self, pooled, matrix=None, reference=None):
        """Sums of vectors as a product, with a mark before and after it."""
        if matrix is None:
            matrix = self._fold(pooled.products)
        return self._mark(
            pooled,
            Texts(reference or pooled.reference),
            lambda ids: pooled.finish(
                tf.matmul(pooled.features(ids), self._constant(matrix)), ids
            ),
        )

    def _constant(self, matrix):
        return tf.constant(self._options.note(matrix))

    def _fold(self, products, owner=None):
        """The matrix of products, times a kernel of rank 2 or 3.

        The same array each time, so that the file has one.
        """
        key = id(products), id(owner)
        if key not in self._folded:
            if owner is None:
                matrix = products.fold()
            else:
                matrix = products.fold(_read_kernel(owner))
            self._folded[key] = matrix
        return self._folded[key]

    def _dense(self, layer):
        original = layer.call

        def call(inputs, *args, **kwargs):
            vectors, key = self._find(inputs, layer)
            if vectors is None or not self._pays(vectors, layer.units):
                return original(inputs, *args, **kwargs)
            kernel = _read_kernel(layer)

            def reference(ids):
                return tf.linalg.matmul(vectors.reference(ids), kernel)

            if vectors.features is not None:
                outputs = self._multiply(
                    vectors, self._fold(vectors.products, layer), reference
                )
            else:
                flat = dataclasses.replace(
                    vectors, ids=tf.reshape(vectors.ids, [-1])
                )
                outputs = self._mark(
                    flat,
                    Texts(reference, window=0),
                    lambda ids: vectors.products.rows(ids, kernel),
                )
                outputs = _unflatten(outputs, vectors.ids, layer.units)
            self._add_site(key, layer, vectors, outputs, layer.units)
            return _finish(layer, outputs)

        return call

    def _convolution(self, layer):
        original = layer.call

        def call(inputs, *args, **kwargs):
            vectors, key = self._find(inputs, layer)
            taps, _, filters = layer.kernel.shape
            if (
                vectors is None
                or vectors.features is not None
                or vectors.ids.shape.rank != 2
                or not vectors.products.can_spread
                or not self._pays(vectors, taps * filters)
            ):
                return original(inputs, *args, **kwargs)
            kernel = _read_kernel(layer)
            folded = self._fold(vectors.products, layer)
            outputs = self._mark(
                vectors,
                Texts(
                    lambda ids: _convolve(
                        layer, vectors.reference(ids), kernel
                    ),
                    window=1 + layer.dilation_rate[0] * (taps - 1),
                    step=layer.strides[0],
                ),
                lambda ids: _convolve(
                    layer, vectors.products.spread(ids), tf.constant(folded)
                ),
            )
            self._add_site(key, layer, vectors, outputs, taps * filters)
            return _finish(layer, outputs)

        return call

    def _reducing(self, layer, products):
        """A function in place of `call` of a layer that sums by itself."""
        original = layer.call

        def call(inputs, weights=None, mask=None, reverse=False, **kwargs):
            is_plain = (
                not reverse
                and weights is None
                and isinstance(inputs, tf.Tensor)
                and inputs.shape.rank == 2
                and not is_known(inputs)
                and products.may_sum(inputs.shape[1])
            )
            if not is_plain:
                return original(
                    inputs, weights=weights, mask=mask, reverse=reverse
                )
            if mask is None:
                mask = getattr(inputs, "_keras_mask", None)
            layer._combiner.check_shapes(inputs, None, mask)
            ids = tf.cast(inputs, tf.int32)
            has_counts = layer.mask_zero or mask is not None
            is_mean = layer.combiner == "mean" and not has_counts
            has_other_value = (
                has_counts
                and layer.combiner != "sum"
                and layer.empty_value != 0
                and not math.isnan(layer.empty_value)
            )

            def counts(ids):
                exist = None if mask is None else tf.cast(mask, tf.bool)
                if not layer.mask_zero:
                    return exist
                return ids != 0 if exist is None else (ids != 0) & exist

            def finish(sums, ids):
                if has_counts:
                    size = _count(counts(ids))
                else:
                    size = tf.cast(tf.shape(ids)[1], tf.float32)
                if layer.combiner == "sum" or is_mean:
                    return sums
                is_empty = tf.equal(size, 0.0)
                if not math.isnan(layer.empty_value):
                    size = tf.maximum(size, 1.0)
                if layer.combiner == "sqrtn":
                    size = tf.sqrt(size)
                sums /= size
                if has_other_value:
                    sums = tf.where(is_empty, layer.empty_value, sums)
                return sums

            pooled = Vectors(
                None,
                layer,
                inputs,
                ids,
                products,
                original,
                lambda x: products.sums(x, counts(x), mean=is_mean),
                finish,
                mask is None,
            )
            sums = pooled.tensor = self._multiply(pooled)
            self._note_reduced(layer, pooled)
            if not has_other_value:
                self._remember(pooled)
            return sums

        return call

    def _weighted_sums(self, layer, products):
        """A function in place of `sum_rows` of such a layer."""
        compose = layer.sum_rows

        def sum_rows(ids, weights):
            if (
                ids.shape[1] == 1
                or is_known(ids)
                or not products.may_sum(ids.shape[1])
            ):
                return compose(ids, weights)
            weights = tf.cast(weights, tf.float32)
            lost = None
            if math.isnan(layer.empty_value):
                # Not into products, which may be of 8-bit numbers.
                lost = tf.not_equal(weights, weights)
                weights = tf.where(lost, 0.0, weights)

            def finish(sums, ids):
                if lost is None:
                    return sums
                is_lost = tf.reduce_any(lost, axis=1, keepdims=True)
                return sums + tf.where(is_lost, math.nan, 0.0)

            pooled = Vectors(
                None,
                layer,
                ids,
                tf.cast(ids, tf.int32),
                products,
                None,
                lambda x: products.sums(x, weights=weights),
                finish,
                False,
            )
            pooled.tensor = self._multiply(pooled)
            self._note_reduced(layer, pooled)
            self._remember(pooled)
            return pooled.tensor

        return sum_rows

    def _note_reduced(self, layer, pooled):
        number = self._calls.get(id(layer), 0)
        self._calls[id(layer)] = number + 1
        source = dataclasses.replace(pooled, tensor=None, features=None)
        self._add_site((id(layer), number), layer, source, pooled.tensor)

    def reconsider(self, function):
        """Whether the model must be traced again, with less done to it.

        Args:
            function: The concrete function of the trace.
        """
        live = _LiveOps(function.graph)
        refused = {
            site.key for site in self.sites if live.holds(site.source.tensor)
        }
        by_source = {}
        for site in self.sites:
            if site.width:
                by_source.setdefault(id(site.source.tensor), []).append(site)
        for sites in by_source.values():
            if not self._pays_together(sites, live):
                refused.update(site.key for site in sites)
        self._refused |= refused
        if refused:
            return True
        self.sites = [site for site in self.sites if live.holds(site.output)]
        touched = {id(site.source.layer) for site in self.sites}
        for lookup in self._lookups:
            if id(lookup.layer) in touched and lookup.outputs:
                if not any(map(live.holds, lookup.outputs)):
                    # Its place was taken.
                    lookup.calls = 0
        return False

    def _pays_together(self, sites, live):
        """Whether layers that read the same vectors shall be folded."""
        vectors, products = sites[0].source, sites[0].source.products
        kept = kernels = 0
        for owner in {id(site.owner): site.owner for site in sites}.values():
            others = (s for s in self.sites if s.width and s.owner is owner)
            if live.reads(owner.kernel) or any(
                site.source.products is not products for site in others
            ):
                kernels += int(np.prod(owner.kernel.shape))
        folded = {id(site.lookup) for site in self.sites if site.width}
        if any(
            live.holds(output)
            for lookup in self._lookups
            if lookup.layer is vectors.layer and id(lookup) not in folded
            for output in lookup.outputs
        ):
            kept = products.num_numbers
        width = sum(site.width for site in sites)
        return self._pays(vectors, width, kept, kernels)

    def _pays(self, vectors, width, kept=0, kernels=0):
        """Whether kernels shall become part of a table.

        Args:
            vectors: `Vectors` that the kernels are for.
            width: Integer, numbers that kernels make of a vector.
            kept: Integer, numbers of codebooks that the file needs
                nevertheless, for other uses.
            kernels: Integer, same for kernels.
        """
        products, quantize = vectors.products, self._options.quantize
        number = _BYTES_OF_NUMBER[quantize]
        of_kernel = _BYTES_OF_KERNEL[quantize]
        before = number * products.num_numbers
        before += of_kernel * products.width * width
        after = number * (products.columns * width + kept)
        after += of_kernel * kernels
        goal = self._options.optimize_for
        if goal in ("size", "memory"):
            return after < before
        if vectors.features is None:
            cost = products.row_cost
        else:
            cost = products.sum_cost
        if cost(width) >= cost(products.width) + products.width * width:
            return False
        small = _SMALL_PART * (products.num_bytes + before)
        return goal == "latency" or after - before <= small


class _LiveOps:
    """What the outputs of a traced function depend on."""

    def __init__(self, graph):
        self._graph = graph
        self._names = {}

    def holds(self, tensor):
        """Whether a tensor is needed in its own graph."""
        if tensor is None:
            return False
        return tensor.op.name in self._live(tensor.graph)

    def reads(self, variable):
        """Whether a Keras variable is read."""
        handle = variable.value.handle
        live = self._live(self._graph)
        return any(
            outer is handle and any(op.name in live for op in inner.consumers())
            for outer, inner in self._graph.captures
        )

    def _live(self, graph):
        if id(graph) not in self._names:
            names = set()
            ahead = [tensor.op for tensor in graph.outputs]
            ahead += list(graph.control_outputs)
            while ahead:
                op = ahead.pop()
                if op.name not in names:
                    names.add(op.name)
                    ahead.extend(tensor.op for tensor in op.inputs)
                    ahead.extend(op.control_inputs)
            self._names[id(graph)] = names
        return self._names[id(graph)]


def _names(layers):
    return tuple(dict.fromkeys(layer.name for layer in layers))


def _as_list(axis):
    return [axis] if isinstance(axis, int) else list(axis)


def _is_plain(layer):
    """Whether a `Dense` or `Conv1D` computes what its kernel says."""
    return (
        layer.built
        and "call" not in vars(layer)
        and getattr(layer, "quantization_mode", None) is None
        and not layer.lora_enabled
        and keras.backend.is_float_dtype(layer.kernel.dtype)
    )


def _read_kernel(layer):
    # Not in the function that is traced.
    with tf.init_scope():
        return keras.ops.convert_to_numpy(layer.kernel).astype("float32")


def _is_mask(mask):
    """Whether a mask leaves ids out; older Keras weighs by other numbers."""
    return mask.dtype == tf.bool and tf.TensorShape(mask.shape).rank == 2


def _is_mask_of(mask, vectors):
    """Whether a mask is what the look-up layer makes of its ids."""
    if not vectors.layer.mask_zero or not tf.is_symbolic_tensor(mask):
        return False
    if mask.op.type != "NotEqual":
        return False
    ids, zero = mask.op.inputs
    return (
        ids.name == vectors.inputs.name
        and ids.graph is vectors.inputs.graph
        and np.array_equal(tf.get_static_value(zero), 0)
    )


def _count(counts):
    return tf.reduce_sum(tf.cast(counts, tf.float32), axis=1, keepdims=True)


def _convolve(layer, inputs, kernel):
    """What a `Conv1D` gives before bias and activation, by another kernel."""
    padding, dilation = layer.padding, layer.dilation_rate[0]
    if padding == "causal":
        before = dilation * (layer.kernel_size[0] - 1)
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


def _unflatten(rows, ids, width):
    shape = tf.concat([tf.shape(ids), [width]], axis=0)
    rows = tf.reshape(rows, shape)
    rows.set_shape(ids.shape.concatenate(width))
    return rows


def _finish(layer, outputs):
    if layer.bias is not None:
        outputs = keras.ops.add(outputs, layer.bias)
    if layer.activation is not None:
        outputs = layer.activation(outputs)
    return outputs
