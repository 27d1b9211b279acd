"""Layers in ops that LiteRT has, while a model is traced."""

import contextlib
import functools

import keras
import tensorflow as tf

from keras_compembed.candidates.beam_tree import BeamTree
from keras_compembed.export.code_lookup import TracedLookup
from keras_compembed.export.code_products import CodeProducts
from keras_compembed.export.linear_layers import LinearLayers
from keras_compembed.export.marks import MarkedLookup
from keras_compembed.export.recurrent import call_on_all_steps
from keras_compembed.export.recurrent import inner_loop
from keras_compembed.export.row_chunks import RowChunks
from keras_compembed.export.row_chunks import ScoredInChunks
from keras_compembed.export.row_products import AnchorProducts
from keras_compembed.export.row_products import TableProducts
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
        call = self.linear.stand_in(layer)
        return swapped(layer, **({} if call is None else {"call": call}))

    def of_operation(self, operation):
        """Same, for an operation of a functional model."""
        call = self.linear.stand_in_of_operation(operation)
        return swapped(operation, **({} if call is None else {"call": call}))

    def _of_codes(self, layer):
        lookup = TracedLookup(layer, self._options)
        self.tables.append(lookup.codes.table)
        products = None
        if lookup.scores is not None:
            # What tracing finds to be stored.
            lookup.scores.tables = self.tables
        if lookup.summed is not None:
            products = CodeProducts(lookup, self._options)
        codes = lookup.codes.table.packed
        return self._of_rows(layer, lookup, products, codes)

    def _of_anchors(self, layer):
        lookup = TracedTransform(layer, self._options)
        logits = self._mark(layer, "logits", lookup.score)
        products = AnchorProducts(lookup)
        own = {"logits": logits, "score": logits}
        return self._of_rows(layer, lookup, products, **own)

    def _of_integers(self, layer):
        lookup = TracedTable(layer, self._options)
        self.tables += lookup.tables
        return self._of_rows(layer, lookup, TableProducts(lookup))

    def _of_plain_rows(self, layer):
        embed = layer.embed
        if isinstance(layer, SparseEmbedding):
            embed = TracedSparseRows(layer, self._options)
        # Methods that the layer does not have from its base.
        own = {
            name: getattr(layer, name)
            for name in ("embed_all", "score", "top_ids", "sum_rows")
            if getattr(type(layer), name) is not getattr(LookupLayer, name)
        }
        return self._of_rows(layer, _PlainRows(layer, embed), **own)

    def _of_features(self, layer):
        table = tf.constant(self._vectors[id(layer)], "float32")

        def score(vectors):
            return tf.matmul(vectors, table, transpose_b=True)

        rows = _PlainRows(layer, lambda ids: tf.gather(table, ids))
        own = {"embed_all": lambda: table, "score": score}
        return self._of_rows(layer, rows, **own)

    @contextlib.contextmanager
    def _of_rows(self, layer, lookup, products=None, codes=None, **own):
        """A context in which a layer reads and scores rows by a look-up."""
        embed = self._mark(layer, "embed", lookup, codes)
        methods = {
            "embed_all": functools.partial(lookup.chunks.table, embed),
            "score": lookup.score,
            "top_ids": lookup.top_ids,
            **own,
        }
        if "logits" not in own:
            methods["score"] = self._mark(layer, "score", methods["score"])
        methods["top_ids"] = self._count(layer, "top_ids", methods["top_ids"])
        with layer.embed_with(embed, **methods):
            if products is None:
                yield
                return
            with self.linear.of_table(layer, products):
                yield

    def _of_classes(self, layer):
        if not isinstance(layer.selector, BeamTree):
            return contextlib.nullcontext()
        # One matrix, in place of rows to be added up in each call.
        parts = layer.selector.frontier(layer.scores)
        constants = [tf.constant(part.numpy()) for part in parts]
        return swapped(layer.selector, frontier=lambda scores: constants)

    def _of_loop(self, layer):
        return swapped(layer, inner_loop=functools.partial(inner_loop, layer))

    def _of_steps(self, layer):
        return swapped(layer, call=functools.partial(call_on_all_steps, layer))

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


class _PlainRows(ScoredInChunks):
    """Rows of a layer without a form of its own."""

    def __init__(self, layer, embed):
        self._embed = embed
        self.chunks = RowChunks(layer.input_dim, layer.output_dim)

    def __call__(self, ids):
        return self._embed(ids)

    def score_chunks(self, vectors):
        for ids in self.chunks.ids(vectors):
            rows = tf.cast(self(ids), vectors.dtype)
            yield tf.matmul(vectors, rows, transpose_b=True)
