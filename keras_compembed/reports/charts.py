"""Charts as inline SVG, from plain numbers. Colours are classes of the page."""

import dataclasses
import math

from keras_compembed.reports.markup import element
from keras_compembed.utils.sizes import format_bytes

_MOST_CELLS = 64
# Steps between ticks of a logarithmic axis of bytes.
_TICK_STEPS = (2, 4, 8, 16, 64, 256, 1024, 4096)
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 14, 28, 40


def stacked_bar(parts, whole, classes):
    """A bar of parts side by side, as wide as its place on the page."""
    rects, left = [], 0.0
    for name, value in parts.items():
        # So thin that it could not be seen: still a line.
        width = max(100 * value / whole, 0.15) if value else 0
        rects.append(
            element(
                "rect",
                element("title", f"{name}: {format_bytes(value)}"),
                x=f"{left:.3f}",
                y=0,
                width=f"{width:.3f}",
                height=1,
                class_=classes[name],
            )
        )
        left += width
    return element(
        "svg",
        rects,
        viewBox="0 0 100 1",
        preserveAspectRatio="none",
        class_="bar",
        role="img",
        aria_label=", ".join(
            f"{name} {format_bytes(value)}" for name, value in parts.items()
        ),
    )


def balance_chart(balance):
    """Shares of subcodes as a map: codebooks across, subcodes down."""
    balance = balance[:_MOST_CELLS]
    step = -(-balance.shape[1] // _MOST_CELLS)
    bands = [
        balance[:, start : start + step].sum(axis=1)
        for start in range(0, balance.shape[1], step)
    ]
    largest = max(band.max() for band in bands)
    cells = [
        element(
            "rect",
            x=column,
            y=row,
            width=1,
            height=1,
            fill_opacity=f"{share / largest:.3f}",
        )
        for row, band in enumerate(bands)
        for column, share in enumerate(band)
        if share
    ]
    columns, rows = len(balance), len(bands)
    return element(
        "svg",
        cells,
        viewBox=f"0 0 {columns} {rows}",
        preserveAspectRatio="none",
        class_="balance",
        style=f"max-width:{18 * columns}px;height:{max(60, 9 * rows)}px",
        role="img",
        aria_label=f"Share of each subcode in {columns} codebooks",
    )


@dataclasses.dataclass(frozen=True)
class ChartPoint:
    """A dot."""

    num_bytes: int
    height: float
    kind: str
    title: str


def size_chart(
    points,
    label,
    width,
    height,
    sizes=(),
    limit=None,
    model_bytes=None,
    from_zero=False,
):
    """Dots by bytes, on a logarithmic axis, and another number."""
    extras = [x for x in (limit, model_bytes) if x]
    across = _bytes_axis(
        [*(point.num_bytes for point in points), *extras, *sizes],
        (_LEFT, width - _RIGHT),
    )
    upwards = _linear_axis(
        [0] * from_zero + [point.height for point in points],
        (height - _BOTTOM, _TOP),
    )
    drawn = [
        *_grid(across, upwards, width, height),
        *_lines(across, limit, model_bytes, height),
    ]
    best = [
        (across.place(x.num_bytes), upwards.place(x.height))
        for x in sorted(points, key=lambda x: x.num_bytes)
        if x.kind in ("best", "chosen")
    ]
    if len(best) > 1:
        drawn.append(
            element(
                "polyline",
                points=" ".join(f"{x:.1f},{y:.1f}" for x, y in best),
                class_="line",
            )
        )
    # What matters most is drawn last.
    order = ("other", "best", "chosen", "model")
    for point in sorted(points, key=lambda x: order.index(x.kind)):
        x, y = across.place(point.num_bytes), upwards.place(point.height)
        drawn.append(_dot(x, y, point))
        if point.kind == "model":
            drawn.append(_label(x, y, "this model", width))
    drawn.append(element("text", label, x=4, y=14, class_="axis"))
    return element(
        "svg",
        drawn,
        viewBox=f"0 0 {width} {height}",
        class_="chart",
        role="img",
        aria_label=f"{label} by bytes of the file",
    )


def _dot(x, y, point):
    title = element("title", point.title)
    if point.kind == "model":
        path = f"M{x:.1f} {y - 7:.1f}l7 7l-7 7l-7 -7z"
        return element("path", title, d=path, class_="model")
    radius = {"other": 2.5, "best": 3.5, "chosen": 6}[point.kind]
    return element(
        "circle",
        title,
        cx=f"{x:.1f}",
        cy=f"{y:.1f}",
        r=radius,
        class_=point.kind,
    )


def _label(x, y, text, width):
    """A text beside a place, to the side where there is room."""
    is_right = x < width - 100
    return element(
        "text",
        text,
        x=f"{x + (11 if is_right else -11):.1f}",
        y=f"{y - 6:.1f}",
        text_anchor=None if is_right else "end",
        class_="strong",
    )


def _lines(across, limit, model_bytes, height):
    for value, kind, text, below in (
        (limit, "limit", "limit", 8),
        (model_bytes, "model", "this model", 24),
    ):
        if value:
            x = f"{across.place(value):.1f}"
            yield element(
                "line",
                element("title", f"{text}: {format_bytes(value)}"),
                x1=x,
                x2=x,
                y1=_TOP,
                y2=height - _BOTTOM,
                class_=f"{kind} upright",
            )
            yield element(
                "text", text, x=x, y=_TOP + below, dx=4, class_="axis"
            )


def _grid(across, upwards, width, height):
    bottom = height - _BOTTOM
    for value in upwards.ticks:
        y = f"{upwards.place(value):.1f}"
        yield element(
            "line", x1=_LEFT, x2=width - _RIGHT, y1=y, y2=y, class_="grid"
        )
        yield element(
            "text",
            f"{value:g}",
            x=_LEFT - 6,
            y=y,
            dy="0.35em",
            text_anchor="end",
            class_="axis",
        )
    for value in across.ticks:
        x = f"{across.place(value):.1f}"
        yield element(
            "line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="grid"
        )
        yield element(
            "text",
            _tick_name(value),
            x=x,
            y=bottom + 17,
            text_anchor="middle",
            class_="axis",
        )
    yield element(
        "text",
        "bytes of the file",
        x=width - _RIGHT,
        y=height - 5,
        text_anchor="end",
        class_="axis",
    )


def _tick_name(count):
    for unit, size in (("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if count >= size:
            return f"{count // size} {unit}"
    return f"{count} B"


class _Axis:
    """From numbers to places; `ticks` are numbers to write."""

    def __init__(self, low, high, places, ticks, scale=float):
        self._low, self._high = scale(low), scale(high)
        self._from, self._to = places
        self._scale = scale
        self.ticks = ticks

    def place(self, value):
        share = (self._scale(value) - self._low) / (self._high - self._low)
        return self._from + share * (self._to - self._from)


def _bytes_axis(values, places):
    low, high = min(values) / 1.25, max(values) * 1.25
    # A label takes some 62 pixels.
    most = max(2, abs(places[1] - places[0]) // 62)
    for step in _TICK_STEPS:
        first = math.ceil(math.log(low, step))
        last = math.floor(math.log(high, step))
        if last - first < most:
            break
    ticks = [step**power for power in range(max(0, first), last + 1)]
    return _Axis(low, high, places, ticks, math.log)


def _linear_axis(values, places):
    low, high = min(values), max(values)
    if low == high:
        low, high = low - 0.5, high + 0.5
    step = 10 ** math.floor(math.log10(high - low))
    for parts in (1, 2, 5):
        if (high - low) * parts / step >= 4:
            step /= parts
            break
    low, high = step * math.floor(low / step), step * math.ceil(high / step)
    count = round((high - low) / step)
    ticks = [round(low + step * x, 10) for x in range(count + 1)]
    return _Axis(low, high, places, ticks)
