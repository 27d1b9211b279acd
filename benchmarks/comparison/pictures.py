"""Pictures of records of `comparison.accuracy`."""

import statistics

from benchmarks.common.tables import figures
from keras_compembed.utils.files import replacing

# Methods with a colour, of which the first are best; the others are grey.
COLOURS, MARKERS = 8, "osD^v<>p"
# Points below the best, of which more would hide all others.
ROOM = 15
METRICS = {
    "accuracy": "accuracy on test texts, %",
    "recall": "recall@20 on test visits, %",
}


def draw(rows, folder):
    """Draws the figure of each task against bytes, one file a task."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = dict.fromkeys(row["row"]["task"]["name"] for row in rows)
    for task in tasks:
        of_task = [row for row in rows if row["row"]["task"]["name"] == task]
        if all(row["row"]["ratio"] == 1 for row in of_task):
            continue
        draw_task(of_task, folder / f"comparison_{task}.png")


def draw_task(rows, path):
    """Draws a task: a line for each method, with the range of its seeds."""
    import matplotlib.figure

    metric = next(
        name for name in METRICS for row in rows if figures(row, f"test.{name}")
    )
    points, means_of = {}, {}
    for row in rows:
        values = [100 * value for value in figures(row, f"test.{metric}")]
        if values:
            (size, *_) = figures(row, "bytes")
            points.setdefault(row["row"]["method"], []).append((size, values))
            by_ratio = means_of.setdefault(row["row"]["method"], {})
            by_ratio[row["row"]["ratio"]] = statistics.fmean(values)
    figure = matplotlib.figure.Figure((8, 5), layout="constrained")
    axes = figure.add_subplot()
    table = points.pop("table", None)
    if table is not None:
        ((_, values),) = table
        axes.axhspan(min(values), max(values), color="0.85")
        axes.axhline(statistics.fmean(values), color="0.4", label="table")
    means_of.pop("table", None)
    ranked = best_first(means_of)
    for place, method in reversed(list(enumerate(ranked))):
        found = sorted(points[method])
        means = [statistics.fmean(values) for _, values in found]
        below = [m - min(v) for m, (_, v) in zip(means, found, strict=True)]
        above = [max(v) - m for m, (_, v) in zip(means, found, strict=True)]
        is_grey = place >= COLOURS
        axes.errorbar(
            [size / 1000 for size, _ in found],
            means,
            [below, above],
            color="0.8" if is_grey else f"C{place}",
            marker="." if is_grey else MARKERS[place],
            markersize=5,
            linewidth=0.8,
            capsize=2,
            label="others" if place == COLOURS else None if is_grey else method,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("bytes of the table in a LiteRT file, KB")
    axes.set_ylabel(METRICS[metric])
    best = [max(v) for found in points.values() for _, v in found]
    if best:
        top = max(best + ([max(table[0][1])] if table else []))
        axes.set_ylim(max(top - ROOM, axes.get_ylim()[0]), None)
    axes.set_title(rows[0]["row"]["task"]["name"])
    handles, labels = axes.get_legend_handles_labels()
    # The best first, which are drawn last.
    figure.legend(
        handles[::-1], labels[::-1], loc="outside right upper", fontsize=8
    )
    with replacing(path, overwrite=True) as beside:
        figure.savefig(beside, format="png", dpi=120)


def best_first(means):
    """Methods by their mean distance to the best of a size."""
    best = {}
    for by_ratio in means.values():
        for ratio, value in by_ratio.items():
            best[ratio] = max(value, best.get(ratio, value))

    def behind(method):
        by_ratio = means[method]
        lost = [best[ratio] - value for ratio, value in by_ratio.items()]
        return 2 * len(lost) <= len(best), statistics.fmean(lost)

    return sorted(means, key=behind)
