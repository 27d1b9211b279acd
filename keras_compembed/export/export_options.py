"""What whoever exports a model may choose of the graph in the file."""

import dataclasses

OPTIMIZE_FOR = (None, "latency", "size", "memory")


@dataclasses.dataclass
class ChosenForm:
    """The form of the first graph that reads some codewords."""

    form: tuple | None = None


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Choices of `export_litert` that look-ups are written down by."""

    quantize: str | None = None
    min_runtime: tuple | None = None
    optimize_for: str | None = None
    fold: bool = True
    matrices: list = dataclasses.field(default_factory=list, compare=False)
    unpacked: list = dataclasses.field(default_factory=list, compare=False)

    forms: dict = dataclasses.field(default_factory=dict, compare=False)

    def form_for(self, codebooks):
        """The `ChosenForm` of a layer with some `Codebooks`, or None."""
        if codebooks is None:
            return ChosenForm()
        return self.forms.setdefault(id(codebooks), ChosenForm())

    def note(self, matrix):
        """Returns a matrix `(rows, columns)` of codewords or anchors."""
        if self.quantize == "int8_codebooks":
            self.matrices.append(matrix)
        return matrix


DEFAULTS = ExportOptions()
