"""Bytes of the LiteRT files of copies, counted and foretold."""

import dataclasses

import numpy as np

from keras_compembed.export.export_litert import make_file
from keras_compembed.layers.top_classes import list_heads
from keras_compembed.layers.top_classes import top_k_model
from keras_compembed.utils.model_parts import layer_paths


def count_file(model, budget, quantize):
    """The `LiteRTExport` of a model, of which no file is written."""
    target = dataclasses.replace(budget.target, max_bytes=None)
    if target.runtime == "mediapipe" and budget.labels is None:
        # The one that needs none; its file has the same graph, if it answers
        # classes.
        target = dataclasses.replace(target, task="embedder")
        if any(list_heads(model)):
            model = top_k_model(model, None)
    return make_file(
        model,
        input_signature=budget.inputs,
        quantize=quantize,
        labels=budget.labels,
        target=target,
    )


class FileBytes:
    """Foretells the bytes of files from those that were counted."""

    def __init__(self, tables, quantize):
        self._tables = tables
        self._quantize = quantize
        self.fixed = None
        # Of each table, widths and bytes besides by the kind of method.
        self.kinds = [{} for _ in tables]
        # Bytes of files that were counted, by choices.
        self.exact = {}

    def size(self, table, choice):
        """Bytes that a choice takes for the table of that number."""
        width, besides = self._of_kind(table, choice.kind)
        return self._constants(table, choice, width) + besides

    def of(self, choices):
        """Bytes of the file of these choices, one a table."""
        if choices in self.exact:
            return self.exact[choices]
        return self.fixed + sum(map(self.size, range(len(choices)), choices))

    def besides(self, choices):
        """Bytes of the file of these choices that are not tables'."""
        tables = 0
        for table, choice in enumerate(choices):
            width, _ = self._of_kind(table, choice.kind)
            tables += self._constants(table, choice, width)
        return self.of(choices) - tables

    def learn(self, choices, model, export):
        """Takes note of a file."""
        self.exact[choices] = rest = export.file_bytes
        width = None
        if len(choices) == 1 and export.folded_layers:
            width = _width_behind(model, export.folded_layers[0])
        for table, choice in enumerate(choices):
            _, besides = self._of_kind(table, choice.kind)
            self.kinds[table][choice.kind] = width, besides
            rest -= self.size(table, choice)
        if self.fixed is None:
            self.fixed = rest
            return
        rest -= self.fixed
        for kinds, choice in zip(self.kinds, choices, strict=True):
            _, besides = kinds.pop(choice.kind)
            # The latest is last.
            kinds[choice.kind] = width, besides + rest // len(choices)

    def _of_kind(self, table, kind):
        kinds = self.kinds[table]
        if kind in kinds:
            return kinds[kind]
        # What is known of the latest may hold for others.
        return next(reversed(kinds.values())) if kinds else (None, 0)

    def _constants(self, table, choice, width):
        method = choice.method
        if width is not None:
            folded = method.folded()
            # Otherwise rows stay as wide as they are.
            method, width = (folded, width) if folded else (method, None)
        return self._tables[table].bytes_of(method, self._quantize, width)


def _width_behind(model, name):
    """How wide vectors get through a layer, over all places of its kernel."""
    for path, layer in layer_paths(model).items():
        if name in (path, layer.name) and hasattr(layer, "kernel"):
            *places, _, width = layer.kernel.shape
            return int(np.prod(places, dtype="int64")) * width
    return None
