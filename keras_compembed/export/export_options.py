"""What whoever exports a model may choose of the graph in the file."""

import dataclasses

OPTIMIZE_FOR = (None, "latency", "size", "memory")


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Choices of `export_litert` that look-ups are written down by."""

    quantize: str | None = None
    min_runtime: tuple | None = None
    optimize_for: str | None = None
    fold: bool = True
    matrices: list = dataclasses.field(default_factory=list, compare=False)
    unpacked: list = dataclasses.field(default_factory=list, compare=False)

    def note(self, matrix):
        """Returns a matrix `(rows, columns)` of codewords or anchors."""
        if self.quantize == "int8_codebooks":
            self.matrices.append(matrix)
        return matrix

    def serves(self, runtime):
        """Whether the oldest runtime to serve is at least some version."""
        return self.min_runtime is None or self.min_runtime >= runtime
