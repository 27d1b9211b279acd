"""Prints the tables of all records, or updates those of pages in `docs/`.

`--write` replaces the text between `<!-- table: NAME -->` and
`<!-- /table -->` in the pages; `--check` fails if that would change them.
"""

import argparse
import math
import pathlib
import re
import statistics
import sys

from benchmarks.common.benchmark import FOLDER
from benchmarks.common.record import Record
from benchmarks.common.tables import figure
from benchmarks.common.tables import figures
from benchmarks.common.tables import markdown
from benchmarks.common.tables import mean
from benchmarks.common.tables import of_columns
from benchmarks.common.tables import of_rows
from benchmarks.comparison.pictures import METRIC
from benchmarks.comparison.pictures import TASKS
from examples.word_tests import PAIRS
from keras_compembed.utils.files import replacing

PAGES = tuple(
    FOLDER.parent / "docs" / f"{name}.md"
    for name in ("benchmarks", "models", "vectors", "which_method")
)
_PART = re.compile(
    r"(<!-- table: (?P<name>\S+) -->\n).*?(<!-- /table -->)", re.S
)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="benchmarks; default: all")
    parser.add_argument("--write", action="store_true", help="update pages")
    parser.add_argument("--check", action="store_true", help="compare pages")
    parser.add_argument("--pages", type=pathlib.Path, nargs="+", default=PAGES)
    args = parser.parse_args(arguments)
    if args.write or args.check:
        update_pages(args.pages, args.check)
        return
    from benchmarks.__main__ import NAMES

    for name in args.names or NAMES:
        if name not in NAMES:
            parser.error(f"There is no such benchmark. Received: {name}")
        rows = read(name.replace(".", "/"))
        print(f"## {name}\n\n{of_rows(rows)}\n")


def update_pages(pages, is_check):
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    names = [
        found["name"]
        for text in texts.values()
        for found in _PART.finditer(text)
    ]
    if sorted(names) != sorted(TABLES):
        raise ValueError(
            "Pages must have one place for each of the tables "
            f"{', '.join(sorted(TABLES))}. Received: {', '.join(sorted(names))}"
        )
    for page, text in texts.items():
        printed = _PART.sub(
            lambda found: f"{found[1]}{TABLES[found['name']]()}\n{found[3]}",
            text,
        )
        if printed == text:
            continue
        if is_check:
            sys.exit(
                f"{page.name} differs from the records. Run: "
                "python -m benchmarks tables --write"
            )
        with replacing(page, overwrite=True) as beside:
            pathlib.Path(beside).write_text(printed, encoding="utf-8")


def read(path, task=None):
    """The rows of a record in `benchmarks/`, or those of one of its tasks."""
    rows = Record(None, FOLDER / f"{path}.json").rows
    if task is None:
        return rows
    return [row for row in rows if row["row"]["task"]["name"] == task]


def pick(rows, name=None, **fields):
    """The row of this name and these fields, or None."""
    found = [
        row
        for row in rows
        if name in (None, row["name"])
        and all(row["row"][key] == value for key, value in fields.items())
    ]
    if len(found) > 1:
        raise ValueError(f"Several rows are {name!r} with {fields}.")
    return found[0] if found else None


def by_size(rows, labels, key, size, unit):
    """A line for each name, a column for each size."""
    sizes = sorted({r["row"][size] for r in rows if mean(r, key) is not None})
    lines = []
    for name, label in labels.items():
        found = [pick(rows, name, **{size: n}) for n in sizes]
        lines.append([label, *(short(mean(row, key)) for row in found)])
    return markdown(["", *(f"{number:,} {unit}" for number in sizes)], lines)


def short(number):
    """A number of three digits, or of two behind the point."""
    digits = 2 - math.floor(math.log10(number))
    return f"{number:,.{min(2, max(0, digits))}f}"


def code_learning():
    rows = read("codes/learning")
    methods = (
        "AdditiveQuantizer, effort 1",
        *("faiss LSQ", "faiss RQ, beam 5", "faiss PQ"),
    )

    def cell(row):
        if row is None:
            return "not run"
        seconds = max(1, round(mean(row, "cpu_seconds")))
        return f"{figure('relative_error', '{:.3f}')(row)} ({seconds} s)"

    lines = []
    for table, codes in (
        ("tokens", "16x32 32x16 32x256"),
        ("reviews", "32x16"),
        ("reviews64", "16x256"),
        ("glove", "32x16"),
    ):
        for shape in codes.split():
            m, k = map(int, shape.split("x"))
            where = {"table": table, "num_codebooks": m, "codebook_size": k}
            cells = [cell(pick(rows, name, **where)) for name in methods]
            lines.append([f"{table}, {shape}", *cells])
    return markdown(["table, codes", "AdditiveQuantizer", *methods[1:]], lines)


WORD_VECTORS = {
    "googlenews": "GoogleNews vectors",
    "reviews": "review vectors",
}
# Names in a cell, without the best.
MOST_NAMED = 1


def winners():
    """A table for each size: the best, and those that do not differ from it."""
    parts = []
    for ratio in (16, 64, 128):
        lines = []
        for task, label in TASKS.items():
            rows = read("comparison/accuracy", task)
            found = {
                row["row"]["method"]: [100 * x for x in figures(row, METRIC)]
                for row in rows
                if row["row"]["ratio"] in (1, ratio)
                and row["row"]["method"] != "search"
            }
            lines.append([label, *best_cells(found)])
        for table, label in WORD_VECTORS.items():
            found = {
                row["row"]["family"]: agreements(row)
                for row in word_vectors(table)
                if row["row"]["part"] in (1, ratio)
            }
            lines.append([label, *best_cells(found)])
        head = ["", "table", "best", "no significant difference"]
        parts.append(f"**{ratio} times smaller**\n\n{markdown(head, lines)}")
    return "\n\n".join(parts)


def best_cells(found):
    """Cells: the table, the best, and those without a significant difference.

    A difference is significant if it is larger than the range of the seeds of
    either. Methods with fewer seeds than others are left out.
    """
    table = statistics.fmean(found.pop("table"))
    most = max(map(len, found.values()))
    means = {
        name: statistics.fmean(values)
        for name, values in found.items()
        if len(values) == most
    }
    spread = {name: max(found[name]) - min(found[name]) for name in means}
    best, *others = sorted(means, key=means.get, reverse=True)
    alike = [
        f"{name} {means[name]:.1f}"
        for name in others
        if means[best] - means[name] <= max(spread[best], spread[name])
    ]
    named, more = alike[:MOST_NAMED], len(alike[MOST_NAMED:])
    named += [f"{more} more"] if more else []
    return [
        f"{table:.1f}",
        f"{best} {means[best]:.1f}",
        ", ".join(named) or "none",
    ]


def word_vectors(table):
    return [
        row for row in read("vectors/quality") if row["row"]["table"] == table
    ]


def agreements(row):
    """Mean over the tests of word pairs, one a seed."""
    return [
        100 * statistics.fmean(tests[name]["score"] for name in PAIRS.values())
        for tests in figures(row, "tests")
    ]


def vector_files():
    rows = {row["name"]: row for row in read("vectors/files")}
    lines = []
    for name, row in rows.items():
        if name.startswith("neighbors"):
            # The file of the first one is the command's.
            file = rows["command"] if name == "neighbors" else row
            method = row["runs"][0]["figures"]["method"]
            size = mean(file, "bytes")
            milliseconds = short(1000 * mean(row, "seconds"))
            ratio = short(mean(row, "ratio"))
            lines.append([size, method, f"{size:,.0f}", milliseconds, ratio])
    head = ["stored as", "file, bytes", "search, ms", "relative to float32"]
    return markdown(head, [line for _, *line in sorted(lines)])


def kinds_of_models():
    # Needs Keras.
    from benchmarks.codes.models import Models

    return of_columns(Models.columns, read("codes/models"))


def training_steps():
    """Steps of layers at several sizes, to that of the table with Adam."""
    sparse = "SparseRowOptimizer(Adam)"
    layers = (
        *("table", "codes, fixed", "codes, fixed, pooled"),
        *("codes that follow", "codes, softmax", "int4, rows learn"),
        "anchors",
    )
    labels = {f"{layer}; {sparse}": layer for layer in layers}
    labels["codes, softmax; Adam"] = "codes, softmax, with `Adam`"
    rows = read("codes/training_step")
    return by_size(rows, labels, "ratio", "input_dim", "rows")


def lookup_files():
    """Tables of 100,000 rows, 128 ids."""
    rows = read("litert/lookups")
    time = figure("lengths.128.latency_ratio", "{:.2f}")
    lines = []
    for name in (
        *("table, float32", "table, int8", "quantized, int4"),
        *("quantized, int4 rank 16", "codes 16x16, int8", "codes 32x16, int8"),
    ):
        alone, pooled = (
            pick(rows, name, input_dim=100_000, pooled=pooled)
            for pooled in (False, True)
        )
        size = figure("file_bytes", "{:.2f} MB", 1e-6)(alone)
        lines.append([name, size, time(alone), time(pooled)])
    return markdown(["file", "size", "128 rows", "mean of 128"], lines)


def whole_models():
    rows = read("litert/whole_models")
    size = figure("file_bytes", "{:.2f} MB", 1e-6)
    time = figure("latency_ratio", "{:.2f}")
    lines = []
    for model in (
        *("mean", "demo cnn", "transformer", "retrieval", "encoder-decoder"),
    ):
        table, *others = (
            pick(rows, name, model=model)
            for name in ("tables, float32", "tables, int8", "codes 32x16, int8")
        )
        cells = [f"{size(row)}, {time(row)}" for row in others]
        lines.append([model, size(table), *cells])
    return markdown(["model", "float32", "int8", "codes, int8"], lines)


PERPLEXITY = "test.perplexity"


def head_to_head():
    """A line for each method, its best setting of each task."""
    lines = []
    for method in (
        *("CANE by default", "in-batch softmax", "NCE", "sampled softmax"),
        "full softmax",
    ):
        line = [method]
        for task in ("ptb", "gutenberg"):
            found = [
                row
                for row in read("classes/head_to_head", task)
                if row["name"].split("; ")[1] == method
            ]
            best = min(
                found, key=lambda row: mean(row, PERPLEXITY), default=None
            )
            line.append("" if best is None else figure(PERPLEXITY)(best))
        lines.append(line)
    return markdown(["", "Penn Treebank", "books"], lines)


TABLES = {
    "comparison.best": winners,
    "codes.learning": code_learning,
    "codes.training_step": training_steps,
    "codes.models": kinds_of_models,
    "litert.lookups": lookup_files,
    "litert.whole_models": whole_models,
    "classes.head_to_head": head_to_head,
    "vectors.files": vector_files,
}
