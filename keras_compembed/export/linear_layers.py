"""Follows vectors of look-up layers through layers that are linear in them."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.export.folded_layers import can_fold
from keras_compembed.export.folded_layers import folded
from keras_compembed.export.folded_layers import folding_pays
from keras_compembed.export.linear_trace import LinearTrace
from keras_compembed.export.linear_trace import LiveOps
from keras_compembed.export.linear_trace import Vectors
from keras_compembed.export.marks import is_known
from keras_compembed.export.pooled_rows import pooled_rows
from keras_compembed.export.pooled_rows import reduced_rows
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.utils.swapped import swapped

# Of the operations behind `keras.ops`, which have no public name.
_MODULE_OF_OPS = "keras.src.ops.numpy"
_POOLS = ("Mean", "Sum")


class LinearLayers:
    """Pools in code space, and folds layers into codebooks, while tracing."""

    def __init__(self, options, forms):
        self._options = options
        self.trace = LinearTrace(options, forms)

    @property
    def pooled_layers(self):
        """Names of look-up layers that were pooled, in order."""
        return _names(
            site.source.layer
            for site in self.trace.sites
            if not site.width or site.source.features is not None
        )

    @property
    def folded_layers(self):
        """Names of layers that became part of a table, in order."""
        return _names(s.owner for s in self.trace.sites if s.width)

    def of_table(self, layer, products):
        """A context in which the vectors of a look-up layer are followed."""
        if products is None:
            return swapped(layer)
        look_up = layer.look_up

        def remember(inputs, embed):
            tensor = look_up(inputs, embed)
            if isinstance(tensor, tf.Tensor):
                ids = tf.convert_to_tensor(inputs)
                if tensor.dtype == tf.float32 and not is_known(ids):
                    self.trace.remember(
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
        if layer.combiner is not None:
            call, swaps["sum_rows"] = reduced_rows(self.trace, layer, products)
            if kind.call is LookupLayer.call:
                swaps["call"] = call
        return swapped(layer, **swaps)

    def stand_in(self, layer):
        """In place of the `call` of a layer or operation, or None."""
        kind = type(layer)
        if kind is keras.layers.GlobalAveragePooling1D:
            if layer.data_format == "channels_last":
                return pooled_rows(self.trace, layer, True, layer.keepdims)
        elif can_fold(layer, self._options.quantize):
            return folded(self.trace, layer)
        elif kind.__module__ == _MODULE_OF_OPS and kind.__name__ in _POOLS:
            axis, is_mean = layer.axis, kind.__name__ == "Mean"
            axes = [axis] if axis is None or isinstance(axis, int) else axis
            if None not in axes and [x % 3 for x in axes] == [1]:
                return pooled_rows(self.trace, layer, is_mean, layer.keepdims)
        return None

    def reconsider(self, function):
        """Whether the model must be traced again, with less done to it."""
        live, sites = LiveOps(function.graph), self.trace.sites
        refused = {s.key for s in sites if live.holds(s.source.tensor)}
        by_source = {}
        for site in sites:
            if site.width:
                by_source.setdefault(id(site.source.tensor), []).append(site)
        for together in by_source.values():
            if not self._pays_together(together, live):
                refused.update(site.key for site in together)
        self.trace.refused |= refused
        if refused:
            self.trace.restart()
            return True
        sites[:] = [site for site in sites if live.holds(site.output)]
        touched = {id(site.source.layer) for site in sites}
        for lookup in self.trace.lookups:
            outputs = lookup.outputs if id(lookup.layer) in touched else ()
            if outputs and not any(map(live.holds, outputs)):
                # Its place was taken.
                lookup.calls = 0
        return False

    def _pays_together(self, sites, live):
        """Whether layers that read the same vectors shall be folded."""
        vectors, products = sites[0].source, sites[0].source.products
        all_folded = [site for site in self.trace.sites if site.width]
        kept = kernels = 0
        for owner in {id(site.owner): site.owner for site in sites}.values():
            if live.reads(owner.kernel) or any(
                site.source.products is not products
                for site in all_folded
                if site.owner is owner
            ):
                kernels += int(np.prod(owner.kernel.shape))
        lookups = {id(site.lookup) for site in all_folded}
        if any(
            live.holds(output)
            for lookup in self.trace.lookups
            if lookup.layer is vectors.layer and id(lookup) not in lookups
            for output in lookup.outputs
        ):
            kept = products.num_numbers
        width = sum(site.width for site in sites)
        return folding_pays(self._options, vectors, width, kept, kernels)


def _names(layers):
    return tuple(dict.fromkeys(layer.name for layer in layers))
