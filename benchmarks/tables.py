"""Prints the tables of pages in `docs/` from the records.

    python -m benchmarks tables
    python -m benchmarks tables --check

Rewrites what stands between `<!-- table: NAME -->` and `<!-- /table -->`. With
`--check`, nothing is written, and a table that differs from its records is an
error.
"""

import argparse
import math
import pathlib
import re
import statistics
import sys

from benchmarks.common.benchmark import FOLDER
from benchmarks.common.record import Record
from benchmarks.common.tables import field
from benchmarks.common.tables import figure
from benchmarks.common.tables import figures
from benchmarks.common.tables import markdown
from benchmarks.common.tables import mean
from benchmarks.common.tables import of_columns
from benchmarks.common.tables import seeds
from benchmarks.data.word_tests import ANALOGIES
from benchmarks.data.word_tests import PAIRS
from keras_compembed.utils.files import replacing

PAGES = tuple(
    FOLDER.parent / "docs" / name
    for name in ("results.md", "models.md", "vectors.md", "which_method.md")
)
_PART = re.compile(
    r"(<!-- table: (?P<name>\S+) -->\n).*?(<!-- /table -->)", re.S
)
ADDITIVE = "AdditiveQuantizer, effort 1"
SPARSE_ADAM = "SparseRowOptimizer(Adam)"
SEARCHED = {
    "gowalla": "places",
    "gutenberg": "words",
    "synthetic_100k": "made up",
}


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--pages", type=pathlib.Path, nargs="+", default=PAGES)
    args = parser.parse_args(arguments)
    texts = {page: page.read_text(encoding="utf-8") for page in args.pages}
    check_places(texts.values())
    for page, text in texts.items():
        printed = rewrite(text)
        if printed == text:
            continue
        if args.check:
            sys.exit(
                f"{page.name} differs from the records. Run: "
                "python -m benchmarks tables"
            )
        with replacing(page, overwrite=True) as beside:
            pathlib.Path(beside).write_text(printed, encoding="utf-8")


def check_places(texts):
    """Raises unless each table has its place in one of the texts."""
    names = [found["name"] for text in texts for found in _PART.finditer(text)]
    if sorted(names) != sorted(TABLES):
        raise ValueError(
            "Pages must have one place for each of the tables "
            f"{', '.join(sorted(TABLES))}. Received: {', '.join(sorted(names))}"
        )


def rewrite(text):
    """The text with tables printed anew."""
    return _PART.sub(
        lambda found: f"{found[1]}{TABLES[found['name']]()}\n{found[3]}", text
    )


def read(path):
    """The rows of a record in `benchmarks/`."""
    return Record(None, FOLDER / path).rows


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


def short(number):
    """A number of three digits, or of two behind the point."""
    digits = 2 - math.floor(math.log10(number))
    return f"{number:,.{min(2, max(0, digits))}f}"


def code_learning():
    rows = read("codes/learning.json")
    methods = {
        "AdditiveQuantizer": ADDITIVE,
        "faiss LSQ": "faiss LSQ",
        "faiss RQ, beam 5": "faiss RQ, beam 5",
        "faiss PQ": "faiss PQ",
    }
    lines = []
    for table, size, codes in (
        ("tokens", "30,522 x 384", "8x8 16x32 32x16 64x8 32x256"),
        ("reviews", "75,102 x 300", "8x8 32x16"),
    ):
        for shape in codes.split():
            m, k = map(int, shape.split("x"))
            cells = []
            for name in methods.values():
                row = pick(
                    rows, name, table=table, num_codebooks=m, codebook_size=k
                )
                cells.append("not run" if row is None else error(row))
            lines.append([f"{table}, {size}", f"{m} x {k}", *cells])
    return markdown(["table", "codes", *methods], lines)


def error(row):
    seconds = mean(row, "cpu_seconds")
    text = figure("relative_error", "{:.3f}")(row)
    return f"{text} ({max(1, round(seconds))} s)"


def code_learners():
    """Other learners on the reviews."""
    rows = read("codes/learning.json")
    names = (
        "AdditiveQuantizer, effort 1",
        "AdditiveQuantizer, effort 2",
        "AdditiveQuantizer, effort 5",
        "KDCodeLearner sum, 10000 steps",
        "KDCodeLearner sum, 10000 steps, refined",
        "KDCodeLearner linear, 10000 steps, refined",
        "KDCodeLearner concat, 10000 steps, refined",
        "GumbelCodeLearner, 200000 steps",
        "GumbelCodeLearner, 200000 steps, refined",
    )
    fields = {"table": "reviews", "num_codebooks": 32, "codebook_size": 16}
    columns = [
        field("name"),
        figure("relative_error", "{:.3f}"),
        figure("cpu_seconds", "{:,.0f}"),
    ]
    return listed(
        ["learner", "error", "s"],
        [(None, pick(rows, name, **fields)) for name in names],
        columns,
    )


def listed(head, rows, columns):
    """A table of `(label, row)` pairs; a label is the first cell."""
    lines = []
    for label, row in rows:
        first = [] if label is None else [label]
        lines.append(first + [cell(row) for cell in columns])
    return markdown(head, lines)


def words_by_codes():
    rows = read("codes/language_model.json")
    lines = [
        ("embedding table", "conventional", None),
        ("end to end, `softmax`, concat", "end to end, softmax+concat", "50x"),
        ("end to end, `nearest`, concat", "end to end, nearest+concat", "50x"),
        ("`KDCodeLearner` concat, concat", "concat+concat", "50x"),
        ("`AdditiveQuantizer` by frequency, sum", "weighted+sum", "16x"),
        ("`AdditiveQuantizer`, sum", "additive+sum", "16x"),
        ("`KDCodeLearner` lstm, lstm", "lstm+lstm", "16x"),
        ("`KDCodeLearner` linear, lstm", "linear+lstm", "16x"),
        ("`KDCodeLearner` lstm, linear", "lstm+linear", "16x"),
        ("`KDCodeLearner` linear, linear", "linear+linear", "16x"),
        ("`RandomCodeLearner`, linear", "random+linear", "16x"),
    ]

    def of(name, codes):
        if codes is None:
            return pick(rows, name)
        number = int(codes.rstrip("x"))
        return pick(
            rows, name, num_codebooks=number, codebook_size=16, swept=False
        )

    def codes(row):
        number = row["row"]["num_codebooks"]
        return f"{number} x {row['row']['codebook_size']}" if number else "-"

    return listed(
        [
            "codes, composition",
            "M x K",
            "perplexity",
            "to the table's",
            "times smaller",
            "paper",
        ],
        [(label, of(name, codes)) for label, name, codes in lines],
        [
            codes,
            figure("test"),
            figure("ratio", "{:.3f}"),
            lambda row: f"{1 / mean(row, 'bytes_ratio'):.1f}",
            figure("paper", "{:.2f}"),
        ],
    )


def task_codes():
    rows = read("codes/task.json")
    accuracy = figure("accuracy", "{:.1f}", 100, " %")
    lines = [["table", "1", accuracy(pick(rows, "table")), "", ""]]
    for codes in ("16x16", "8x16", "4x16"):
        found = [
            pick(rows, name, codes=codes)
            for name in ("fixed", "following", "end to end")
        ]
        lines.append(
            [
                codes.replace("x", " x "),
                f"{mean(found[0], 'times_smaller'):.0f}",
                *map(accuracy, found[:2]),
                f"{accuracy(found[2])}, "
                f"{mean(found[2], 'times_smaller'):.0f} times smaller",
            ]
        )
    head = [
        "codes",
        "times smaller",
        "codes fixed",
        "codes that follow the task",
        "end to end, side by side",
    ]
    return markdown(head, lines)


def rivals(task, metric="accuracy"):
    """A line for each method of `rivals.accuracy`, a column for each size."""
    rows = of_task(task)
    cell = figure(f"test.{metric}", "{:.1f}", 100)
    ratios = (16, 64, 128)
    table = pick(rows, method="table")
    whole = "not run" if table is None else cell(table)
    lines = [["table", whole, *[""] * 6]]
    for method in dict.fromkeys(row["row"]["method"] for row in rows):
        if method == "table":
            continue
        line = [method, ""]
        for ratio in ratios:
            row = pick(rows, method=method, ratio=ratio)
            if row is None:
                line += ["not run", ""]
                continue
            settings = row["runs"][0]["figures"]["method"]
            text = cell(row)
            line += [text, settings] if text else [settings, ""]
        lines.append(line)
    head = ["", "1"]
    for ratio in ratios:
        head += [f"1/{ratio}", "settings"]
    return markdown(head, lines)


def of_task(task):
    """Rows of `rivals.accuracy` of a task."""
    return [
        row
        for row in read("rivals/accuracy.json")
        if row["row"]["task"]["name"] == task
    ]


def winners():
    """For each task and size, the best and what is level with it."""
    lines = []
    for task, metric in RIVAL_TASKS.items():
        rows = of_task(task)
        table = pick(rows, method="table")
        whole = "not run"
        if table is not None:
            whole = figure(f"test.{metric}", "{:.1f}", 100)(table)
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
        rows = [
            row
            for row in read("vectors/quality.json")
            if row["row"]["table"] == table
            and row["row"]["objective"] == "as they are"
        ]
        whole = agreement(pick(rows, family="table"))[0]
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

    Worse is what lies further below the best than the seeds of either range,
    from the lowest to the highest. What has fewer seeds than others is left
    out.

    Args:
        first: List of the first cells.
        found: Dict, figures of seeds by the names of methods.

    Returns:
        List of the line, which is empty where there are no figures.
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


RIVAL_TASKS = {
    "clinc150": "accuracy",
    "20newsgroups": "accuracy",
    "docstrings": "accuracy",
    "gowalla": "recall",
}


def rounded_and_pruned():
    return listed(
        ["", "table", "bytes", "of float32", "error"],
        [(None, row) for row in read("codes/rounding_and_pruning.json")],
        [
            field("name"),
            field("row.table"),
            figure("bytes", "{:,.0f}"),
            figure("share", "{:.1f}", 100, " %"),
            figure("relative_error", "{:.3f}"),
        ],
    )


# MB and accuracy in Table 3 of Shu & Nakayama; those of pruned tables are from
# the published version, of which other figures are not, see the page.
_REVIEWS_IN_PAPER = {
    "table": ("85.94", "87.18 %"),
    "pruned 80%": ("21", "86.25 %"),
    "pruned 90%": ("11", "84.96 %"),
    "pruned 95%": ("5.31", "83.88 %"),
    "8x8": ("0.28", "82.84 %"),
    "8x16": ("0.43", "83.77 %"),
    "16x8": ("0.57", "85.21 %"),
    "8x64": ("1.01", "86.66 %"),
    "16x32": ("1.30", "87.37 %"),
    "32x16": ("1.73", "87.80 %"),
    "64x8": ("2.30", "88.15 %"),
}


def sentiment():
    """Ways to store the vectors of reviews, and what the paper has for them."""
    rows = [
        row
        for row in read("codes/sentiment.json")
        if row["settings"]["learning_rate"] == 0.002
    ]

    def size(row, key, form="{:,.0f}", unit=1):
        return "" if row is None else form.format(mean(row, key) / unit)

    def accuracy(row):
        if row is None:
            return "not run"
        found = figure("accuracy", "{:.2f}", 100, " %")(row)
        return f"{found} ({mean(row, 'relative_error'):.3f})"

    lines = []
    for name in (
        *("table", "int8", "int4", "int2"),
        *(name for name in _REVIEWS_IN_PAPER if name != "table"),
    ):
        row, others = pick(rows, name), ["", ""]
        label = name.replace("%", " %")
        if name[0].isdigit():
            row = pick(rows, f"codes {name}")
            others = [
                accuracy(pick(rows, f"codes {name} by frequency")),
                accuracy(pick(rows, f"Gumbel codes {name}", steps=200_000)),
            ]
            label = f"codes {name.replace('x', ' x ')}"
        megabytes, in_paper = _REVIEWS_IN_PAPER.get(name, ("", ""))
        lines.append(
            [
                label,
                size(row, "counted_bytes", "{:.2f}", 2**20),
                megabytes,
                size(row, "float32_file.bytes"),
                size(row, "int8_file.bytes"),
                accuracy(row),
                *others,
                in_paper,
            ]
        )
    head = [
        "vectors",
        "MB",
        "in the paper",
        "file, bytes",
        "file, int8",
        "accuracy (error)",
        "by frequency",
        "by `GumbelCodeLearner`",
        "in the paper",
    ]
    return markdown(head, lines)


def sparse_coding():
    return listed(
        ["", "error", "CPU s"],
        [(None, row) for row in read("anchors/sparse_coding.json")],
        [
            field("name"),
            figure("relative_error", "{:.4f}"),
            figure("cpu_seconds", "{:.1f}"),
        ],
    )


def kinds_of_models():
    # Needs Keras, as no other table does.
    from benchmarks.codes.models import Models

    return of_columns(Models.columns, read("codes/models.json"))


def clusters():
    rows = read("codes/clusters.json")
    return listed(
        ["", "loss", "NMI", "loss in training", "codes changing"],
        [(None, row) for row in rows],
        [
            field("name"),
            *(
                figure(f"last.{name}", "{:.3f}")
                for name in ("loss", "nmi", "training_loss", "changed")
            ),
        ],
    )


def by_size(rows, wanted, key="cpu_milliseconds", size="input_dim"):
    """A line for each of `(label, name, fields)`, a column for each size."""
    sizes = sorted(
        {row["row"][size] for row in rows if mean(row, key) is not None}
    )
    lines = []
    for label, name, fields in wanted:
        line = [label]
        for number in sizes:
            row = pick(rows, name, **{size: number}, **fields)
            line.append("not run" if row is None else short(mean(row, key)))
        lines.append(line)
    return sizes, lines


def code_steps():
    wanted = [(f"`{name}`", name, {}) for name in ("Adam", SPARSE_ADAM)]
    sizes, lines = by_size(read("codes/training_step.json"), wanted)
    return markdown(["optimizer", *(f"{n:,} rows" for n in sizes)], lines)


def replicas():
    lines = []
    for row in read("distribution/replicas.json"):
        one, two, programs = (
            mean(row, layout) for layout in ("one", "replicas", "programs")
        )
        loop = {"fit": "`fit`", "steps": "own steps"}[row["row"]["loop"]]
        lines.append(
            [
                row["row"]["model"],
                f"{row['settings']['batch_size']:,}",
                loop,
                f"{one:,.0f}",
                f"{two / one:.2f}",
                f"{programs / one:.2f}",
                f"{max(0, 1 - two / programs):.0%}",
            ]
        )
    return markdown(
        [
            *("layer", "batch of a replica", "trained by"),
            *("examples a s, one core", "two replicas", "two programs"),
            "lost between replicas",
        ],
        lines,
    )


def precisions():
    """A line for each layer: loss and accuracy in each precision."""
    rows = read("training/precision.json")
    policies = ("float32", "mixed_float16", "mixed_bfloat16")
    lines = []
    for layer in dict.fromkeys(row["row"]["layer"] for row in rows):
        found = [pick(rows, layer=layer, policy=name) for name in policies]
        if None in found:
            continue
        losses = [
            {run["seed"]: run["figures"]["loss"] for run in row["runs"]}
            for row in found
        ]
        exact, *others = losses
        farthest = max(
            abs(other[seed] / exact[seed] - 1)
            for other in others
            for seed in exact.keys() & other.keys()
        )
        loss = figure("loss", "{:.3f}")
        accuracy = figure("accuracy", "{:.1f}", 100, " %")
        lines.append(
            [
                layer,
                *map(loss, found),
                f"{farthest:.2%}",
                *map(accuracy, found),
            ]
        )
    return markdown(
        [
            *("layer", "loss, float32", "float16", "bfloat16", "farthest"),
            *("accuracy, float32", "float16", "bfloat16"),
        ],
        lines,
    )


def large_tables():
    rows = read("codes/large_tables.json")
    lines = []
    for row in rows:
        of_one = pick(rows, num_rows=row["row"]["num_rows"], jobs=1)
        lines.append(
            [
                f"{row['row']['num_rows']:,}",
                row["row"]["jobs"],
                short(mean(row, "seconds")),
                f"{mean(of_one, 'seconds') / mean(row, 'seconds'):.2f}",
                f"{mean(row, 'rows_per_second'):,.0f}",
                f"{mean(row, 'encoded_per_second'):,.0f}",
                f"{mean(row, 'bytes') / 1e6:,.0f}",
                f"{mean(row, 'table_bytes') / 1e6:,.0f}",
            ]
        )
    return markdown(
        [
            "rows",
            "processes",
            "s to learn",
            "times faster",
            "learned a s",
            "encoded a s",
            "MB of memory",
            "MB of the table",
        ],
        lines,
    )


def pooled_steps():
    rows = read("codes/pooled_step.json")
    lines = []
    for row in rows:
        if row["row"]["words"] == "uniform":
            zipf = pick(rows, row["name"], words="zipf")
            lines.append(
                [
                    row["name"],
                    *(f"{mean(each, 'ratio'):.2f}" for each in (row, zipf)),
                ]
            )
    return markdown(["vectors", "uniform", "by Zipf's law"], lines)


def anchor_classifiers():
    rows = read("anchors/classification.json")
    lines = []
    for data, task, names in (
        (
            "IMDB, mean of 64 wide vectors",
            "imdb",
            {
                "full table": "table",
                "l1 3e-5": "`l1=3e-5`",
                "l1 1e-4": "`l1=1e-4`",
                "target 50,000": "`target_nonzeros=50_000`",
                "l1 3e-4": "`l1=3e-4`",
                "80,000 kept": "80,000 kept",
                "40,000 kept": "40,000 kept",
                "by tf-idf": "anchors by TF-IDF",
                "by tf-idf, WordNet": "anchors by TF-IDF, WordNet",
                "subgradient": "L1 as a regularizer, for contrast",
            },
        ),
        (
            "20 Newsgroups, mean of 256 wide vectors",
            "newsgroups",
            {
                "full table": "table",
                "250,000 kept": "250,000 kept",
                "130,000 kept": "130,000 kept",
            },
        ),
        (
            "20 Newsgroups, CNN of the paper",
            "newsgroups cnn",
            {
                "full table": "table",
                "250,000 kept": "250,000 kept",
                **{
                    f"250,000 kept, by tf-idf{known}": f"250,000 kept, anchors "
                    f"by TF-IDF{known}"
                    for known in (
                        "",
                        ", WordNet",
                        ", WordNet, two steps",
                        ", co-occurrence",
                    )
                },
            },
        ),
    ):
        of_task = [row for row in rows if row["row"]["task"]["name"] == task]
        for name, label in names.items():
            row = pick(of_task, name)
            lines.append(
                [
                    data,
                    label,
                    figure("parameters", "{:,.0f}")(row),
                    short(mean(row, "times_fewer")),
                    figure("test", "{:.1f}", 100, " %")(row),
                ]
            )
            data = ""
    return markdown(
        ["data", "embedding", "numbers", "times fewer", "test"], lines
    )


def recommender():
    rows = read("anchors/recommendation.json")
    labels = {
        "tables": "tables",
        "ANT, 8, fitted": "`from_table`, 8 a row, then trained",
        "ANT, 4, fitted": "`from_table`, 4 a row, then trained",
        "ANT, 4, nearest": "from neighbours, 4 a row",
        "ANT, 2, nearest": "from neighbours, 2 a row",
        "ANT, 4": "from nothing, 4 a row",
        "narrow tables, 8": "tables 8 wide, times a matrix",
        "narrow tables, 4": "tables 4 wide, times a matrix",
    }
    return listed(
        ["users and places", "numbers", "times fewer", "recall@20", "NDCG@20"],
        [(label, pick(rows, name)) for name, label in labels.items()],
        [
            figure("parameters", "{:,.0f}"),
            figure("times_smaller"),
            figure("recall", "{:.3f}"),
            figure("ndcg", "{:.3f}"),
        ],
    )


def tied_anchors():
    rows = read("anchors/language_model.json")
    return listed(
        ["", "perplexity", "numbers"],
        [(None, row) for row in rows],
        [field("name"), figure("test"), figure("parameters", "{:,.0f}")],
    )


def started_from_tables(task, best, form, unit=""):
    """Rows of a task, each with the rate that validation data prefer.

    It is chosen on the first seed, which all rates have.

    Args:
        task: String.
        best: `min` or `max`, which figures are better.
        form: String, format of figures.
        unit: String behind them.
    """

    def first_valid(row):
        first = min(row["runs"], key=lambda run: run["seed"])
        return first["figures"]["valid"]

    rates = {}
    for row in read("anchors/from_table.json"):
        if row["row"]["task"] == task:
            name = row["name"].rsplit(", rate", 1)[0]
            rates.setdefault(name, []).append(row)
    lines = [
        (name, best(rows, key=first_valid)) for name, rows in rates.items()
    ]
    return listed(
        ["", "numbers", "times fewer", "test", "seeds"],
        lines,
        [
            figure("numbers", "{:,.0f}"),
            figure("times_fewer"),
            figure("test", form, 1, unit),
            seeds,
        ],
    )


def anchor_steps():
    wanted = [
        (f'`"{storage}"`, `{name}`', f"{storage}, {name}", {})
        for storage, name in (
            ("dense", "Adam"),
            ("lazy", "Adam"),
            ("lazy", SPARSE_ADAM),
            ("sparse", SPARSE_ADAM),
        )
    ]
    sizes, lines = by_size(read("anchors/storage.json"), wanted)
    head = ["`storage`, optimizer", *(f"{n:,} rows" for n in sizes)]
    return markdown(head, lines)


def anchor_memory():
    rows = read("anchors/storage.json")
    return listed(
        ["`storage`, optimizer", "rows", "anchors", "GB at most"],
        [(None, row) for row in rows if row["row"]["memory"]],
        [
            lambda row: f'`"{row["row"]["storage"]}"`, `{SPARSE_ADAM}`',
            field("row.input_dim", "{:,}"),
            field("row.num_anchors", "{:,}"),
            figure("peak_bytes", "{:.2f}", 1e-9),
        ],
    )


def class_memory():
    return listed(
        [
            "",
            "optimizer",
            "classes",
            "variables, MB",
            "training, MB more",
            "evaluation, MB more",
        ],
        [(None, row) for row in read("classes/memory.json")],
        [
            field("row.method"),
            lambda row: f"`{row['row']['optimizer']}`",
            field("row.num_classes", "{:,}"),
            *(
                figure(name, "{:,.0f}", 1e-6)
                for name in (
                    "variable_bytes",
                    "training_bytes",
                    "evaluation_bytes",
                )
            ),
        ],
    )


def class_searches():
    """Of each task, LiteRT files and what they are compared with."""
    return listed(
        [
            "task",
            "classes",
            "width",
            "best",
            "fitted for recall",
            "recall",
            "scored",
            "ms",
            "times as fast",
        ],
        [(None, row) for row in read("classes/search.json")],
        [
            lambda row: SEARCHED[row["row"]["task"]["name"]],
            figure("num_classes", "{:,.0f}"),
            figure("width", "{:.0f}"),
            field("row.k"),
            field("row.recall"),
            figure("recall", "{:.1f}", scale=100, unit=" %"),
            figure("share", "{:.1f}", scale=100, unit=" %"),
            figure("milliseconds", "{:.3f}"),
            figure("times_faster", "{:.1f}"),
        ],
    )


def anchor_files():
    rows = read("litert/anchors.json")
    return listed(
        ["file", "bytes", "time of a look-up, to the table's"],
        [(None, row) for row in rows],
        [
            field("name"),
            figure("file_bytes", "{:,.0f}"),
            figure("latency_ratio", "{:.2f}"),
        ],
    )


def scored_ids():
    rows = read("litert/scoring.json")
    return listed(
        ["ids", "file, bytes", "ms", "to the table", "MB at most"],
        [(None, row) for row in rows],
        [
            field("name"),
            figure("file_bytes", "{:,.0f}"),
            figure("milliseconds", "{:.1f}"),
            figure("ratio", "{:.2f}"),
            figure("peak_megabytes", "{:.0f}"),
        ],
    )


def lookup_files():
    """Tables of 100,000 rows, at all lengths."""
    rows = [
        row
        for row in read("litert/lookups.json")
        if row["row"]["input_dim"] == 100_000
    ]
    lengths = (1, 16, 128, 512)
    lines = []
    for row in rows:
        if row["row"]["pooled"]:
            continue
        pooled = pick(rows, row["name"], pooled=True)
        lines.append(
            [
                row["name"],
                figure("file_bytes", "{:,.0f}")(row),
                *(lookup_time(row, length) for length in lengths),
                *(lookup_time(pooled, length) for length in lengths[1:]),
                figure("lengths.512.peak_bytes", "{:,.1f}", 1e-6)(row),
            ]
        )
    head = [
        "file",
        "bytes",
        *(f"rows, {length}" for length in lengths),
        *(f"mean of {length}" for length in lengths[1:]),
        "MB at most, 512 rows",
    ]
    return markdown(head, lines)


def lookup_time(row, length):
    if row is None:
        return "not run"
    return figure(f"lengths.{length}.latency_ratio", "{:.2f}")(row)


def lookup_sizes():
    """Tables of other sizes, at one length."""
    rows = read("litert/lookups.json")
    sizes = sorted({row["row"]["input_dim"] for row in rows})
    lines = []
    for first in rows:
        found = {
            (size, pooled): pick(
                rows, first["name"], input_dim=size, pooled=pooled
            )
            for size in sizes
            for pooled in (False, True)
        }
        if first is not found[sizes[0], False] or None in found.values():
            continue
        line = [first["name"]]
        for size in sizes:
            megabytes = mean(found[size, False], "file_bytes") / 1e6
            line.append(f"{megabytes:,.2f}")
            line += [
                lookup_time(found[size, pooled], 128)
                for pooled in (False, True)
            ]
        lines.append(line)
    head = ["file"]
    for size in sizes:
        head += [f"{size:,} rows, MB", "rows", "mean"]
    return markdown(head, lines)


def whole_models():
    # Needs Keras, as its kinds of models do.
    from benchmarks.litert.whole_models import KINDS

    rows = read("litert/whole_models.json")
    lines = []
    for row in rows:
        if row["row"]["static"]:
            continue
        static = pick(rows, f"{row['name']}, static", model=row["row"]["model"])
        kind = KINDS[row["row"]["model"]]
        lines.append(
            [
                kind.title,
                row["name"],
                figure("file_bytes", "{:,.0f}")(row),
                figure("milliseconds", "{:.3f}")(row),
                figure("latency_ratio", "{:.2f}")(row),
                figure("latency_ratio", "{:.2f}")(static) if static else "",
                figure("peak_bytes", "{:,.1f}", 1e-6)(row),
            ]
        )
    head = [
        "model",
        "file",
        "bytes",
        "ms",
        "to float32 tables",
        "the same, sizes known",
        "MB at most",
    ]
    return markdown(head, lines)


def decoded_sentences():
    rows = read("litert/whole_models.json")
    return listed(
        ["file", "sentences as Keras's", "words as Keras's"],
        [(None, row) for row in rows if mean(row, "equal_words") is not None],
        [
            field("name"),
            figure("equal_sentences", "{:.1f}", 100, " %"),
            figure("equal_words", "{:.1f}", 100, " %"),
        ],
    )


def class_accuracy(task):
    rows = read(f"classes/accuracy_{task}.json")
    labels = {
        "full softmax": "full softmax",
        "sampled softmax 10": "sampled softmax, 10",
        "NCE 10": "NCE, 10",
        "BlackOut 10": "BlackOut, 10",
        "hierarchical softmax": "hierarchical softmax",
        "adaptive softmax": "adaptive softmax",
        "CANE 1+9": "CANE, 1 candidate and 9 noises",
        "CANE 5+5": "CANE, 5 and 5",
        "CANE 9+1": "CANE, 9 and 1",
        "CANE 5+5, frontier 1,024": "CANE, 5 and 5, default `max_frontier`",
        "CANE 10+100, shared noises": "CANE, 10 and 100 shared",
    }
    if task == "job_titles":
        labels |= {
            "CANE 5+5, random tree": "CANE, 5 and 5, a random tree",
            "CANE 5+5, refreshed tree": "CANE, 5 and 5, a tree that began at "
            "random, built anew each half epoch",
        }
    return listed(
        ["", "accuracy", "top 5", "coverage"],
        [(label, pick(rows, name)) for name, label in labels.items()],
        [
            figure("test.accuracy", "{:.1f}", 100, " %"),
            figure("test.top_5_accuracy", "{:.1f}", 100, " %"),
            figure("test.coverage", "{:.0f}", 100, " %"),
        ],
    )


def tree_classifiers():
    return listed(
        ["", "accuracy", "training, s", "ms an example", "seeds"],
        [(row["name"], row) for row in read("classes/tree_classifiers.json")],
        [
            figure("accuracy", "{:.1f}", 100, " %"),
            figure("train_seconds", "{:.0f}"),
            figure("predict_ms", "{:.3f}"),
            seeds,
        ],
    )


def equal_time(task):
    """A line for each method, a column for each number of samples.

    Methods with the best validation come first. What is chosen by it is in
    bold, where there are several numbers.
    """
    metric, form, scale, unit, sign = EQUAL_TIME_TASKS[task]
    rows = [
        row
        for row in read("classes/equal_time.json")
        if row["row"]["task"]["name"] == task
    ]
    cell = figure(f"test.{metric}", form, scale, unit)
    numbers = sorted({row["row"]["samples"] for row in rows} - {0})
    methods = {}
    for row in rows:
        name = row["name"].split("; ")[1]
        methods.setdefault(name, {})[row["row"]["samples"]] = row

    def score(row):
        # The seed that all have.
        return sign * row["runs"][0]["figures"]["valid"][metric]

    best = {
        name: max(found.values(), key=score) for name, found in methods.items()
    }
    lines = []
    for name in sorted(methods, key=lambda name: score(best[name]))[::-1]:
        found, chosen = methods[name], best[name]
        line = [name, cell(chosen) if 0 in found else ""]
        for number in numbers:
            row = found.get(number)
            text = "" if row is None else cell(row)
            if row is chosen and len(found) > 1:
                text = f"**{text}**"
            line.append(text)
        lines.append(
            [
                *line,
                figure("rate", "{:g}")(chosen),
                figure("steps", "{:,.0f}")(chosen),
                seeds(chosen),
            ]
        )
    head = ["", "all classes", *(f"{number:,}" for number in numbers)]
    return markdown([*head, "rate", "steps", "seeds"], lines)


def head_to_head(task):
    """A line for each method, the best in the mean of its seeds first."""
    metric, form, scale, unit, sign = EQUAL_TIME_TASKS[task]
    rows = [
        row
        for row in read("classes/head_to_head.json")
        if row["row"]["task"]["name"] == task
    ]
    rows.sort(key=lambda row: -sign * mean(row, f"test.{metric}"))
    return listed(
        [
            "",
            "classes a step",
            "test",
            "rate",
            "time of a step",
            "steps",
            "seeds",
        ],
        [(row["name"].split("; ")[1], row) for row in rows],
        [
            classes_of_step,
            figure(f"test.{metric}", form, scale, unit),
            figure("rate", "{:g}"),
            figure("relative_time", "{:.2f}"),
            figure("steps", "{:,.0f}"),
            seeds,
        ],
    )


def classes_of_step(row):
    """How many classes a row of `equal_time` scores in a step."""
    method = row["row"]["method"]
    if method["loss"] == "full":
        return "all"
    if method["selector"] == "auto" and method["groups"] is None:
        return "as it chooses"
    samples = row["row"]["samples"]
    return f"{samples:,}" if samples else "all labels"


# The metric of test data, and how it is written; the sign of what is better.
EQUAL_TIME_TASKS = {
    "ptb": ("perplexity", "{:.1f}", 1, "", -1),
    "gowalla": ("ndcg", "{:.2f}", 100, "", 1),
    "job_titles": ("accuracy", "{:.1f}", 100, " %", 1),
    "gutenberg": ("perplexity", "{:.1f}", 1, "", -1),
    "wordnet": ("mrr", "{:.3f}", 1, "", 1),
    "synthetic_10k": ("accuracy", "{:.1f}", 100, " %", 1),
}


def words_in_time():
    rows = read("classes/language_model_ptb.json")
    converged = pick(rows, "full softmax, converged")
    labels = {
        "full softmax, converged": f"full softmax, 6 epochs in "
        f"{mean(converged, 'seconds'):.0f} s",
        "bigrams": "CANE, 10 words that followed the last one (`NGram`), 30 "
        "noises in blocks of 20",
        "frequent, noises of an example": "CANE, 10 frequent words, 30 noises "
        "of each example",
        "frequent": "CANE, 10 frequent words, 30 noises in blocks of 20",
        "sampled softmax": "sampled softmax",
        "BlackOut": "BlackOut",
        "full softmax": "full softmax, 180 s",
        "NCE": "NCE",
        "paper: subsets": "CANE as in the paper: 6 subsets, 40 candidates, 1 "
        "uniform noise",
    }
    best = mean(converged, "test")
    return listed(
        ["", "test", "to the full softmax", "steps"],
        [(label, pick(rows, name)) for name, label in labels.items()],
        [
            figure("test"),
            lambda row: f"{mean(row, 'test') / best:.3f}",
            figure("steps", "{:,.0f}"),
        ],
    )


def books():
    rows = read("classes/language_model_gutenberg.json")
    labels = {
        "beam": "CANE, `BeamTree` over a tree of words by their neighbours",
        "sampled softmax": "sampled softmax",
    }
    return listed(
        ["", "test", "steps", "best word found as trained", "calibrated beam"],
        [(label, pick(rows, name)) for name, label in labels.items()],
        [
            figure("test"),
            figure("steps", "{:,.0f}"),
            figure("recall_as_trained", "{:.1f}", 100, " %"),
            lambda row: (
                f"{mean(row, 'beam_width'):.0f}: {mean(row, 'recall'):.1%}"
                if mean(row, "recall")
                else ""
            ),
        ],
    )


def class_steps():
    narrow = "`BeamTree(tree, beam_width=3)`, `share_noises=20`"
    wanted = [
        (
            label,
            name,
            {"part": "training", "optimizer": "SGD", "jit_compile": compiled},
        )
        for label, name, compiled in (
            ("full softmax", "full softmax", False),
            ("the same, compiled by XLA", "full softmax", True),
            ("`Dense` and cross-entropy of Keras", "Dense of Keras", False),
            ("sampled softmax, 1,000 classes", "sampled softmax 1000", False),
            ("the same, compiled by XLA", "sampled softmax 1000", True),
            ("sampled softmax, 40 classes", "sampled softmax 40", False),
            (
                "CANE, `FrequentClasses`, 250, and 750 noises",
                "frequent 250+750",
                False,
            ),
            ("the same, compiled by XLA", "frequent 250+750", True),
            (
                "`NearestCenters(32)`, 50, and 500 noises",
                "near 50+500",
                False,
            ),
            ("the same, compiled by XLA", "near 50+500", True),
            (
                "`Union` of 250 frequent and 50 near, and 750 noises",
                "frequent 250, near 50, +750",
                False,
            ),
            ("the same, compiled by XLA", "frequent 250, near 50, +750", True),
            (
                "CANE, tree, 10 candidates and 10 noises",
                "tree 10+10",
                False,
            ),
            ("the same, compiled by XLA", "tree 10+10", True),
            (narrow, "tree 10+10, beam 3, blocks of 20", False),
            (
                "the same, compiled by XLA",
                "tree 10+10, beam 3, blocks of 20",
                True,
            ),
            (
                "`FrequentClasses`, 10 and 30, `share_noises=20`",
                "frequent 10+30, blocks of 20",
                False,
            ),
        )
    ]
    return by_classes("training", wanted, "cpu_milliseconds")


def few_class_steps():
    fields = {"part": "training", "jit_compile": False}
    wanted = [
        (label, name, fields)
        for label, name in (
            ("full softmax", "full softmax"),
            ("`Dense` and cross-entropy of Keras", "Dense of Keras"),
            ("sampled softmax, 1,000 classes", "sampled softmax 1000"),
            ("CANE, 250 frequent classes, 750 noises", "frequent 250+750"),
        )
    ]
    few = [row for row in read("classes/speed.json") if is_few(row)]
    return by_classes("training", wanted, "cpu_milliseconds", few)


def is_few(row):
    """Whether a row of `classes.speed` is of few classes."""
    return row["row"]["num_classes"] < 10_000


def class_predictions():
    wanted = []
    for batch_size, many in ((256, "256 examples"), (1, "one example")):
        for name, compiled in (
            ("all scores", False),
            ("beam of 10", False),
            ("beam of 5", True),
        ):
            ending = ", compiled by XLA" if compiled else ""
            fields = {
                "part": "prediction",
                "batch_size": batch_size,
                "jit_compile": compiled,
            }
            wanted.append((f"Keras, {many}, {name}{ending}", name, fields))
    for quantize, kind in ((None, "float32"), ("int8", "int8")):
        for name in ("all scores", "beam of 10", "beam of 5"):
            fields = {"part": "litert", "quantize": quantize}
            label = f"LiteRT {kind}, one example, {name}"
            wanted.append((label, name, fields))
    return by_classes("the best 5", wanted, "milliseconds")


def by_classes(head, wanted, key, rows=None):
    if rows is None:
        rows = read("classes/speed.json")
        rows = [row for row in rows if not is_few(row)]
    sizes, lines = by_size(rows, wanted, key, "num_classes")
    return markdown([head, *(f"{n:,} classes" for n in sizes)], lines)


def vocabularies():
    # Needs Keras.
    from benchmarks.text.vocabulary import Vocabulary

    return of_columns(Vocabulary.columns, read("text/vocabulary.json"))


def text_times():
    # Needs Keras.
    from benchmarks.text.runtimes import Runtimes

    return of_columns(Runtimes.columns, read("text/runtimes.json"))


def vector_quality(table):
    """Methods at each size, those that agree best with people first."""
    rows = read("vectors/quality.json")
    wanted = [
        row
        for row in rows
        if row["row"]["table"] == table
        and row["row"]["objective"] == "as they are"
        and figures(row, "tests")
    ]
    wanted.sort(key=lambda row: (row["row"]["part"], -agreement(row)[0]))
    return quality_lines(
        wanted,
        {
            "times smaller": field("row.part"),
            "method": field("row.family"),
            "settings": method_of,
        },
    )


def vector_objectives():
    """What to fit, at 1/64."""
    rows = read("vectors/quality.json")
    studied = {
        (row["row"]["table"], row["row"]["family"])
        for row in rows
        if row["row"]["objective"] != "as they are"
    }
    wanted = [
        row
        for row in rows
        if (row["row"]["table"], row["row"]["family"]) in studied
        and row["row"]["part"] == (1 if row["row"]["family"] == "table" else 64)
    ]
    wanted.sort(
        key=lambda row: (
            row["row"]["table"],
            row["row"]["part"],
            row["row"]["family"],
        )
    )
    return quality_lines(
        wanted,
        {
            "vectors": field("row.table"),
            "method": field("row.family"),
            "fitted": field("row.objective"),
        },
    )


def quality_lines(rows, columns):
    """A table of `columns` and of what vectors reach.

    Heads say how many pairs and questions are known, where that is the same
    in all rows.
    """
    tests = {**PAIRS, "analogies": ANALOGIES}

    def head(name, key):
        numbers = {figures(row, f"tests.{key}.num_used")[0] for row in rows}
        return name if len(numbers) > 1 else f"{name} ({numbers.pop():,})"

    return of_columns(
        columns
        | {
            "error": figure("relative_error", "{:.3f}"),
            "neighbours": figure("neighbor_overlap", "{:.0f}", 100, " %"),
        }
        | {
            head(name, key): figure(f"tests.{key}.score", "{:.1f}", 100)
            for name, key in tests.items()
        }
        | {
            "mean of pairs": lambda row: spread(agreement(row)),
            "seeds": seeds,
        },
        rows,
    )


def agreement(row):
    """Mean over the tests of pairs, and its deviation over seeds or None."""
    means = agreements(row)
    deviation = statistics.stdev(means) if len(set(means)) > 1 else None
    return statistics.fmean(means), deviation


def agreements(row):
    """Mean over the tests of pairs, one a seed."""
    return [
        100 * statistics.fmean(tests[name]["score"] for name in PAIRS.values())
        for tests in figures(row, "tests")
    ]


def spread(found):
    average, deviation = found
    if deviation is None:
        return f"{average:.1f}"
    return f"{average:.1f} ± {deviation:.1f}"


def method_of(row):
    return figures(row, "method")[0]


def vector_files():
    rows = read("vectors/files.json")
    found = {row["name"]: row["runs"][0]["figures"] for row in rows}
    command, opened, near = (
        found[name] for name in ("command", "open", "neighbors")
    )
    imports = opened["import_seconds"]
    lines = [
        (
            f"{command['text_bytes']:,} bytes of text to "
            f"{command['bytes']:,}, {command['method']}",
            f"{command['seconds']:.0f} s",
            "",
            "",
        ),
        (
            "open the compressed file, the text by gensim",
            f"{1000 * opened['seconds']:.0f} ms",
            f"{opened['gensim_seconds']:.1f} s",
            f"1/{1 / opened['ratio']:.0f}",
        ),
        (
            "imports before: `keras_compembed`, `gensim.models`",
            f"{imports['keras_compembed']:.1f} s",
            f"{imports['gensim.models']:.1f} s",
            "",
        ),
        (
            "ten nearest words, by the float32 product",
            f"{1000 * near['seconds']:.2f} ms",
            f"{1000 * near['product_seconds']:.2f} ms",
            f"{near['ratio']:.2f}",
        ),
        (
            "the first of them, with lengths of all vectors",
            f"{1000 * near['first_seconds']:.0f} ms",
            "",
            "",
        ),
    ]
    lines += [
        (
            f"ten nearest words in {figures['method']}, "
            f"{figures['bytes']:,} bytes",
            f"{1000 * figures['seconds']:.2f} ms",
            f"{1000 * figures['product_seconds']:.2f} ms",
            f"{figures['ratio']:.2f}",
        )
        for name, figures in found.items()
        if name.startswith("neighbors in")
    ]
    lines += [
        (
            f"a word of 1,000 in one call, {figures['method']}, beside single "
            "calls",
            f"{1000 * figures['seconds']:.2f} ms",
            f"{1000 * figures['single_seconds']:.2f} ms",
            f"{figures['ratio']:.2f}",
        )
        for name, figures in found.items()
        if name.startswith("neighbors of many")
    ]
    return markdown(["what", "compressed", "beside it", "ratio"], lines)


TABLES = {
    "codes.learning": code_learning,
    "codes.learners": code_learners,
    "codes.language_model": words_by_codes,
    "codes.task": task_codes,
    "rivals.clinc150": lambda: rivals("clinc150"),
    "rivals.20newsgroups": lambda: rivals("20newsgroups"),
    "rivals.docstrings": lambda: rivals("docstrings"),
    "rivals.gowalla": lambda: rivals("gowalla", "recall"),
    "rivals.best": winners,
    "codes.rounding_and_pruning": rounded_and_pruned,
    "codes.sentiment": sentiment,
    "codes.clusters": clusters,
    "codes.training_step": code_steps,
    "codes.pooled_step": pooled_steps,
    "codes.large_tables": large_tables,
    "distribution.replicas": replicas,
    "training.precision": precisions,
    "codes.models": kinds_of_models,
    "anchors.classification": anchor_classifiers,
    "anchors.recommendation": recommender,
    "anchors.language_model": tied_anchors,
    "anchors.from_table.ptb": lambda: started_from_tables("ptb", min, "{:.1f}"),
    "anchors.from_table.newsgroups": lambda: started_from_tables(
        "newsgroups cnn", max, "{:.1f}", " %"
    ),
    "anchors.storage": anchor_steps,
    "anchors.memory": anchor_memory,
    "anchors.sparse_coding": sparse_coding,
    "litert.anchors": anchor_files,
    "litert.lookups": lookup_files,
    "litert.sizes": lookup_sizes,
    "litert.whole_models": whole_models,
    "litert.sentences": decoded_sentences,
    "litert.scoring": scored_ids,
    "classes.job_titles": lambda: class_accuracy("job_titles"),
    "classes.clinc150": lambda: class_accuracy("clinc150"),
    "classes.tree_classifiers": tree_classifiers,
    "classes.equal_time.ptb": lambda: equal_time("ptb"),
    "classes.equal_time.gutenberg": lambda: equal_time("gutenberg"),
    "classes.equal_time.gowalla": lambda: equal_time("gowalla"),
    "classes.equal_time.job_titles": lambda: equal_time("job_titles"),
    "classes.equal_time.wordnet": lambda: equal_time("wordnet"),
    "classes.head_to_head.ptb": lambda: head_to_head("ptb"),
    "classes.head_to_head.gutenberg": lambda: head_to_head("gutenberg"),
    "classes.head_to_head.gowalla": lambda: head_to_head("gowalla"),
    "classes.words": words_in_time,
    "classes.books": books,
    "classes.training": class_steps,
    "classes.few": few_class_steps,
    "classes.memory": class_memory,
    "classes.search": class_searches,
    "classes.prediction": class_predictions,
    "text.vocabulary": vocabularies,
    "text.runtimes": text_times,
    "vectors.files": vector_files,
    "vectors.quality": lambda: vector_quality("reviews"),
    "vectors.googlenews": lambda: vector_quality("googlenews"),
    "vectors.objectives": vector_objectives,
}
