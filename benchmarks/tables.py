"""Prints the tables of all records, or updates those of pages in `docs/`.

`--write` replaces what stands between `<!-- table: NAME -->` and
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
from benchmarks.common.tables import seeds
from examples.word_tests import PAIRS
from keras_compembed.utils.files import replacing

PAGES = tuple(
    FOLDER.parent / "docs" / f"{name}.md"
    for name in ("results", "models", "vectors", "which_method")
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


def by_size(rows, labels, key, size, unit, **fields):
    """A line for each name, a column for each size."""
    sizes = sorted({r["row"][size] for r in rows if mean(r, key) is not None})
    lines = []
    for name, label in labels.items():
        found = [pick(rows, name, **{size: n}, **fields) for n in sizes]
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
        ("tokens", "8x8 16x32 32x16 64x8 32x256"),
        ("reviews", "8x8 32x16"),
    ):
        for shape in codes.split():
            m, k = map(int, shape.split("x"))
            where = {"table": table, "num_codebooks": m, "codebook_size": k}
            cells = [cell(pick(rows, name, **where)) for name in methods]
            lines.append([table, shape, *cells])
    head = ["table", "codes", "AdditiveQuantizer", *methods[1:]]
    return markdown(head, lines)


COMPARED_TASKS = {
    "clinc150": "accuracy",
    "20newsgroups": "accuracy",
    "docstrings": "accuracy",
    "gowalla": "recall",
}


def winners():
    """For each task and size, the best and what is level with it."""
    lines = []
    for task, metric in COMPARED_TASKS.items():
        rows = read("comparison/accuracy", task)
        whole = figure(f"test.{metric}", "{:.1f}", 100)(
            pick(rows, method="table")
        )
        for ratio in (16, 64, 128):
            found = {
                row["row"]["method"]: [
                    100 * value for value in figures(row, f"test.{metric}")
                ]
                for row in rows
                if row["row"]["ratio"] == ratio
                and row["row"]["method"] != "search"
            }
            lines += level_and_worse([task, ratio, whole], found)
    for table in ("googlenews", "reviews"):
        rows = word_vectors(table)
        whole = statistics.fmean(agreements(pick(rows, family="table")))
        for part in (16, 64, 128):
            found = {
                row["row"]["family"]: agreements(row)
                for row in rows
                if row["row"]["part"] == part
            }
            first = [f"vectors, {table}", part, f"{whole:.1f}"]
            lines += level_and_worse(first, found)
    head = ["", "times smaller", "table", "best", "level", "worse", "seeds"]
    return markdown(head, lines)


def level_and_worse(first, found):
    """A line: the best, those level with it, those that are worse, the seeds.

    Worse is what lies further below the best than the range of the seeds of
    either. What has fewer seeds than others is left out.
    """
    most = max(map(len, found.values()), default=0)
    if not most:
        return []
    if most < 3:
        # Nothing is told: the seed that all have.
        found = {name: values[:1] for name, values in found.items()}
        most = 1
    means = {
        name: statistics.fmean(values)
        for name, values in found.items()
        if len(values) == most
    }
    best, *others = sorted(means, key=means.get, reverse=True)

    def cells(names):
        return ", ".join(f"{name} {means[name]:.1f}" for name in names)

    if most < 3:
        after = f"(not told; next: {cells(others[:4])})" if others else ""
        return [[*first, cells([best]), after, "", str(most)]]
    spread = {name: max(found[name]) - min(found[name]) for name in means}
    level, worse = [], []
    for name in others:
        room = max(spread[best], spread[name])
        is_worse = means[best] - means[name] > room
        (worse if is_worse else level).append(name)
    return [[*first, cells([best]), cells(level), cells(worse), str(most)]]


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


def vector_quality():
    """Agreement with people on word pairs, by method and size."""
    lines = []
    for family in (
        *("table", "codes of 16", "narrow codes of 16", "narrow int2"),
        *("narrow int4", "anchors", "pruned", "first words in int4"),
    ):
        line = [family]
        for table in ("reviews", "googlenews"):
            rows = word_vectors(table)
            for part in (16, 64, 128):
                is_whole = family == "table"
                if is_whole and part > 16:
                    line.append("")
                    continue
                row = pick(rows, family=family, part=1 if is_whole else part)
                found = agreements(row)
                line.append(f"{statistics.fmean(found):.1f}" if found else "")
        lines.append(line)
    head = ["", "reviews, 1/16", "1/64", "1/128"]
    return markdown([*head, "word2vec, 1/16", "1/64", "1/128"], lines)


def vector_files():
    # Needs Keras, as does the next.
    from benchmarks.vectors.files import Files

    return of_columns(Files.columns, read("vectors/files"))


def kinds_of_models():
    from benchmarks.codes.models import Models

    return of_columns(Models.columns, read("codes/models"))


def pooled_steps():
    rows = read("codes/pooled_step")
    lines = []
    for name in dict.fromkeys(row["name"] for row in rows):
        found = (pick(rows, name, words=words) for words in ("uniform", "zipf"))
        lines.append([name, *(f"{mean(row, 'ratio'):.2f}" for row in found)])
    return markdown(["vectors", "uniform", "Zipf's law"], lines)


SPARSE_ADAM = "SparseRowOptimizer(Adam)"


def steps_of_rows():
    """Steps of codes that are learned and of anchors, at several sizes."""
    codes = by_size(
        read("codes/training_step"),
        {n: f"codes learned, `{n}`" for n in ("Adam", SPARSE_ADAM)},
        *("cpu_milliseconds", "input_dim", "rows"),
    )
    pairs = (("dense", "Adam"), ("lazy", SPARSE_ADAM), ("sparse", SPARSE_ADAM))
    anchors = by_size(
        read("anchors/storage"),
        {f"{s}, {n}": f'anchors, `"{s}"`, `{n}`' for s, n in pairs},
        *("cpu_milliseconds", "input_dim", "rows"),
    )
    return "\n".join([codes, *anchors.splitlines()[2:]])


def lookup_files():
    """Tables of 100,000 rows, 128 ids."""
    rows = read("litert/lookups")
    time = figure("lengths.128.latency_ratio", "{:.2f}")
    lines = []
    for name in (
        *("table, float32", "table, int8", "rounded, int4", "rounded, int2"),
        *("rounded, int4 rank 16", "codes 16x16, float32", "codes 16x16, int8"),
        *("codes 32x16, float32", "codes 32x16, int8", "codes 8x256, int8"),
        "codes 32x16 concat, int8",
    ):
        alone, pooled = (
            pick(rows, name, input_dim=100_000, pooled=pooled)
            for pooled in (False, True)
        )
        size = figure("file_bytes", "{:,.0f}")(alone)
        lines.append([name, size, time(alone), time(pooled)])
    return markdown(["file", "bytes", "128 rows", "mean of 128"], lines)


def whole_models():
    rows = read("litert/whole_models")
    size = figure("file_bytes", "{:.2f}", 1e-6)
    time = figure("latency_ratio", "{:.2f}")
    lines = []
    for model in dict.fromkeys(row["row"]["model"] for row in rows):
        whole, rounded, codes, codes_int8 = (
            pick(rows, name, model=model)
            for name in (
                *("tables, float32", "tables, int8"),
                *("codes 32x16, float32", "codes 32x16, int8"),
            )
        )
        lines.append(
            [
                model,
                *(size(row) for row in (whole, rounded, codes_int8)),
                *(time(row) for row in (rounded, codes, codes_int8)),
            ]
        )
    head = ["", "float32, MB", "int8, MB", "codes in int8, MB"]
    return markdown([*head, "int8, time", "codes", "codes in int8"], lines)


CLASS_TASKS = {
    "ptb": figure("test.perplexity"),
    "gutenberg": figure("test.perplexity"),
    "gowalla": figure("test.ndcg", "{:.2f}", 100),
}


def head_to_head():
    """A line for each method, its best setting of each task."""
    rows = {task: read("classes/head_to_head", task) for task in CLASS_TASKS}
    methods = dict.fromkeys(
        row["name"].split("; ")[1] for found in rows.values() for row in found
    )
    lines = []
    for method in methods:
        line = [method]
        for task, cell in CLASS_TASKS.items():
            sign = 1 if task == "gowalla" else -1
            key = "test.ndcg" if task == "gowalla" else "test.perplexity"
            found = [
                row
                for row in rows[task]
                if row["name"].split("; ")[1] == method
            ]
            best = max(
                found, key=lambda row: sign * mean(row, key), default=None
            )
            line.append(
                "" if best is None else f"{cell(best)} ({seeds(best)} seeds)"
            )
        lines.append([part.replace("(1 seeds)", "(1 seed)") for part in line])
    return markdown(["", "Penn Treebank", "books", "Gowalla"], lines)


def class_speed(part, labels, key, **fields):
    rows = read("classes/speed")
    return by_size(
        rows, labels, key, "num_classes", "classes", part=part, **fields
    )


def class_steps():
    return class_speed(
        "training",
        {
            "sampled softmax 1000": "sampled softmax 1000",
            "frequent 250+750": "CANE, 250 frequent classes, 750 noises",
            "tree 10+10": "CANE, tree, 10 candidates, 10 noises",
        },
        "cpu_milliseconds",
        optimizer="SGD",
        jit_compile=True,
    )


def class_predictions():
    return class_speed(
        "prediction",
        {"all scores": "all scores", "beam of 10": "beam of 10"},
        "milliseconds",
        batch_size=1,
        jit_compile=False,
    )


TABLES = {
    "comparison.best": winners,
    "codes.learning": code_learning,
    "codes.pooled_step": pooled_steps,
    "codes.training_step": steps_of_rows,
    "codes.models": kinds_of_models,
    "litert.lookups": lookup_files,
    "litert.whole_models": whole_models,
    "classes.head_to_head": head_to_head,
    "classes.training": class_steps,
    "classes.prediction": class_predictions,
    "vectors.files": vector_files,
    "vectors.quality": vector_quality,
}
