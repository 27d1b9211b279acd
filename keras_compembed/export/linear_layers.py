"""Follows vectors of look-up layers through layers that are linear in them."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.export.folded_layers import folded_convolution
from keras_compembed.export.folded_layers import folded_dense
from keras_compembed.export.folded_layers import folding_pays
from keras_compembed.export.folded_layers import is_plain
from keras_compembed.export.linear_trace import LinearTrace
from keras_compembed.export.linear_trace import LiveOps
from keras_compembed.export.linear_trace import Vectors
from keras_compembed.export.marks import is_known
from keras_compembed.export.pooled_rows import ReducedRows
from keras_compembed.export.pooled_rows import pooled_rows
from keras_compembed.layers.embed_reduce import EmbedReduce
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.quantized_embed_reduce import QuantizedEmbedReduce
from keras_compembed.utils.swapped import swapped

# What else these do is for training.
_CALLS_THAT_SUM = (EmbedReduce.call, QuantizedEmbedReduce.call)
# Of the operations behind `keras.ops`, which have no public name.
_MODULE_OF_OPS = "keras.src.ops.numpy"


class LinearLayers:
    """Pools in code space, and folds layers into codebooks, while tracing."""

    def __init__(self, lookups, options):
        self._lookups = lookups
        self._options = options
        self._trace = LinearTrace(lookups, options)

    @property
    def sites(self):
        """List of `LinearSite`, what was pooled or folded."""
        return self._trace.sites

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
        """Follows the vectors of a look-up layer for a while."""
        look_up = layer.look_up

        def remember(inputs, embed):
            tensor = look_up(inputs, embed)
            if isinstance(tensor, tf.Tensor):
                ids = tf.convert_to_tensor(inputs)
                if tensor.dtype == tf.float32 and not is_known(ids):
                    self._trace.remember(
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
        if isinstance(layer, EmbedReduce):
            reduced = ReducedRows(self._trace, layer, products)
            swaps["sum_rows"] = reduced.sum_rows
            if kind.call in _CALLS_THAT_SUM:
                swaps["call"] = reduced.call
        with swapped(layer, **swaps):
            yield

    def stand_in(self, layer):
        """A function in place of a layer's `call`, or None."""
        kind, folds = type(layer), self._options.fold
        if kind is keras.layers.GlobalAveragePooling1D:
            if layer.data_format == "channels_last":
                return pooled_rows(self._trace, layer, True, layer.keepdims)
        elif folds and kind is keras.layers.Dense and is_plain(layer):
            return folded_dense(self._trace, layer)
        elif (
            folds
            and kind is keras.layers.Conv1D
            and is_plain(layer)
            # Only of matrices, not of kernels, can int8 be asked for.
            and self._options.quantize != "int8_codebooks"
            and layer.groups == 1
            and layer.data_format == "channels_last"
        ):
            return folded_convolution(self._trace, layer)
        return None

    def stand_in_of_operation(self, operation):
        """Same, for an operation of a functional model."""
        kind = type(operation)
        if kind.__module__ != _MODULE_OF_OPS or kind.__name__ not in (
            "Mean",
            "Sum",
        ):
            return None
        axis = operation.axis
        axes = [axis] if axis is None or isinstance(axis, int) else axis
        if None in axes or [x % 3 for x in axes] != [1]:
            return None
        is_mean = kind.__name__ == "Mean"
        return pooled_rows(self._trace, operation, is_mean, operation.keepdims)

    def reconsider(self, function):
        """Whether the model must be traced again, with less done to it."""
        live = LiveOps(function.graph)
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
        self._trace.refused |= refused
        if refused:
            self._trace.restart()
            return True
        self.sites[:] = [s for s in self.sites if live.holds(s.output)]
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
        return folding_pays(self._options, vectors, width, kept, kernels)


def _names(layers):
    return tuple(dict.fromkeys(layer.name for layer in layers))
