"""What the bytes of a model are of."""

import dataclasses

# Names of parts, and the figures of an `EmbeddingSize` that they add up.
_PARTS = {
    "codes": ("code_bytes",),
    "codebooks": ("codebook_bytes",),
    "sparse rows": ("offset_bytes", "column_bytes", "value_bytes"),
    "anchors": ("anchor_bytes",),
    "rounded rows": ("row_bytes",),
    "scales": ("scale_bytes",),
    "projection": ("projection_bytes",),
    "plain table": ("uncompressed_bytes",),
    "weights": ("weight_bytes",),
}
TOKENIZER = "tokenizer"
REST = "everything else"
PART_NAMES = (*_PARTS, TOKENIZER, REST)


@dataclasses.dataclass(frozen=True)
class SizeParts:
    """What a layer, or a whole model, takes."""

    name: str
    parts: dict
    shape: tuple | None = None
    kind: str = ""

    @property
    def total(self):
        return sum(self.parts.values())


def layer_parts(size):
    """`SizeParts` of an `EmbeddingSize`."""
    parts = {
        name: sum(getattr(size, figure, 0) for figure in figures)
        for name, figures in _PARTS.items()
    }
    return SizeParts(
        name=size.name,
        parts={name: count for name, count in parts.items() if count},
        shape=(size.input_dim, size.output_dim),
        kind=_kind(size),
    )


def model_parts(name, report):
    """`SizeParts` of all that is in a `SizeReport`."""
    parts = {}
    for size in report.embeddings:
        for part, count in layer_parts(size).parts.items():
            parts[part] = parts.get(part, 0) + count
    if report.tokenizer_bytes:
        parts[TOKENIZER] = report.tokenizer_bytes
    if report.other_bytes:
        parts[REST] = report.other_bytes
    order = [part for part in PART_NAMES if part in parts]
    return SizeParts(name, {part: parts[part] for part in order})


def _kind(size):
    if size.num_codebooks is not None:
        return f"codes {size.num_codebooks} × {size.codebook_size}"
    if size.num_anchors is not None:
        return f"{size.num_anchors:,} anchors, {size.num_nonzeros:,} non-zeros"
    return getattr(size, "stored_as", None) or "plain table"
