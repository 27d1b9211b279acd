"""Bytes of embeddings, compared with uncompressed tables."""

import dataclasses
import math

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from keras_compembed.export.text_front import find_own_readers
from keras_compembed.export.text_front import split_model
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.reports.fidelity import Fidelity
from keras_compembed.reports.fidelity import fidelity
from keras_compembed.reports.plots import plot_size_report
from keras_compembed.reports.text import format_size_report
from keras_compembed.text.tokenizer import Tokenizer
from keras_compembed.utils.files import count_bytes
from keras_compembed.utils.model_parts import named_layers
from keras_compembed.utils.validation import require

EMBEDDINGS = (LookupLayer, keras.layers.Embedding)
# Parts stored for each id; all ids share the others.
_ID_PARTS = ("codes", "sparse rows", "quantized rows", "scales")
_SHARED_PARTS = ("codebooks", "anchors", "projection")


@dataclasses.dataclass(frozen=True)
class EmbeddingSize:
    """Bytes of an embedding layer: stored, by part and uncompressed."""

    name: str
    input_dim: int
    output_dim: int
    stored_as: str
    parts: dict
    num_values: int = 0
    num_codebooks: int | None = None
    codebook_size: int | None = None
    num_anchors: int | None = None
    num_nonzeros: int | None = None
    # Rows beyond the model's vocabulary, which do not count.
    unread_rows: int = 0
    fidelity: Fidelity | None = None

    @property
    def id_bytes(self):
        """Bytes stored per id, summed over all ids."""
        return sum(self.parts.get(name, 0) for name in _ID_PARTS)

    @property
    def shared_bytes(self):
        """Bytes that all ids share: codebooks, anchors or a projection."""
        return sum(self.parts.get(name, 0) for name in _SHARED_PARTS)

    @property
    def stored_bytes(self):
        """All bytes stored for the layer."""
        return sum(self.parts.values())

    @property
    def table_bytes(self):
        """Bytes of the uncompressed table in float32."""
        return 4 * self.input_dim * self.output_dim

    @property
    def table_int8_bytes(self):
        """Bytes of the uncompressed table in int8."""
        return self.input_dim * self.output_dim

    @property
    def table_int4_bytes(self):
        """Bytes of the uncompressed table in int4."""
        return -(-self.input_dim * self.output_dim // 2)

    @property
    def code_bits(self):
        """Bits per code, M * log2(K), or None without codes."""
        if self.num_codebooks is None:
            return None
        return self.num_codebooks * math.log2(self.codebook_size)

    @property
    def exact_bytes(self):
        """Size as in the paper: unpadded codes, float32 codebooks; or None."""
        if self.num_codebooks is None:
            return None
        return self.input_dim * self.code_bits / 8 + 4 * self.num_values

    @property
    def ratio(self):
        """Compression ratio to the float32 table."""
        return self.table_bytes / self.stored_bytes

    def to_dict(self):
        """Returns all values as a dict for `json`."""
        figures = dataclasses.asdict(self)
        names = "id_bytes shared_bytes stored_bytes table_bytes "
        names += "table_int8_bytes table_int4_bytes code_bits exact_bytes ratio"
        return figures | {name: getattr(self, name) for name in names.split()}


@dataclasses.dataclass(frozen=True)
class SizeReport:
    """Sizes of a model's embeddings and other weights; see `size_report`."""

    embeddings: tuple
    other_bytes: int | None
    tokenizer_bytes: int = 0

    @property
    def embedding_bytes(self):
        """Bytes of all embedding layers as stored."""
        return sum(row.stored_bytes for row in self.embeddings)

    @property
    def table_bytes(self):
        """Bytes of all embedding layers as float32 tables."""
        return sum(row.table_bytes for row in self.embeddings)

    @property
    def ratio(self):
        """Compression ratio of all embeddings, or None without layers."""
        if not self.embeddings:
            return None
        return self.table_bytes / self.embedding_bytes

    @property
    def total_bytes(self):
        """Bytes of all weights, or None if the model is not built."""
        if self.other_bytes is None:
            return None
        return self.embedding_bytes + self.other_bytes

    def to_dict(self):
        """Returns all values as a dict for `json`."""
        names = "embedding_bytes table_bytes ratio other_bytes total_bytes "
        names += "tokenizer_bytes"
        figures = {name: getattr(self, name) for name in names.split()}
        return {"embeddings": [x.to_dict() for x in self.embeddings]} | figures

    def plot(self, path, overwrite=False):
        """Writes a plot of the sizes; needs the extra `plots`."""
        plot_size_report(self, path, overwrite=overwrite)

    def __str__(self):
        return format_size_report(self)


def size_report(
    model: keras.Layer, reference: ArrayLike | keras.Layer | None = None
) -> SizeReport:
    """Reports the bytes of a model's embeddings, compared with plain tables.

    It finds every embedding layer of this package and every
    `keras.layers.Embedding`, also in nested models and wrappers. A layer used
    several times counts once. `print` the report, call its `to_dict()`, or
    `plot` it.

    Sizes are those of variables. Layers of codes or quantized rows need not be
    built; all others must be. Weights that only training needs are not counted:
    an `ANTEmbedding` counts as `kc.strip` would store it now. Rows of a plain
    table beyond the model's vocabulary do not count.

    Layers of the same name are listed by path, e.g. `"tower_a/embedding"`. A
    printed report lists the largest layers and sums up the smaller ones.
    `embeddings` and `to_dict()` contain all layers.

    Example:

    >>> layer = kc.CodeEmbedding(75102, 300, num_codebooks=32, codebook_size=16)
    >>> report = size_report(layer)
    >>> report.embedding_bytes
    1816032
    >>> f"{report.ratio:.1f} times smaller"
    '49.6 times smaller'

    Args:
        model: Keras model or layer.
        reference: Optional original: a model with Embedding layers of the same
            names, or for one layer an Embedding layer or an array
            `(input_dim, output_dim)`. Each compressed layer then gets a
            `Fidelity`. Defaults to `None`.

    Returns:
        A `SizeReport`.

    Raises:
        ValueError: If a layer is not built, or the reference lacks a table.

    References:
        - [Shu & Nakayama, 2018](https://arxiv.org/abs/1711.01068), Tables 1 to
          3
    """
    require(
        isinstance(model, keras.layers.Layer),
        "`model` must be a Keras model or layer.",
        model=model,
    )
    layers = named_layers(model, EMBEDDINGS)
    # Tables within another table count with it.
    stores = [x.store for x in compressed_layers(layers).values()]
    held = {id(part) for x in stores for part in x.parts().values()}
    layers = {name: x for name, x in layers.items() if id(x) not in held}
    originals = {}
    if reference is not None:
        originals = find_originals(compressed_layers(layers), reference)
    counted = set()
    rows, words = [], words_of_tables(model)
    for name, layer in layers.items():
        figures, number = _measure(layer), layer.input_dim
        counted.update(map(id, layer.weights))
        if name in originals:
            figures["fidelity"] = fidelity(originals[name], layer)
        if name in words and not isinstance(layer, LookupLayer):
            # `compress_model` drops rows without a token.
            number = len(words[name])
            figures["unread_rows"] = layer.input_dim - number
            size = figures["parts"]["plain table"] * number // layer.input_dim
            figures["parts"] = {"plain table": size}
        rows.append(EmbeddingSize(name, number, layer.output_dim, **figures))
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


def words_of_tables(model):
    """Dict from table names to tokens, for the model's tokenizer."""
    try:
        split = split_model(model)
    except ValueError:
        return {}
    if split is None:
        return {}
    tables = find_own_readers(split.model, split.model.inputs[0])
    words = split.vocabulary
    return {
        name: words
        for name, layer in named_layers(model, EMBEDDINGS).items()
        if any(layer is x for x in tables) and layer.input_dim >= len(words)
    }


def _measure(layer):
    if isinstance(layer, LookupLayer):
        figures = layer.store.sizes()
        require(
            figures is not None,
            "`model` must be built, so that its size is known.",
            layer=layer.name,
        )
        return {"stored_as": type(layer).__name__, **figures}
    # Tables with quantization or LoRA have other weights.
    size = count_bytes(layer.weights)
    if not layer.built:
        number = tf.as_dtype(layer.variable_dtype).size
        size = layer.input_dim * layer.output_dim * number
    return {"stored_as": "plain table", "parts": {"plain table": size}}


def compressed_layers(layers):
    """The layers of a dict that are not plain tables."""
    return {
        name: layer
        for name, layer in layers.items()
        if isinstance(layer, LookupLayer)
    }


def find_originals(layers, reference, argument="reference"):
    """The original tables of compressed layers."""
    if not isinstance(reference, keras.layers.Layer):
        table = np.asanyarray(reference)
        candidates = dict.fromkeys(layers, table) if len(layers) == 1 else {}
        shapes = [table.shape]
    else:
        candidates = named_layers(reference, EMBEDDINGS)
        if len(layers) == 1 and len(candidates) == 1:
            candidates = dict(zip(layers, candidates.values(), strict=True))
        shapes = [_shape(layer) for layer in candidates.values()]
    found = {}
    for name, layer in layers.items():
        shape, (rows, width) = _shape(candidates.get(name)), _shape(layer)
        if shape == (rows, width):
            found[name] = candidates[name]
        elif shape[-1:] == (width,) and shape[0] > rows:
            # `compress_model` drops rows without a token.
            table = getattr(candidates[name], "embeddings", candidates[name])
            found[name] = keras.ops.convert_to_numpy(table[:rows])
    if not found:
        wanted = {name: _shape(layer) for name, layer in layers.items()}
        raise ValueError(
            f"`{argument}` must have a table with the name and shape of a "
            f"compressed embedding of the model: {wanted or 'none'}. "
            f"Received: tables of shape {shapes}."
        )
    return found


def _shape(source):
    if isinstance(source, keras.layers.Layer):
        return source.input_dim, source.output_dim
    return getattr(source, "shape", ())
