"""Bytes of a model's embeddings, and of the tables they stand for."""

import dataclasses

import keras
import tensorflow as tf

from keras_compembed.codes.packing import bytes_per_row
from keras_compembed.layers.ant_embedding import ANTEmbedding
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.pruned_vocabulary_embedding import (
    PrunedVocabularyEmbedding,
)
from keras_compembed.layers.quantized_embedding import QuantizedEmbedding
from keras_compembed.reports.embedding_size import EmbeddingSize
from keras_compembed.reports.fidelity import fidelity
from keras_compembed.reports.originals import compressed_layers
from keras_compembed.reports.originals import find_originals
from keras_compembed.reports.plots import plot_size_report
from keras_compembed.reports.text import format_size_report
from keras_compembed.rounding.rounded_table import name_of_rows
from keras_compembed.rounding.rounded_table import packed_width
from keras_compembed.text.tokenizer import Tokenizer
from keras_compembed.utils.layer_names import named_layers
from keras_compembed.utils.sizes import count_bytes
from keras_compembed.utils.validation import require

EMBEDDINGS = (LookupLayer, keras.layers.Embedding)


@dataclasses.dataclass(frozen=True)
class SizeReport:
    """Sizes of a model's embeddings and of the rest; see `size_report`."""

    embeddings: tuple
    other_bytes: int | None
    tokenizer_bytes: int = 0

    @property
    def embedding_bytes(self):
        """All embedding layers as stored."""
        return sum(row.stored_bytes for row in self.embeddings)

    @property
    def table_bytes(self):
        """All embedding layers as float32 tables."""
        return sum(row.table_bytes for row in self.embeddings)

    @property
    def ratio(self):
        """`table_bytes` over `embedding_bytes`, or None without layers."""
        if not self.embeddings:
            return None
        return self.table_bytes / self.embedding_bytes

    @property
    def total_bytes(self):
        """All weights as stored, or None if the model is not built."""
        if self.other_bytes is None:
            return None
        return self.embedding_bytes + self.other_bytes

    def to_dict(self):
        """All figures as a dict that `json` can write."""
        names = "embedding_bytes table_bytes ratio other_bytes total_bytes "
        names += "tokenizer_bytes"
        figures = {name: getattr(self, name) for name in names.split()}
        return {"embeddings": [x.to_dict() for x in self.embeddings]} | figures

    def plot(self, path, overwrite=False):
        """Draws the sizes into a picture; needs the extra `plots`."""
        plot_size_report(self, path, overwrite=overwrite)

    def __str__(self):
        return format_size_report(self)


def size_report(model, reference=None):
    """Sizes of a model's embeddings, against those of uncompressed tables.

    Finds every layer of this package that looks ids up, and every
    `keras.layers.Embedding` left, in nested models, wrappers and subclassed
    models too; a layer used several times counts once. `print` the report,
    take its `to_dict()`, or `plot` it. Sizes are those of the layers'
    variables; of layers of codes and rounded rows not built, those that their
    configuration leads to. What learning codes or rows needs besides is not
    counted. Others must be built; an `ANTEmbedding` is counted as `kc.strip`
    would store it now.

    Layers whose name is not unique are told apart by path, as in
    `"tower_a/embedding"`. In print, the layers that take most come first, and
    of many the smaller ones are summed up in one line; `embeddings` and
    `to_dict()` have all, in the order of the model.

    Example:

    >>> layer = kc.CodeEmbedding(75102, 300, num_codebooks=32, codebook_size=16)
    >>> report = size_report(layer)
    >>> report.embedding_bytes
    1816032
    >>> f"{report.ratio:.1f} times smaller"
    '49.6 times smaller'

    Args:
        model: Keras model or layer.
        reference: Optional original, from which the codes were learned: a
            model with Embedding layers of the same names, or, for one layer,
            an Embedding layer or an array `(input_dim, output_dim)`. Each
            layer of this package then gets a `Fidelity`. Defaults to `None`.

    Returns:
        A `SizeReport`.

    Raises:
        ValueError: if `model` is no Keras layer or has a layer that must be
            built to be measured, or `reference` has no table of the same name
            and shape.

    References:
        - [Shu & Nakayama, 2018](https://arxiv.org/abs/1711.01068), Tables 1
          to 3
    """
    require(
        isinstance(model, keras.layers.Layer),
        "`model` must be a Keras model or layer.",
        model=model,
    )
    layers = _without_rows_of_others(named_layers(model, EMBEDDINGS))
    originals = {}
    if reference is not None:
        originals = find_originals(compressed_layers(layers), reference)
    counted = set()
    rows = []
    for name, layer in layers.items():
        row = _measure(name, layer)
        counted.update(map(id, layer.weights))
        if name in originals:
            near = fidelity(originals[name], layer)
            row = dataclasses.replace(row, fidelity=near)
        rows.append(row)
    other_bytes = None
    if model.built or model in layers.values():
        other_bytes = count_bytes(
            weight for weight in model.weights if id(weight) not in counted
        )
    tokenizers = named_layers(model, Tokenizer).values()
    return SizeReport(
        embeddings=tuple(rows),
        other_bytes=other_bytes,
        tokenizer_bytes=sum(each.count_bytes() for each in tokenizers),
    )


def _without_rows_of_others(layers):
    """Those of a dict that are not part of another one's table."""
    held = {
        id(layer.rows)
        for layer in layers.values()
        if isinstance(layer, PrunedVocabularyEmbedding)
    }
    return {
        name: layer for name, layer in layers.items() if id(layer) not in held
    }


def _measure(name, layer):
    for kind, measure in (
        (CodeEmbedding, _measure_codes),
        (ANTEmbedding, _measure_anchors),
        (QuantizedEmbedding, _measure_rows),
        (LookupLayer, _measure_weights),
        (keras.layers.Embedding, _measure_table),
    ):
        if isinstance(layer, kind):
            figures = measure(layer)
            break
    return EmbeddingSize(name, layer.input_dim, layer.output_dim, **figures)


def _measure_codes(layer):
    # Not what learning codes takes besides: `kc.strip` drops it.
    shape = layer.num_codebooks, layer.codebook_size
    num_values = layer.composition.count_values()
    code_bytes = layer.input_dim * bytes_per_row(*shape)
    codebook_bytes = num_values * _itemsize(layer)
    if layer.built:
        code_bytes = count_bytes([layer.packed_codes])
        codebook_bytes = count_bytes(
            [layer.codebooks, *layer.composition.weights]
        )
    return {
        "stored_as": f"{shape[0]} x {shape[1]} codes",
        "parts": {"codes": code_bytes, "codebooks": codebook_bytes},
        "num_codebooks": shape[0],
        "codebook_size": shape[1],
        "num_values": num_values,
    }


def _measure_anchors(layer):
    _check_built(layer)
    transform = layer.get_transform()
    arrays = transform.offsets, transform.columns, transform.values
    return {
        "stored_as": f"{layer.num_anchors} anchors",
        "parts": {
            "sparse rows": sum(array.nbytes for array in arrays),
            "anchors": count_bytes([layer.anchors]),
        },
        "num_anchors": layer.num_anchors,
        "num_nonzeros": transform.nnz,
        "num_values": transform.nnz + layer.num_anchors * layer.output_dim,
    }


def _measure_rows(layer):
    # Not the latent rows: `kc.strip` drops them.
    scale_size = tf.as_dtype(layer.scale_dtype).size
    projection = (layer.rank or 0) * layer.output_dim
    row_size = packed_width(layer.width, layer.bits)
    parts = {
        "rounded rows": layer.input_dim * row_size,
        "scales": layer.input_dim * layer.num_blocks * scale_size + 4,
    }
    if projection:
        parts["projection"] = projection * _itemsize(layer)
    return {
        "stored_as": name_of_rows(layer.bits, layer.block_size, layer.rank),
        "parts": parts,
        "num_values": layer.input_dim * layer.width + projection,
    }


def _measure_weights(layer):
    _check_built(layer)
    size = count_bytes(layer.weights)
    rows = getattr(layer, "rows", None)
    if isinstance(layer, PrunedVocabularyEmbedding) and rows is not None:
        # Not what only learning takes.
        row = _measure(rows.name, rows)
        size += row.stored_bytes - count_bytes(rows.weights)
    return {
        "stored_as": type(layer).__name__,
        "parts": {"weights": size},
        "num_values": layer.count_params(),
    }


def _measure_table(layer):
    # Quantized tables, and those with low-rank updates, have other weights.
    size = count_bytes(layer.weights)
    if not layer.built:
        size = layer.input_dim * layer.output_dim * _itemsize(layer)
    return {"stored_as": "plain table", "parts": {"plain table": size}}


def _itemsize(layer):
    return tf.as_dtype(layer.variable_dtype).size


def _check_built(layer):
    require(
        layer.built,
        "`model` must be built for its size to be known.",
        layer=layer.name,
    )
