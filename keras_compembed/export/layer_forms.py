"""Layers in ops that LiteRT has, while a model is traced."""

import contextlib
import functools

import keras
import tensorflow as tf

from keras_compembed.candidates.beam_tree import BeamTree
from keras_compembed.export.code_lookup import TracedLookup
from keras_compembed.export.linear_layers import LinearLayers
from keras_compembed.export.marks import MarkedLookup
from keras_compembed.export.plain_rows import PlainRows
from keras_compembed.export.recurrent import litert_inner_loop
from keras_compembed.export.recurrent import litert_time_distributed
from keras_compembed.export.row_chunks import RowChunks
from keras_compembed.export.row_products import make_products
from keras_compembed.export.sparse_lookup import TracedSparseRows
from keras_compembed.export.table_lookup import TracedTable
from keras_compembed.export.transform_lookup import TracedTransform
from keras_compembed.layers.ant_embedding import ANTEmbedding
from keras_compembed.layers.cane_softmax import CANESoftmax
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.layers.feature_embedding import FeatureEmbedding
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.quantized_embedding import QuantizedEmbedding
from keras_compembed.layers.sparse_embedding import SparseEmbedding
from keras_compembed.utils.swapped import swapped


class LayerForms:
    """Makes layers compute in ops that LiteRT has, one after another."""

    def __init__(self, options, layers):
        self._options = options
        # Before an encoder that others use too has a form of its own.
        self._vectors = {
            id(layer): layer.embed_all().numpy()
            for layer in layers
            if isinstance(layer, FeatureEmbedding)
        }
        self.tables, self.lookups = [], []
        self.linear = LinearLayers(self.lookups, options)

    def of_layer(self, layer):
        """A context in which a layer has its form for LiteRT."""
        for kind, form in (
            (CodeEmbedding, self._of_codes),
            (ANTEmbedding, self._of_anchors),
            (QuantizedEmbedding, self._of_integers),
            (FeatureEmbedding, self._of_features),
            (LookupLayer, self._of_plain_rows),
            (CANESoftmax, self._of_classes),
            (keras.layers.RNN, self._of_loop),
            (keras.layers.TimeDistributed, self._of_steps),
        ):
            if isinstance(layer, kind):
                return form(layer)
        return self._of_call(layer, self.linear.stand_in(layer))

    def of_operation(self, operation):
        """Same, for an operation of a functional model."""
        call = self.linear.stand_in_of_operation(operation)
        return self._of_call(operation, call)

    def _of_call(self, owner, call):
        if call is None:
            return contextlib.nullcontext()
        return swapped(owner, call=call)

    @contextlib.contextmanager
    def _of_codes(self, layer):
        lookup = TracedLookup(layer, self._options)
        self.tables.append(lookup.codes.table)
        embed = self._mark(layer, "embed", lookup, lookup.codes.table.packed)
        swap = layer.embed_with(
            embed,
            embed_all=functools.partial(lookup.embed_all, embed),
            score=self._mark(layer, "score", lookup.score),
            top_ids=self._count(layer, "top_ids", lookup.top_ids),
        )
        if lookup.scores is not None:
            # What tracing finds to be stored.
            lookup.scores.tables = self.tables
        with swap, self._followed(layer, lookup):
            yield

    @contextlib.contextmanager
    def _of_anchors(self, layer):
        lookup = TracedTransform(layer, self._options)
        logits = self._mark(layer, "logits", lookup.logits)
        embed = self._mark(layer, "embed", lookup)
        chunks = RowChunks(
            layer.input_dim, max(layer.output_dim, layer.num_anchors)
        )
        swap = layer.embed_with(
            embed,
            embed_all=functools.partial(chunks.table, embed),
            score=logits,
            top_ids=self._count(layer, "top_ids", lookup.top_ids),
        )
        with swapped(layer, logits=logits), swap, self._followed(layer, lookup):
            yield

    @contextlib.contextmanager
    def _of_integers(self, layer):
        lookup = TracedTable(layer, self._options)
        self.tables += lookup.tables
        embed = self._mark(layer, "embed", lookup)
        swap = layer.embed_with(
            embed,
            embed_all=functools.partial(lookup.embed_all, embed),
            score=self._mark(layer, "score", lookup.score),
            top_ids=self._count(layer, "top_ids", lookup.top_ids),
        )
        with swap, self._followed(layer, lookup):
            yield

    @contextlib.contextmanager
    def _of_plain_rows(self, layer):
        own = None
        if isinstance(layer, SparseEmbedding):
            own = TracedSparseRows(layer, self._options)
        rows = PlainRows(layer, own)
        methods = {
            "embed_all": rows.embed_all,
            "score": self._mark(layer, "score", rows.score),
            "top_ids": self._count(layer, "top_ids", rows.top_ids),
        }
        if rows.sum_rows is not None:
            methods["sum_rows"] = rows.sum_rows
        embed = self._mark(layer, "embed", rows.embed)
        with layer.embed_with(embed, **methods):
            yield

    @contextlib.contextmanager
    def _of_features(self, layer):
        table = tf.constant(self._vectors[id(layer)], "float32")
        rows = PlainRows(layer, lambda ids: tf.gather(table, ids))

        def score(vectors):
            return tf.matmul(vectors, table, transpose_b=True)

        with layer.embed_with(
            self._mark(layer, "embed", rows.embed),
            embed_all=lambda: table,
            score=self._mark(layer, "score", score),
            top_ids=self._count(layer, "top_ids", rows.top_ids),
        ):
            yield

    def _followed(self, layer, lookup):
        """A context in which the vectors of a look-up layer are followed."""
        products = make_products(layer, lookup, self._options)
        if products is None:
            return contextlib.nullcontext()
        return self.linear.of_table(layer, products)

    def _of_classes(self, layer):
        if not isinstance(layer.selector, BeamTree):
            return contextlib.nullcontext()
        # One matrix, in place of rows to be added up in each call.
        parts = layer.selector.frontier(layer.scores)
        constants = [tf.constant(part.numpy()) for part in parts]
        return swapped(layer.selector, frontier=lambda scores: constants)

    def _of_loop(self, layer):
        return swapped(layer, inner_loop=litert_inner_loop(layer))

    def _of_steps(self, layer):
        return swapped(layer, call=litert_time_distributed(layer))

    def _mark(self, layer, method, function, codes=None):
        lookup = MarkedLookup(layer, method, len(self.lookups), codes)
        self.lookups.append(lookup)
        return lookup.marked(function)

    def _count(self, layer, method, function):
        lookup = MarkedLookup(layer, method, len(self.lookups))
        self.lookups.append(lookup)

        def call(*inputs):
            # Without marks, the layer is told not to be held to Keras.
            lookup.calls += 1
            return function(*inputs)

        return call
