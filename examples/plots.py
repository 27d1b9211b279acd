"""Plots of accuracy against size, and of codes."""

from keras_compembed.reports.code_statistics import code_balance
from keras_compembed.reports.plots import BASELINE
from keras_compembed.reports.plots import CODES
from keras_compembed.reports.plots import new_figure
from keras_compembed.reports.plots import save
from keras_compembed.reports.plots import write_labels
from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.files import format_bytes
from keras_compembed.utils.validation import require

_TICKS_UP_TO = 16


def plot_code_balance(codes, path, codebook_size, title=None, overwrite=False):
    """Plots the share of each subcode (Figure 3 of Shu & Nakayama)."""
    balance = code_balance(codes, codebook_size)
    num_codebooks, codebook_size = balance.shape
    size = (
        3.2 + min(8, 0.25 * num_codebooks),
        1.6 + min(7, max(1.6, 0.25 * codebook_size)),
    )
    figure, axes = new_figure(path, overwrite, size)
    image = axes.imshow(
        100 * balance.T,
        cmap="viridis",
        vmin=0,
        aspect="auto",
        interpolation="none",
    )
    figure.colorbar(image, label="rows with this subcode (%)")
    axes.set(xlabel="codebook", ylabel="subcode")
    lengths = {axes.xaxis: num_codebooks, axes.yaxis: codebook_size}
    for axis, count in lengths.items():
        if count <= _TICKS_UP_TO:
            axis.set_ticks(range(count))
    axes.set_title(title or f"Code balance, {num_codebooks} x {codebook_size}")
    save(figure, path, overwrite)


def plot_accuracy_against_size(rows, path, overwrite=False):
    """Plots accuracy against the bytes of the embedding.

    A filled dot is the accuracy of the LiteRT file, a ring that of the Keras
    model, and a line the range of several runs. Names that begin with
    "baseline" are grey.

    Args:
        rows: List of dicts with `name`, `embedding_bytes` and at least one of
            `keras_accuracy` and `litert_accuracy` (shares from 0 to 1). The
            optional `accuracy_range` is a pair of the lowest and the highest.
            Other keys are ignored.
        path: String or path-like, the picture to write.
        overwrite: Boolean. Whether `path` may exist. Defaults to `False`.
    """
    require(rows, "`rows` must not be empty.", rows=rows)
    figure, axes = new_figure(path, overwrite, (5.4, 4.4))
    ticker = import_extra("matplotlib.ticker", "plots")
    axes.set_xscale("log")
    points, marks, ranges = [], [], []
    for row in rows:
        keras_accuracy = row.get("keras_accuracy")
        litert_accuracy = row.get("litert_accuracy")
        require(
            (keras_accuracy, litert_accuracy) != (None, None),
            "`rows` must have `keras_accuracy` or `litert_accuracy`.",
            row=row,
        )
        color = BASELINE if row["name"].startswith("baseline") else CODES
        size = row["embedding_bytes"] / 10**6
        if keras_accuracy is not None:
            marks.append((size, 100 * keras_accuracy))
            axes.plot(*marks[-1], "o", ms=11, mfc="none", mec=color)
        if litert_accuracy is not None:
            marks.append((size, 100 * litert_accuracy))
            axes.plot(*marks[-1], "o", ms=6, color=color)
        text = f"{row['name']}\n{format_bytes(row['embedding_bytes'])}"
        points.append((*marks[-1], text, color))
        if row.get("accuracy_range") is not None:
            ends = [100 * accuracy for accuracy in row["accuracy_range"]]
            axes.vlines(size, *ends, color=color, lw=1)
            ranges.append([(size, end) for end in ends])
    if any(row.get("litert_accuracy") is not None for row in rows):
        axes.plot([], [], "o", ms=6, color="black", label="LiteRT")
        axes.plot([], [], "o", ms=11, mfc="none", mec="black", label="Keras")
        figure.legend(loc="outside upper right", ncols=2, frameon=False)
    axes.set_xlabel("size of the embedding (MB, log scale)")
    axes.set_ylabel("test accuracy (%)")
    axes.grid(alpha=0.25)
    # Leave room for labels around the marks.
    ends = marks + [end for ends in ranges for end in ends]
    sizes, accuracies = zip(*ends, strict=True)
    factor = max(30, max(sizes) / min(sizes)) ** 0.2
    axes.set_xlim(min(sizes) / factor, max(sizes) * factor)
    room = 0.35 * max(3, max(accuracies) - min(accuracies))
    axes.set_ylim(min(accuracies) - room, max(accuracies) + room)
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    write_labels(figure, axes, points, [[mark] for mark in marks] + ranges)
    save(figure, path, overwrite)
