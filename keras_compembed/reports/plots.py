"""Plots of reports. They need the extra `plots`, but no display."""

import os

from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.files import check_output
from keras_compembed.utils.files import format_bytes
from keras_compembed.utils.files import replacing
from keras_compembed.utils.validation import require

BASELINE, CODES, _CHOSEN = "#8c8c8c", "#0b6e99", "#e08214"
REST = "everything else"
# Colours of a model's parts.
COLOURS = {
    "codes": "#0b6e99",
    "codebooks": "#e08214",
    "sparse rows": "#2a8f6d",
    "anchors": "#9a5fb5",
    "quantized rows": "#4a69bd",
    "scales": "#c2a000",
    "projection": "#b5485d",
    "plain table": "#8c8c8c",
    "weights": "#6d8b74",
    "tokenizer": "#8a5a44",
    REST: "#c9cdd1",
}
_LABELS_UP_TO = 12
# Label positions, best first: sides (right, up), then distances in points.
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
_DISTANCES = (9, 22, 36, 52, 70, 90)


def plot_frontier(frontier, path, overwrite=False):
    """Plots the error, or the metric, by file size."""
    figure_name, title = "score", frontier.metric or "score"
    if sum(x.score is not None for x in frontier) < 2:
        figure_name, title = "error", "error of rows"
    points = [x for x in frontier if getattr(x, figure_name) is not None]
    require(
        points,
        "`frontier` must have points with an error or a score.",
        points=len(frontier),
    )
    figure, axes = new_figure(path, overwrite)
    axes.set_xscale("log")
    if figure_name == "error":
        sizes = [x.file_bytes / 10**6 for x in frontier.best]
        errors = [x.error for x in frontier.best]
        axes.plot(sizes, errors, color=BASELINE, lw=1)
    labels, marks = [], []
    for point in points:
        mark = point.file_bytes / 10**6, getattr(point, figure_name)
        color = _CHOSEN if point.is_chosen else CODES
        fill = color if point.is_exported else "none"
        axes.plot(*mark, "o", ms=6, mfc=fill, mec=color)
        marks.append(mark)
        # More labels would not be readable.
        if point.is_chosen or len(points) <= _LABELS_UP_TO:
            labels.append((*mark, point.name, color))
    if frontier.limit_bytes is not None:
        limit = frontier.limit_bytes / 10**6
        axes.axvline(limit, color="black", lw=0.8, ls=":")
    axes.set(xlabel="size of the LiteRT file (MB, log scale)", ylabel=title)
    axes.grid(alpha=0.25)
    write_labels(figure, axes, labels, [[mark] for mark in marks])
    save(figure, path, overwrite)


def plot_size_report(report, path, overwrite=False):
    """Plots the bytes of a `SizeReport`: uncompressed and as stored."""
    require(
        report.embeddings,
        "`report` must have an embedding layer to draw.",
        report=report,
    )
    bars = {}
    for dtype in ("float32", "int8", "int4"):
        figure = "table_bytes" if dtype == "float32" else f"table_{dtype}_bytes"
        size = sum(getattr(row, figure) for row in report.embeddings)
        rest = report.other_bytes or 0
        bars[f"{dtype} tables"] = {"plain table": size, REST: rest}
    stored = model_parts(report)
    if set(stored) - {"plain table", REST}:
        bars["as stored"] = stored
    figure, axes = new_figure(path, overwrite, (7.2, 0.9 + 0.42 * len(bars)))
    named = set()
    for place, parts in enumerate(bars.values()):
        left = 0
        for name, size in parts.items():
            axes.barh(
                place,
                size / 10**6,
                left=left / 10**6,
                color=COLOURS[name],
                label=name if size and name not in named else None,
            )
            left += size
            named |= {name} if size else set()
        axes.annotate(
            format_bytes(left),
            (left / 10**6, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
        )
    axes.margins(x=0.15)
    axes.set_yticks(range(len(bars)), bars)
    axes.invert_yaxis()
    axes.set_xlabel("MB of 1,000,000 bytes")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper right", ncols=4, frameon=False)
    save(figure, path, overwrite)


def model_parts(report):
    """Dict from the parts of a `SizeReport` to their bytes."""
    parts = dict.fromkeys(COLOURS, 0)
    for size in report.embeddings:
        for name, count in size.parts.items():
            parts[name] += count
    parts[REST] = report.other_bytes or 0
    return {name: count for name, count in parts.items() if count}


def new_figure(path, overwrite, size=(7.2, 4.4)):
    """A new figure without a window; first checks `path`."""
    # pyplot would keep state and may open a window.
    module = import_extra("matplotlib.figure", "plots")
    check_output(path, overwrite)
    figure = module.Figure(figsize=size, dpi=160, layout="constrained")
    return figure, figure.subplots()


def save(figure, path, overwrite):
    suffix = os.path.splitext(os.fspath(path))[1]
    with replacing(path, overwrite) as temporary:
        figure.savefig(temporary, format=suffix[1:] or "png")


def write_labels(figure, axes, points, drawn):
    """Places each label nearest its point, without overlaps."""
    transforms = import_extra("matplotlib.transforms", "plots")
    figure.draw_without_rendering()
    # From now on, the axes must not move.
    figure.set_layout_engine("none")
    renderer = figure._get_renderer()
    pixel = figure.dpi / 72
    taken = []
    for ends in drawn:
        ends = axes.transData.transform(ends)
        low, high = ends.min(axis=0), ends.max(axis=0)
        half = 7 * pixel
        taken.append(transforms.Bbox([low - half, high + half]))
    for x, y, text, color in sorted(points):
        label = axes.annotate(
            text,
            (x, y),
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=8,
            color="#333333" if color == BASELINE else color,
        )
        for distance in _DISTANCES:
            if _place(label, distance, taken, axes.bbox, renderer):
                break
        taken.append(label.get_window_extent(renderer).padded(3 * pixel))
        if distance > _DISTANCES[0] or 0 not in label.get_position():
            line = {"arrowstyle": "-", "lw": 0.5, "color": color}
            axes.annotate(
                "",
                (x, y),
                xytext=label.get_position(),
                arrowprops={**line, "shrinkA": 1, "shrinkB": 5},
                textcoords="offset points",
            )


def _place(label, distance, taken, inside, renderer):
    """Moves a label to a free side; False if there is none."""
    for right, up in _SIDES:
        label.set_position((right * distance, up * distance))
        label.set_ha({1: "left", 0: "center", -1: "right"}[right])
        label.set_va({1: "bottom", 0: "center", -1: "top"}[up])
        box = label.get_window_extent(renderer)
        fits = inside.contains(*box.min) and inside.contains(*box.max)
        if fits and not any(box.overlaps(other) for other in taken):
            return True
    return False
