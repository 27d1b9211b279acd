"""Pictures of reports. They need the extra `plots`, and no display."""

import os

from keras_compembed.reports.code_statistics import code_balance
from keras_compembed.utils.extras import require
from keras_compembed.utils.files import check_output
from keras_compembed.utils.files import replacing
from keras_compembed.utils.sizes import format_bytes

_BASELINE, _CODES, _CODEBOOKS, _REST = (
    "#8c8c8c",
    "#0b6e99",
    "#e08214",
    "#dddddd",
)
_TICKS_UP_TO = 16
_LABELS_UP_TO = 12
# Where a label may stand, best first: sides (right, up) and points away.
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
_DISTANCES = (9, 22, 36, 52, 70, 90)


def plot_code_balance(
    codes, path, codebook_size=None, title=None, overwrite=False
):
    """Draws the share of each subcode as a heat map (Figure 3 of the paper).

    Codebooks go across, subcodes down; each column sums to 100 %.

    Example:

    >>> codes = np.random.default_rng(0).integers(16, size=(1000, 8))
    >>> plot_code_balance(codes, "code_balance.png", codebook_size=16)

    Args:
        codes: Integer array `(rows, num_codebooks)`, or a built
            `CodeEmbedding`.
        path: String or path-like, the picture to write; the suffix says the
            format (`.png`, `.svg`, `.pdf`).
        codebook_size: Integer from 2 to 65536, needed with an array.
        title: Optional string.
        overwrite: Boolean, whether `path` may exist. Defaults to `False`.

    Raises:
        ValueError: as `code_balance`.
        FileExistsError: if `path` exists and `overwrite` is False.
        ImportError: if matplotlib is not installed.
    """
    balance = code_balance(codes, codebook_size)
    num_codebooks, codebook_size = balance.shape
    size = (
        3.2 + min(8, 0.25 * num_codebooks),
        1.6 + min(7, max(1.6, 0.25 * codebook_size)),
    )
    figure, axes = _new_figure(path, overwrite, size)
    image = axes.imshow(
        100 * balance.T,
        cmap="viridis",
        vmin=0,
        aspect="auto",
        interpolation="none",
    )
    figure.colorbar(image, label="rows with this subcode (%)")
    axes.set_xlabel("codebook")
    axes.set_ylabel("subcode")
    for axis, count in (
        (axes.xaxis, num_codebooks),
        (axes.yaxis, codebook_size),
    ):
        if count <= _TICKS_UP_TO:
            axis.set_ticks(range(count))
    axes.set_title(title or f"Code balance, {num_codebooks} x {codebook_size}")
    _save(figure, path, overwrite)


def plot_accuracy_against_size(rows, path, overwrite=False):
    """Draws accuracy against the bytes of the embedding.

    A filled dot is the accuracy of the LiteRT file, a ring that of the Keras
    model, a line the range of several runs. Rows whose name begins with
    "baseline" are grey.

    Example:

    >>> rows = [
    ...     {
    ...         "name": "baseline float32",
    ...         "embedding_bytes": 16_384_000,
    ...         "keras_accuracy": 0.62,
    ...     },
    ...     {
    ...         "name": "codes 32x16",
    ...         "embedding_bytes": 780_288,
    ...         "keras_accuracy": 0.61,
    ...     },
    ... ]
    >>> plot_accuracy_against_size(rows, "accuracy_against_size.png")

    Args:
        rows: List of dicts with `name`, `embedding_bytes` and at least one of
            `keras_accuracy` and `litert_accuracy` (shares from 0 to 1; the
            other may be None or left out), and optionally `accuracy_range`,
            the lowest and the highest. More keys are not read.
        path: String or path-like, the picture to write; the suffix says the
            format (`.png`, `.svg`, `.pdf`).
        overwrite: Boolean, whether `path` may exist. Defaults to `False`.

    Raises:
        ValueError: if there are no rows, or one lacks a figure.
        FileExistsError: if `path` exists and `overwrite` is False.
        ImportError: if matplotlib is not installed.
    """
    _check_rows(rows)
    figure, axes = _new_figure(path, overwrite, (7.2, 4.4))
    ticker = require("matplotlib.ticker", "plots")
    axes.set_xscale("log")
    points, marks, ranges = [], [], []
    for row in rows:
        keras_accuracy = row.get("keras_accuracy")
        litert_accuracy = row.get("litert_accuracy")
        baseline = row["name"].startswith("baseline")
        color = _BASELINE if baseline else _CODES
        size = row["embedding_bytes"] / 2**20
        if keras_accuracy is not None:
            marks.append((size, 100 * keras_accuracy))
            axes.plot(*marks[-1], "o", ms=11, mfc="none", mec=color)
        if litert_accuracy is not None:
            marks.append((size, 100 * litert_accuracy))
            axes.plot(*marks[-1], "o", ms=6, color=color)
        label = f"{row['name']}\n{format_bytes(row['embedding_bytes'])}"
        points.append((*marks[-1], label, color))
        if row.get("accuracy_range") is not None:
            ends = [100 * accuracy for accuracy in row["accuracy_range"]]
            axes.vlines(size, *ends, color=color, lw=1)
            ranges.append([(size, end) for end in ends])
    axes.plot([], [], "o", ms=6, color="black", label="LiteRT")
    axes.plot([], [], "o", ms=11, mfc="none", mec="black", label="Keras")
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    axes.set_xlabel("size of the embedding (MB, log scale)")
    axes.set_ylabel("test accuracy (%)")
    axes.grid(alpha=0.25)
    _frame(axes, marks + [end for ends in ranges for end in ends])
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    _label(figure, axes, points, [[mark] for mark in marks] + ranges)
    _save(figure, path, overwrite)


def plot_frontier(frontier, path, overwrite=False):
    """Draws a `Frontier`: the error, or the metric, against bytes of the file.

    A filled dot is a size counted in a file, a ring a size that was computed.
    The line joins the points that no smaller one is as good as.

    Args:
        frontier: `keras_compembed.compression.Frontier` with points that have
            an error or a score. Scores are drawn if two points have one.
        path: String or path-like, the picture to write; the suffix says the
            format (`.png`, `.svg`, `.pdf`).
        overwrite: Boolean, whether `path` may exist. Defaults to `False`.

    Raises:
        ValueError: if no point has an error or a score.
        FileExistsError: if `path` exists and `overwrite` is False.
        ImportError: if matplotlib is not installed.
    """
    scored = [x for x in frontier.points if x.score is not None]
    shows_scores = len(scored) > 1
    points = scored
    if not shows_scores:
        points = [x for x in frontier.points if x.error is not None]
    if not points:
        raise ValueError(
            "`frontier` must have points with an error or a score. "
            f"Received: {len(frontier.points)} points with neither."
        )
    figure, axes = _new_figure(path, overwrite, (7.2, 4.4))
    axes.set_xscale("log")
    if not shows_scores:
        line = frontier.best
        axes.plot(
            [x.file_bytes / 2**20 for x in line],
            [x.error for x in line],
            color=_BASELINE,
            lw=1,
        )
    labels, marks = [], []
    for point in points:
        mark = point.file_bytes / 2**20, point.score
        if not shows_scores:
            mark = point.file_bytes / 2**20, point.error
        color = _CODEBOOKS if point.is_chosen else _CODES
        fill = color if point.is_exported else "none"
        axes.plot(*mark, "o", ms=6, mfc=fill, mec=color)
        marks.append(mark)
        # More names than these cannot be read.
        if point.is_chosen or len(points) <= _LABELS_UP_TO:
            labels.append((*mark, point.name, color))
    if frontier.limit_bytes is not None:
        axes.axvline(
            frontier.limit_bytes / 2**20, color="black", lw=0.8, ls=":"
        )
    axes.set_xlabel("size of the LiteRT file (MB, log scale)")
    axes.set_ylabel(
        frontier.metric or "score" if shows_scores else "error of rows"
    )
    axes.grid(alpha=0.25)
    _label(figure, axes, labels, [[mark] for mark in marks])
    _save(figure, path, overwrite)


def plot_size_report(report, path, overwrite=False):
    """Draws a `SizeReport`: the model's bytes in several formats."""
    rows = report.embeddings
    if not rows:
        raise ValueError(
            "`report` must have an embedding layer to draw. "
            "Received: a report without any."
        )

    def total(figure):
        return sum(getattr(row, figure) or 0 for row in rows)

    def kinds(**figures):
        return " and ".join(
            name.replace("_", " ")
            for name, figure in figures.items()
            if total(figure)
        )

    tables = total("uncompressed_bytes") + total("weight_bytes")
    bars = [
        ("float32 tables", (0, 0, report.table_bytes)),
        ("int8 tables", (0, 0, total("table_int8_bytes"))),
        ("int4 tables", (0, 0, total("table_int4_bytes"))),
    ]
    ids, shared = total("id_bytes"), total("shared_bytes")
    if ids and ids == total("code_bytes"):
        for dtype, codebooks in (
            ("as stored", "codebook_bytes"),
            ("float16 codebooks", "codebook_float16_bytes"),
            ("int8 codebooks", "codebook_int8_bytes"),
        ):
            bars.append((f"codes, {dtype}", (ids, total(codebooks), tables)))
    elif ids or tables != report.table_bytes:
        bars.append(("as stored", (ids, shared, tables)))
    figure, axes = _new_figure(path, overwrite, (7.2, 0.9 + 0.42 * len(bars)))
    rest = report.other_bytes or 0
    parts = (
        (
            kinds(
                codes="code_bytes",
                sparse_rows="transform_bytes",
                rounded_rows="row_bytes",
            ),
            _CODES,
        ),
        (
            kinds(
                codebooks="codebook_bytes",
                anchors="anchor_bytes",
                projections="projection_bytes",
            ),
            _CODEBOOKS,
        ),
        ("tables", _BASELINE),
        ("everything else", _REST),
    )
    for place, (_, sizes) in enumerate(bars):
        left = 0
        for size, (_, color) in zip((*sizes, rest), parts, strict=True):
            axes.barh(place, size / 2**20, left=left / 2**20, color=color)
            left += size
        axes.annotate(
            format_bytes(left),
            (left / 2**20, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
        )
    longest = max(sum(sizes) for _, sizes in bars) + rest
    axes.set_xlim(0, 1.15 * longest / 2**20)
    axes.set_yticks(range(len(bars)), [name for name, _ in bars])
    axes.invert_yaxis()
    axes.set_xlabel("MB of 2**20 bytes")
    axes.spines[["top", "right"]].set_visible(False)
    present = [
        (name, color)
        for place, (name, color) in enumerate(parts)
        if any((*sizes, rest)[place] for _, sizes in bars)
    ]
    for name, color in present:
        axes.barh(0, 0, color=color, label=name)
    figure.legend(loc="outside upper right", ncols=4, frameon=False)
    _save(figure, path, overwrite)


def plot_pareto_front(front, path, overwrite=False):
    """Draws what a search found: the metric against bytes of LiteRT files."""
    figure, axes = _new_figure(path, overwrite, (7.2, 4.4))
    axes.set_xscale("log")
    kinds = [(front.trials, "none", _BASELINE), (front.best, _CODES, _CODES)]
    for trials, fill, color in kinds:
        sizes = [trial.litert_bytes / 2**10 for trial in trials]
        scores = [trial.score for trial in trials]
        line = "-o" if fill != "none" else "o"
        axes.plot(sizes, scores, line, ms=6, lw=1, mfc=fill, color=color)
    axes.set_xlabel("size of the LiteRT file (kB of 2**10 bytes, log scale)")
    axes.set_ylabel(front.metric)
    axes.grid(alpha=0.25)
    marks = [(x.litert_bytes / 2**10, x.score) for x in front.trials]
    labels = [
        (x.litert_bytes / 2**10, x.score, x.method, _CODES) for x in front.best
    ]
    axes.margins(x=0.15, y=0.1)
    _label(figure, axes, labels, [[mark] for mark in marks])
    _save(figure, path, overwrite)


def _check_rows(rows):
    if not rows:
        raise ValueError(f"`rows` must not be empty. Received: rows={rows!r}.")
    for row in rows:
        size = row.get("embedding_bytes")
        accuracies = (row.get("keras_accuracy"), row.get("litert_accuracy"))
        if (
            not isinstance(row.get("name"), str)
            or not size
            or size < 0
            or accuracies == (None, None)
        ):
            raise ValueError(
                "`rows` must each have a `name`, a positive "
                "`embedding_bytes`, and a `keras_accuracy` or "
                f"`litert_accuracy`. Received: {row!r}."
            )


def _new_figure(path, overwrite, size):
    """An empty figure without a window, once `path` is known to be free."""
    # Not pyplot: it keeps state and may open a window.
    module = require("matplotlib.figure", "plots")
    check_output(path, overwrite)
    figure = module.Figure(figsize=size, dpi=160, layout="constrained")
    return figure, figure.subplots()


def _save(figure, path, overwrite):
    suffix = os.path.splitext(os.fspath(path))[1]
    with replacing(path, overwrite) as temporary:
        figure.savefig(temporary, format=suffix[1:] or "png")


def _frame(axes, marks):
    """Limits with room for labels around the marks."""
    sizes, accuracies = zip(*marks, strict=True)
    factor = max(30, max(sizes) / min(sizes)) ** 0.2
    axes.set_xlim(min(sizes) / factor, max(sizes) * factor)
    room = 0.35 * max(3, max(accuracies) - min(accuracies))
    axes.set_ylim(min(accuracies) - room, max(accuracies) + room)


def _label(figure, axes, points, drawn):
    """Writes each label at the nearest place where it covers nothing."""
    transforms = require("matplotlib.transforms", "plots")
    figure.draw_without_rendering()
    # From here on the axes must not move under the labels.
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
        style = {
            "textcoords": "offset points",
            "fontsize": 8,
            "color": "#333333" if color == _BASELINE else color,
        }
        label = axes.annotate(text, (x, y), xytext=(0, 0), **style)
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
    """Moves a label to a free side at this distance; False if none is."""
    for right, up in _SIDES:
        label.set_position((right * distance, up * distance))
        label.set_ha({1: "left", 0: "center", -1: "right"}[right])
        label.set_va({1: "bottom", 0: "center", -1: "top"}[up])
        box = label.get_window_extent(renderer)
        fits = (
            inside.x0 <= box.x0
            and box.x1 <= inside.x1
            and inside.y0 <= box.y0
            and box.y1 <= inside.y1
        )
        if fits and not any(box.overlaps(other) for other in taken):
            return True
    return False
