"""Reports as text."""

from keras_compembed.utils.sizes import format_bytes

_MAX_NAME = 16
_HEADER = (
    ("Layer", "Table", "Codes of")
    + ("Codes", "Codebooks", "Stored")
    + ("float32", "int8", "int4", "Ratio")
)
_LEFT_ALIGNED = 3
_MAX_WIDTH = 100
_MAX_LAYERS = 12


def format_size_report(report):
    """A `SizeReport` as a table with notes, at most 100 columns wide."""
    if not report.embeddings:
        rest = report.other_bytes
        return "No embedding layers; all weights: " + (
            "not built yet" if rest is None else format_bytes(rest)
        )
    largest = sorted(report.embeddings, key=lambda row: -row.stored_bytes)
    # One layer takes no more space than a line that sums it up.
    number = len(largest) if len(largest) <= _MAX_LAYERS + 1 else _MAX_LAYERS
    shown, smaller = largest[:number], largest[number:]
    names = _short_names([row.name for row in shown])
    rows = [
        _embedding_cells(name, row)
        for name, row in zip(names, shown, strict=True)
    ]
    if smaller:
        rows.append(_sum_cells(f"{len(smaller)} smaller ones", smaller))
    if len(largest) > 1:
        rows.append(_total_cells("all embeddings", largest))
    rest = report.other_bytes
    if rest:
        size = format_bytes(rest)
        blank = ("",)
        rows.append(("everything else", *4 * blank, size, size, *3 * blank))
        rows.append(_total_cells("whole model", largest, rest))
    lines = _aligned([_HEADER, *rows])
    lines.insert(1, "-" * len(lines[0]))
    lines.append("")
    lines += _notes(report, shown)
    return "\n".join(lines)


def _embedding_cells(name, row):
    shape = f"{row.input_dim} x {row.output_dim}"
    tables = (row.table_bytes, row.table_int8_bytes, row.table_int4_bytes)
    sizes = _sizes(row.stored_bytes, *tables)
    cells = (
        format_bytes(size) if size else "-"
        for size in (row.id_bytes, row.shared_bytes)
    )
    return (name, shape, _kind(row), *cells, *sizes)


def _kind(row):
    if row.num_anchors is not None:
        return f"{row.num_anchors} anchors"
    if row.num_codebooks is not None:
        return f"{row.num_codebooks} x {row.codebook_size}"
    return row.stored_as or "-"


def _sum_cells(name, rows):
    ids = sum(row.id_bytes for row in rows)
    shared = sum(row.shared_bytes for row in rows)
    cells = [format_bytes(size) if size else "-" for size in (ids, shared)]
    return (name, "", "", *cells, *_total_cells(name, rows)[5:])


def _total_cells(name, rows, rest=0):
    tables = (
        sum(getattr(row, figure) for row in rows) + rest
        for figure in ("table_bytes", "table_int8_bytes", "table_int4_bytes")
    )
    stored = sum(row.stored_bytes for row in rows) + rest
    return (name, *[""] * 4, *_sizes(stored, *tables))


def _sizes(stored, float32, int8, int4):
    cells = map(format_bytes, (stored, float32, int8, int4))
    return (*cells, f"{float32 / stored:.1f}")


def _short_names(names):
    """Ends of names, as long as they must be to differ."""
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
    yield "MB = 2**20 bytes. float32, int8, int4: the tables uncompressed."
    if report.other_bytes is None:
        yield "The model is not built: its other weights are not counted."
    if report.tokenizer_bytes:
        size = format_bytes(report.tokenizer_bytes)
        yield f"The tokenizer takes {size} more in files that take texts."
    if len(shown) < len(report.embeddings):
        yield "`to_dict()` has each of the smaller layers."
    if any(row.num_anchors is not None for row in report.embeddings):
        yield "Of anchors: sparse rows in place of codes, anchors of codebooks."
    if any(row.row_bytes for row in report.embeddings):
        yield (
            "Of rounded tables: rows and scales in place of codes, projection "
            "of codebooks."
        )
    for row in shown:
        notes = list(_layer_notes(row))
        if row.fidelity:
            notes += _fidelity_notes(row.fidelity)
        if notes:
            yield f"{row.name}:"
            yield from notes


def _layer_notes(row):
    if row.num_anchors is not None:
        yield from _anchor_notes(row)
    if row.num_codebooks is not None:
        yield from _code_notes(row)
    if row.row_bytes:
        parts = [
            f"{name} {format_bytes(size)}"
            for name, size in (
                ("rows", row.row_bytes),
                ("scales", row.scale_bytes),
                ("projection", row.projection_bytes),
            )
            if size
        ]
        yield f"  {', '.join(parts)}"


def _code_notes(row):
    yield (
        f"  {row.code_bits:.6g} bits per row; codebooks "
        f"{format_bytes(row.codebook_float16_bytes)} in float16, "
        f"{format_bytes(row.codebook_int8_bytes)} in int8"
    )
    if row.exact_code_bytes != row.code_bytes:
        stored_bits = 8 * row.code_bytes // row.input_dim
        yield (
            f"  codes {format_bytes(row.exact_code_bytes)} in exactly "
            f"those bits, {format_bytes(row.code_bytes)} as stored "
            f"({stored_bits} bits per row, whole bytes)"
        )


def _anchor_notes(row):
    yield (
        f"  {row.num_nonzeros:,} non-zeros, "
        f"{row.num_nonzeros / row.input_dim:.3g} per row; with the anchors "
        f"{row.num_values:,} numbers"
    )
    yield (
        f"  offsets {format_bytes(row.offset_bytes)}, columns "
        f"{format_bytes(row.column_bytes)}, values "
        f"{format_bytes(row.value_bytes)}"
    )
    sizes = ", ".join(
        f"{format_bytes(size)} ({name})"
        for name, size in row.litert_bytes.items()
    )
    yield f"  in a LiteRT file: {sizes}"


def _fidelity_notes(fidelity):
    yield (
        "  against the reference: mean squared distance "
        f"{fidelity.mean_squared_distance:.4g},"
    )
    yield (
        f"  relative error {_number(fidelity.relative_squared_error)} "
        f"(about the mean row "
        f"{_number(fidelity.centred_relative_squared_error)}), "
        f"mean cosine {_number(fidelity.mean_cosine)},"
    )
    yield (
        f"  share of the {fidelity.num_neighbors} nearest neighbours kept "
        f"{_number(fidelity.neighbor_overlap)} "
        f"({fidelity.num_queries} rows asked)"
    )
    for score, before in zip(
        fidelity.word_scores, fidelity.original_word_scores, strict=True
    ):
        yield (
            f"  {score.name}: {_number(score.score)}, "
            f"{_number(before.score)} of the reference "
            f"({score.num_used:,} of {score.num_all:,} known)"
        )


def _number(value):
    return "undefined" if value is None else f"{value:.3f}"
