"""Text output of reports."""

from keras_compembed.utils.files import describe_bytes
from keras_compembed.utils.files import format_bytes

_MAX_NAME = 16
_HEADER = ("Layer", "Table", "Stored as", "Per id", "Shared", "Stored")
_HEADER += ("float32", "int8", "int4", "Ratio")
_LEFT_ALIGNED = 3
_MAX_WIDTH = 100
_MAX_LAYERS = 12


def format_size_report(report):
    """A `SizeReport` as a table with notes, at most 100 columns wide."""
    rest = report.other_bytes
    if not report.embeddings:
        return "No embedding layers; all weights: " + (
            "not built yet" if rest is None else describe_bytes(rest)
        )
    largest = sorted(report.embeddings, key=lambda row: -row.stored_bytes)
    # A single smaller layer is listed, not summed up.
    number = len(largest) if len(largest) <= _MAX_LAYERS + 1 else _MAX_LAYERS
    shown, smaller = largest[:number], largest[number:]
    names = _short_names([row.name for row in shown])
    rows = [
        (
            name,
            f"{row.input_dim} x {row.output_dim}",
            row.stored_as,
            *_sizes([row]),
        )
        for name, row in zip(names, shown, strict=True)
    ]
    if smaller:
        name = f"{len(smaller)} smaller ones"
        rows.append((name, "", "", *_sizes(smaller)))
    if len(largest) > 1:
        rows.append(("all embeddings", *4 * [""], *_sizes(largest)[2:]))
    if rest:
        size = format_bytes(rest)
        rows.append(("everything else", *4 * [""], size, size, *3 * [""]))
        rows.append(("whole model", *4 * [""], *_sizes(largest, rest)[2:]))
    lines = _aligned([_HEADER, *rows])
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join([*lines, "", *_notes(report, shown)])


def _sizes(rows, rest=0):
    """Cells from "Per id" to "Ratio" of layers in total."""

    def total(figure):
        return sum(getattr(row, figure) for row in rows)

    stored, table = total("stored_bytes") + rest, total("table_bytes") + rest
    sizes = (
        *(total("id_bytes"), total("shared_bytes"), stored, table),
        *(total(f"table_{dtype}_bytes") + rest for dtype in ("int8", "int4")),
    )
    cells = [format_bytes(size) if size else "-" for size in sizes]
    return (*cells, f"{table / stored:.1f}")


def _short_names(names):
    """The ends of names, long enough to differ."""
    width = _MAX_NAME
    while True:
        short = [
            name if len(name) <= width else f"...{name[3 - width :]}"
            for name in names
        ]
        if len(set(short)) == len(set(names)):
            return short
        width += 1


def _aligned(rows):
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    wide = sum(widths) + 2 * (len(widths) - 1)
    gap = "  " if wide <= _MAX_WIDTH else " "
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if place < _LEFT_ALIGNED else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(gap.join(cells).rstrip())
    return lines


def _notes(report, shown):
    yield "Sizes in a .keras file; LiteRT files can be smaller."
    yield "1 kB = 1,000 bytes. float32, int8, int4: uncompressed tables."
    if report.other_bytes is None:
        yield "The model is not built: its other weights are not counted."
    if report.tokenizer_bytes:
        size = describe_bytes(report.tokenizer_bytes)
        yield f"The tokenizer adds {size} to exported files with text input."
    if len(shown) < len(report.embeddings):
        yield "`to_dict()` lists the smaller layers."
    for row in shown:
        notes = [f"  {note}" for note in _layer_notes(row)]
        if notes:
            yield f"{row.name}:"
            yield from notes


def _layer_notes(row):
    if len(row.parts) > 1:
        yield ", ".join(
            f"{name} {describe_bytes(size)}" for name, size in row.parts.items()
        )
    if row.unread_rows:
        yield f"{row.unread_rows:,} rows without a token are left out"
    if row.num_anchors is not None:
        yield (
            f"{row.num_nonzeros:,} non-zeros, "
            f"{row.num_nonzeros / row.input_dim:.3g} per row; with the anchors "
            f"{row.num_values:,} parameters"
        )
    if row.num_codebooks is not None:
        stored_bits = 8 * row.parts["codes"] // row.input_dim
        yield (
            f"{row.code_bits:.6g} bits per row, {stored_bits} as stored; "
            f"codebooks {format_bytes(2 * row.num_values)} in float16, "
            f"{format_bytes(row.num_values)} in int8"
        )
    near = row.fidelity
    if near is not None:
        yield (
            "compared with the original: mean squared distance "
            f"{near.mean_squared_distance:.4g},"
        )
        yield (
            f"relative error {_number(near.relative_squared_error)} "
            f"({_number(near.centred_relative_squared_error)} of variance), "
            f"mean cosine {_number(near.mean_cosine)},"
        )
        yield (
            f"{_number(near.neighbor_overlap)} of the {near.num_neighbors} "
            f"nearest neighbors kept ({near.num_queries} rows)"
        )


def _number(value):
    return "undefined" if value is None else f"{value:.3f}"
