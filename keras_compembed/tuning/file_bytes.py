"""Bytes of a model's LiteRT file, counted and computed."""

import os
import tempfile
import warnings

from keras_compembed.export.export_litert import export_litert

# What look-ups in a method's own way may add to the ops and tensors of a file,
# for each table. Up to 4,500 were seen.
_LOOKUP_BYTES = 8192


class FileBytes:
    """Bytes of the file that a model becomes with tables stored otherwise."""

    def __init__(self, model, tables, export_options):
        self._tables = tables
        self._options = export_options
        self._quantize = export_options.get("quantize")
        self._counted = {}
        self.original_bytes = self._count(model)

    def most(self, method):
        """The bytes that a file has at most with a method."""
        stored = self._tables.bytes_of(method, self._quantize)
        if stored is None:
            return None
        before = self._tables.original_bytes(self._quantize)
        room = _LOOKUP_BYTES * len(self._tables.layers)
        return self.original_bytes - before + stored + room

    def counted(self, method, model):
        """Bytes of the file of a model with tables stored by a method."""
        if method.name not in self._counted:
            try:
                size = self._count(model)
            except (ValueError, RuntimeError) as error:
                size = self.most(method)
                warnings.warn(
                    f"The model with {method.name!r} cannot be exported: "
                    f"{error} Its `litert_bytes` are estimated.",
                    stacklevel=2,
                )
            self._counted[method.name] = size
        return self._counted[method.name]

    def _count(self, model):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.tflite")
            export = export_litert(model, path, verbose=0, **self._options)
        return export.file_bytes
