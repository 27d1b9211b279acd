"""Pictures of records of `comparison.accuracy`."""

import statistics

from benchmarks.common.tables import figures
from keras_compembed.utils.files import replacing

METRIC = "test.accuracy"
# On the picture of a task.
MOST_METHODS = 8
# Without grey, which is the table's.
COLOURS = [f"C{number}" for number in (0, 1, 2, 3, 4, 5, 6, 9)]
# Points between the middles of labels.
LABEL_HEIGHT = 10.5
# These are not on pictures: none fits into a 16th.
LARGE = "LiteRT Quantizer"
# A family is drawn by its best method on validation data.
FAMILIES = {
    "anchors": ("anchors", "table-first anchors"),
    "codes": (
        *("codes of 16", "large codes", "low-rank codes"),
        "table-first codes",
    ),
    "quantized rows": ("int2", "int4", "int8"),
    "int2 vocabulary": ("int2 vocabulary", "tiers"),
    "pruned": ("pruned",),
    "from scratch": (
        *("quotient x remainder", "tensor train", "hashed", "word2ketXS"),
        *("codes from scratch", "digits", "int4 digits", "int2 digits"),
    ),
}
TASKS = {
    "clinc150": "CLINC150, mean of words",
    "20newsgroups": "20 Newsgroups, mean of words",
    "docstrings": "docstrings, CNN",
}


def draw(rows, folder):
    """Draws a picture of each task, and one of all by families."""
    folder.mkdir(parents=True, exist_ok=True)
    of_tasks = {}
    for row in rows:
        if row["row"]["method"].startswith(LARGE):
            continue
        of_tasks.setdefault(row["row"]["task"]["name"], []).append(row)
    for task, found in of_tasks.items():
        if any(row["row"]["ratio"] > 1 for row in found):
            draw_task(found, folder / f"comparison_{task}.png")
    if set(TASKS) <= set(of_tasks):
        draw_families(of_tasks, folder / "which_method.png")


def draw_task(rows, path):
    """Draws the best methods of a task, with the range of their seeds."""
    lines = {}
    for row in rows:
        values = [100 * value for value in figures(row, METRIC)]
        if values:
            line = lines.setdefault(row["row"]["method"], {})
            line[row["row"]["ratio"]] = values
    whole = lines.pop("table", {}).get(1)
    figure, (axes,) = new_figure(1, 3.6)
    ratios = {ratio for line in lines.values() for ratio in line}
    table = {"table": dict.fromkeys(ratios, whole)} if whole else {}
    ranked = best_first(lines)[:MOST_METHODS]
    draw_lines(axes, {name: lines[name] for name in ranked} | table)
    axes.set_ylabel("accuracy on test texts, %")
    save(figure, path)


def draw_families(of_tasks, path):
    """Draws what each family of methods keeps of the table's figure."""
    figure, panels = new_figure(len(TASKS), 1.9)
    for axes, (task, title) in zip(panels, TASKS.items(), strict=True):
        found = {
            (row["row"]["method"], row["row"]["ratio"]): row
            for row in of_tasks[task]
            if figures(row, METRIC)
        }
        whole = statistics.fmean(figures(found["table", 1], METRIC))
        lines = {}
        for family, methods in FAMILIES.items():
            for ratio in sorted({ratio for _, ratio in found} - {1}):
                rows = [found.get((name, ratio)) for name in methods]
                best = max(
                    filter(None, rows),
                    key=lambda row: figures(row, "valid")[0],
                    default=None,
                )
                if best is not None:
                    lines.setdefault(family, {})[ratio] = [
                        100 * value / whole for value in figures(best, METRIC)
                    ]
        lines["table"] = {ratio: [100] for _, ratio in found if ratio > 1}
        draw_lines(axes, lines)
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_ylabel("% of the table")
    save(figure, path)


def new_figure(panels, height):
    """A figure as wide as a phone, with room for labels beside the panels."""
    import matplotlib.figure

    height = height * panels + 0.5
    figure = matplotlib.figure.Figure((5, height), dpi=160)
    axes = figure.subplots(panels, squeeze=False)[:, 0]
    figure.subplots_adjust(
        left=0.15,
        right=0.67,
        bottom=0.45 / height,
        top=1 - 0.25 / height,
        hspace=0.42,
    )
    axes[-1].set_xlabel("times smaller than the float32 table")
    return figure, axes


def draw_lines(axes, lines):
    """Draws lines of values by ratio, each with its name to the right."""
    ratios = sorted({ratio for line in lines.values() for ratio in line})
    for place, (name, line) in enumerate(lines.items()):
        color = "0.5" if name == "table" else COLOURS[place]
        found = sorted(line.items())
        axes.plot(
            [ratio for ratio, _ in found],
            [statistics.fmean(values) for _, values in found],
            "-" if name == "table" else "o-",
            color=color,
            markersize=4,
            label=name,
        )
        for ratio, values in found:
            axes.vlines(ratio, min(values), max(values), color=color)
    axes.set_xscale("log")
    axes.set_xticks(ratios, [str(ratio) for ratio in ratios])
    axes.minorticks_off()
    axes.set_xlim(ratios[0] / 1.15, ratios[-1] * 1.15)
    axes.grid(alpha=0.25)
    write_names(axes)


def write_names(axes):
    """Writes the names of lines beside their ends, none over another."""
    figure = axes.figure
    gap = LABEL_HEIGHT * figure.dpi / 72 / axes.bbox.height
    ends = []
    for line in axes.lines:
        x, y = line.get_xdata()[-1], line.get_ydata()[-1]
        place = axes.transData.transform((x, y))
        height = axes.transAxes.inverted().transform(place)[1]
        ends.append((height, x, y, line.get_label(), line.get_color()))
    ends.sort()
    heights = [height for height, *_ in ends]
    # Up, then down from the top: each keeps its distance from the next.
    for place in range(1, len(heights)):
        heights[place] = max(heights[place], heights[place - 1] + gap)
    above = max(1 + gap, heights[0])
    for place in reversed(range(len(heights))):
        heights[place] = above = min(heights[place], above - gap)
    for height, (_, x, y, name, color) in zip(heights, ends, strict=True):
        axes.annotate(
            name,
            (x, y),
            (1.06, height),
            textcoords="axes fraction",
            color=color,
            fontsize=9,
            va="center",
            annotation_clip=False,
            arrowprops={
                **{"arrowstyle": "-", "lw": 0.5, "color": color},
                **{"shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)},
            },
        )


def save(figure, path):
    with replacing(path, overwrite=True) as beside:
        figure.savefig(beside, format="png")


def best_first(lines):
    """Methods by their mean distance to the best of a size."""
    best = {}
    for line in lines.values():
        for ratio, values in line.items():
            best[ratio] = max(statistics.fmean(values), best.get(ratio, 0))

    def behind(method):
        lost = [
            best[ratio] - statistics.fmean(values)
            for ratio, values in lines[method].items()
        ]
        return 2 * len(lost) <= len(best), statistics.fmean(lost)

    return sorted(lines, key=behind)
