"""What whoever exports a model may choose of the graph in the file."""

import dataclasses

OPTIMIZE_FOR = (None, "latency", "size", "memory")


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Choices of `export_litert` that look-ups are written down by.

    Attributes:
        quantize: `None`, `"float16"`, `"int8"` or `"int8_codebooks"`.
        min_runtime: Optional tuple of integers, the oldest runtime to serve.
        optimize_for: `None`, `"latency"`, `"size"` or `"memory"`.
        fold: Boolean, whether linear layers may become part of codebooks.
        matrices: List that is filled while a model is traced, see `note`.
    """

    quantize: str | None = None
    min_runtime: tuple | None = None
    optimize_for: str | None = None
    fold: bool = True
    matrices: list = dataclasses.field(default_factory=list, compare=False)

    def note(self, matrix):
        """Returns a matrix `(rows, columns)` of codewords or anchors.

        With `quantize="int8_codebooks"`, it is made int8 in the file.
        """
        if self.quantize == "int8_codebooks":
            self.matrices.append(matrix)
        return matrix


DEFAULTS = ExportOptions()
