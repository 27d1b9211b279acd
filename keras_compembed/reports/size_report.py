"""Bytes of a model's embeddings, and of the tables they stand for."""

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
# What is stored for each id, and what all ids share.
_ID_PARTS = ("codes", "sparse rows", "rounded rows", "scales")
_SHARED_PARTS = ("codebooks", "anchors", "projection")


@dataclasses.dataclass(frozen=True)
class EmbeddingSize:
    """Bytes of one embedding layer: as stored, by part, and uncompressed."""

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
    # Rows that no token of the model's vocabulary has: they do not count.
    unread_rows: int = 0
    fidelity: Fidelity | None = None

    @property
    def id_bytes(self):
        """What is stored for each id."""
        return sum(self.parts.get(name, 0) for name in _ID_PARTS)

    @property
    def shared_bytes(self):
        """What all ids share: codebooks, anchors or a projection."""
        return sum(self.parts.get(name, 0) for name in _SHARED_PARTS)

    @property
    def stored_bytes(self):
        """All that is stored for the layer."""
        return sum(self.parts.values())

    @property
    def table_bytes(self):
        """The uncompressed table in float32."""
        return 4 * self.input_dim * self.output_dim

    @property
    def table_int8_bytes(self):
        """The uncompressed table in int8."""
        return self.input_dim * self.output_dim

    @property
    def table_int4_bytes(self):
        """The uncompressed table in int4."""
        return -(-self.input_dim * self.output_dim // 2)

    @property
    def code_bits(self):
        """Code length, M * log2(K) bits per row, or None without codes."""
        if self.num_codebooks is None:
            return None
        return self.num_codebooks * math.log2(self.codebook_size)

    @property
    def exact_bytes(self):
        """The paper's size: exact codes and float32 codebooks, or None."""
        if self.num_codebooks is None:
            return None
        return self.input_dim * self.code_bits / 8 + 4 * self.num_values

    @property
    def ratio(self):
        """How many times smaller than the float32 table."""
        return self.table_bytes / self.stored_bytes

    def to_dict(self):
        """All figures as a dict that `json` can write."""
        figures = dataclasses.asdict(self)
        names = "id_bytes shared_bytes stored_bytes table_bytes "
        names += "table_int8_bytes table_int4_bytes code_bits exact_bytes ratio"
        return figures | {name: getattr(self, name) for name in names.split()}


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


def size_report(
    model: keras.Layer, reference: ArrayLike | keras.Layer | None = None
) -> SizeReport:
    """Sizes of a model's embeddings, against those of uncompressed tables.

    Finds every layer of this package that looks ids up, and every
    `keras.layers.Embedding` left, in nested models, wrappers and subclassed
    models too; a layer used several times counts once. `print` the report,
    take its `to_dict()`, or `plot` it. Sizes are those of variables, or of
    the configuration where a layer of codes or rounded rows is not built;
    others must be built. What learning needs is not counted: an
    `ANTEmbedding` is counted as `kc.strip` would store it now, nor rows of a
    plain table that no token of the model's own vocabulary has.

    Layers of one name are told apart by path, as in `"tower_a/embedding"`. In
    print, the largest come first, and many small ones are summed up in one
    line; `embeddings` and `to_dict()` have all, in the order of the model.

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

    References:
        - [Shu & Nakayama, 2018](https://arxiv.org/abs/1711.01068), Tables 1
          to 3
    """
    require(
        isinstance(model, keras.layers.Layer),
        "`model` must be a Keras model or layer.",
        model=model,
    )
    layers = named_layers(model, EMBEDDINGS)
    # Tables that are part of another one count with it.
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
            # `compress_model` drops the rows that no token has.
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
    """Tokens of tables by name, of those that a model's tokenizer reads."""
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
            "`model` must be built for its size to be known.",
            layer=layer.name,
        )
        return {"stored_as": type(layer).__name__, **figures}
    # Quantized tables, and those with low-rank updates, have other weights.
    size = count_bytes(layer.weights)
    if not layer.built:
        number = tf.as_dtype(layer.variable_dtype).size
        size = layer.input_dim * layer.output_dim * number
    return {"stored_as": "plain table", "parts": {"plain table": size}}


def compressed_layers(layers):
    """Those of a dict from name to layer that are no plain tables."""
    return {
        name: layer
        for name, layer in layers.items()
        if isinstance(layer, LookupLayer)
    }


def find_originals(layers, reference, argument="reference"):
    """The originals of compressed layers."""
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
            # Rows that no token has are dropped when a model is compressed.
            table = getattr(candidates[name], "embeddings", candidates[name])
            found[name] = keras.ops.convert_to_numpy(table[:rows])
    if not found:
        wanted = {name: _shape(layer) for name, layer in layers.items()}
        raise ValueError(
            f"`{argument}` must hold a table of the same name and shape as a "
            "compressed embedding of the model, which has "
            f"{wanted or 'none'}. "
            f"Received: tables of shape {shapes}."
        )
    return found


def _shape(source):
    if isinstance(source, keras.layers.Layer):
        return source.input_dim, source.output_dim
    return getattr(source, "shape", ())
