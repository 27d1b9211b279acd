"""All that a page about a model shows, as plain data."""

import dataclasses

import numpy as np

from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.reports.code_statistics import code_balance
from keras_compembed.reports.code_statistics import code_usage
from keras_compembed.reports.code_statistics import words_sharing_codes
from keras_compembed.reports.originals import compressed_layers
from keras_compembed.reports.originals import find_originals
from keras_compembed.reports.size_report import SizeReport
from keras_compembed.reports.table_rows import TableRows
from keras_compembed.reports.word_neighbors import word_neighbors

# Layers whose words and codes are shown.
MOST_LAYERS = 8
_MOST_GROUPS, _MOST_WORDS = 12, 12


@dataclasses.dataclass(frozen=True)
class CodeFigures:
    """How a layer uses its codes."""

    balance: np.ndarray
    usage: dict
    groups: tuple
    group_sizes: tuple
    num_groups: int
    num_sharing: int


@dataclasses.dataclass(frozen=True)
class LayerFigures:
    """What is shown of the words of one layer."""

    name: str
    neighbors: tuple
    has_words: bool
    codes: CodeFigures | None = None


@dataclasses.dataclass(frozen=True)
class ModelFigures:
    """What is shown of a model."""

    name: str
    sizes: SizeReport
    layers: tuple = ()
    num_compressed: int = 0
    left: tuple = ()
    original_sizes: SizeReport | None = None
    scores: dict = dataclasses.field(default_factory=dict)
    frontier: object | None = None
    place: object | None = None


def layer_figures(name, layer, original=None, words=None):
    """`LayerFigures` of a built layer."""
    rows = TableRows("model", layer)
    before = None if original is None else TableRows("original", original)
    codes = None
    if isinstance(layer, CodeEmbedding):
        codes = _code_figures(layer, words)
    return LayerFigures(
        name=name,
        neighbors=tuple(word_neighbors(rows, before, words)),
        has_words=words is not None,
        codes=codes,
    )


def all_layer_figures(layers, original=None, words=None):
    """`LayerFigures` of the layers that stand for the largest tables."""
    compressed = compressed_layers(layers)
    originals = {}
    if original is not None:
        originals = find_originals(compressed, original)
    built = [
        name
        for name, layer in layers.items()
        if layer.built and (name in compressed or name in (words or {}))
    ]
    built.sort(key=lambda x: -layers[x].input_dim * layers[x].output_dim)
    return tuple(
        layer_figures(
            name, layers[name], originals.get(name), (words or {}).get(name)
        )
        for name in built[:MOST_LAYERS]
    )


def _code_figures(layer, words):
    codes = layer.codes
    groups = words_sharing_codes(codes, words, layer.codebook_size)
    largest = groups[:_MOST_GROUPS]
    return CodeFigures(
        balance=code_balance(codes, layer.codebook_size),
        usage=code_usage(codes, layer.codebook_size),
        groups=tuple((code, tuple(own[:_MOST_WORDS])) for code, own in largest),
        group_sizes=tuple(len(own) for _, own in largest),
        num_groups=len(groups),
        num_sharing=sum(len(own) for _, own in groups),
    )
