"""SVG charts of a `Frontier` for the HTML report."""

import io
import math
import re

from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.files import format_bytes

# Light-mode colours, replaced by the page's variables.
_VARIABLES = {
    "#0b6e99": "var(--main)",
    "#c4650a": "var(--warm)",
    "#5b646d": "var(--soft)",
    "#dfe3e7": "var(--edge)",
    "#ffffff": "var(--back)",
}
_MAIN, _WARM, _SOFT, _EDGE, _BACK = _VARIABLES
_SIZES = {"wide": (920, 340), "narrow": (360, 300)}
# Fills, edges and sizes of dots, the most important last.
_DOTS = {
    "other": {"color": _SOFT, "alpha": 0.45, "ms": 5, "mew": 0},
    "best": {"color": _MAIN, "ms": 7, "mew": 0},
    "chosen": {"mfc": _BACK, "mec": _MAIN, "ms": 12, "mew": 3},
}


def frontier_charts(frontier, place):
    """SVG charts of error and score by bytes, each in two widths."""
    markup = import_extra("markupsafe", "plots")
    charts = []
    for figure in ("error", "score"):
        points = [x for x in frontier if _height(x, figure) is not None]
        if len(points) + (_height(place, figure) is not None) > 1:
            charts += [
                markup.Markup(_draw(frontier, points, place, figure, width))
                for width in _SIZES
            ]
    return charts


def _height(point, figure):
    height = point and getattr(point, figure)
    return height if height is not None and math.isfinite(height) else None


def _draw(frontier, points, place, figure, width):
    matplotlib = import_extra("matplotlib", "plots")
    module = import_extra("matplotlib.figure", "plots")
    options = {
        "axes.edgecolor": _EDGE,
        "axes.labelcolor": _SOFT,
        "font.size": 12,
        "grid.color": _EDGE,
        "svg.fonttype": "none",
        # Different ids for each chart of the page.
        "svg.hashsalt": f"{figure} {width}",
        "text.color": _SOFT,
        "xtick.color": _EDGE,
        "xtick.labelcolor": _SOFT,
        "ytick.color": _EDGE,
        "ytick.labelcolor": _SOFT,
    }
    with matplotlib.rc_context(options):
        size = [pixels / 72 for pixels in _SIZES[width]]
        canvas = module.Figure(size, dpi=72, layout="constrained")
        axes = canvas.subplots()
        _fill(axes, frontier, points, place, figure)
        file = io.StringIO()
        about = dict.fromkeys(["Creator", "Date", "Format", "Type"])
        canvas.savefig(file, format="svg", transparent=True, metadata=about)
    svg = file.getvalue()
    # The page sets its size.
    head, end, rest = svg[svg.index("<svg") :].partition(">")
    head = re.sub(r' (xmlns(:xlink)?|width|height|version)="[^"]*"', "", head)
    svg = head + end + rest
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    label = axes.get_title(loc="left")
    return svg.replace(
        "<svg",
        f'<svg class="chart {width}" role="img" '
        f'aria-label="{label} by file size in bytes"',
        1,
    )


def _fill(axes, frontier, points, place, figure):
    best = {id(x) for x in frontier.best} if figure == "error" else ()
    kinds = {kind: [] for kind in _DOTS}
    for point in points:
        kind = "best" if id(point) in best else "other"
        kinds["chosen" if point.is_chosen else kind].append(point)
    line = sorted(kinds["best"] + kinds["chosen"], key=lambda x: x.file_bytes)
    axes.plot(*_marks(line, figure), color=_MAIN, lw=1.5)
    for kind, style in _DOTS.items():
        axes.plot(*_marks(kinds[kind], figure), "o", **style)
    limits = [(frontier.limit_bytes, "limit", _SOFT, 0.98)]
    if _height(place, figure) is not None:
        mark = (place.file_bytes, _height(place, figure))
        axes.plot(*mark, "D", mfc=_WARM, mec=_BACK, ms=10, mew=1.5)
        axes.annotate(
            "this model",
            mark,
            (8, 6),
            textcoords="offset points",
            weight="bold",
        )
    elif place:
        limits.append((place.file_bytes, "this model", _WARM, 0.9))
    for value, text, colour, height in limits:
        if value:
            axes.axvline(value, color=colour, lw=1.5, ls=(0, (3, 3)))
            axes.annotate(
                text,
                (value, height),
                (4, 0),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                va="top",
            )
    axes.set_xscale("log", base=10)
    low, high = axes.get_xlim()
    axes.set_xlim(low / 1.1, 1.3 * high)
    axes.xaxis.set_major_formatter(
        lambda x, _: re.sub(r"\.0+ ", " ", format_bytes(x))
    )
    if figure == "error":
        axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel("file size in bytes", loc="right")
    label = "error of rows" if figure == "error" else frontier.metric or "score"
    axes.set_title(label, loc="left", size=12)


def _marks(points, figure):
    return (
        [point.file_bytes for point in points],
        [getattr(point, figure) for point in points],
    )
