"""Runs a benchmark, or lists them, or prints tables of results.

python -m benchmarks
python -m benchmarks codes.learning --quick
python -m benchmarks tables --check
"""

import ast
import importlib
import pathlib
import sys

NAMES = (
    "comparison.accuracy",
    "codes.learning",
    "codes.language_model",
    "codes.clusters",
    "codes.sentiment",
    "codes.tied",
    "codes.translation",
    "codes.training_step",
    "codes.models",
    "anchors.books",
    "anchors.classification",
    "anchors.from_table",
    "anchors.language_model",
    "classes.head_to_head",
    "classes.speed",
    "classes.tree_classifiers",
    "litert.lookups",
    "litert.whole_models",
    "vectors.files",
    "vectors.quality",
)
TABLES = "tables"


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print(listing())
        return None
    name, *rest = arguments
    if name == TABLES:
        from benchmarks import tables

        return tables.main(rest)
    if name not in NAMES:
        sys.exit(f"{listing()}\n\nThere is no such name. Received: {name}")
    # Some set numbers of threads, and so must come before NumPy.
    module = importlib.import_module(f"benchmarks.{name}")
    return module.main(rest)


def listing():
    """Names, each with the first line of its module."""
    folder = pathlib.Path(__file__).parent
    lines = []
    for name in (*NAMES, TABLES):
        path = folder / (name.replace(".", "/") + ".py")
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        lines.append(f"{name:28}{text.splitlines()[0]}")
    usage = "python -m benchmarks NAME [--quick] [--help]"
    return "\n".join([usage, "", *lines])


if __name__ == "__main__":
    main()
