"""What whoever exports a model may choose of the graph in the file."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Choices of `export_litert` that look-ups are written down by.

    Attributes:
        quantize: `None`, `"float16"`, `"int8"` or `"int8_codebooks"`.
        min_runtime: Optional tuple of integers, the oldest runtime to serve.
        optimize_for: `None`, `"latency"`, `"size"` or `"memory"`.
        fold: Boolean, whether linear layers may become part of codebooks.
    """

    quantize: str | None = None
    min_runtime: tuple | None = None
    optimize_for: str | None = None
    fold: bool = True


DEFAULTS = ExportOptions()
