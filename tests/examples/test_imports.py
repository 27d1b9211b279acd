"""What examples import."""

import ast
import json
import pathlib

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def sources():
    """Yields paths and Python text, of notebooks too."""
    for path in EXAMPLES.rglob("*.py"):
        yield path, path.read_text("utf-8")
    for path in EXAMPLES.rglob("*.ipynb"):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                yield path, "".join(cell["source"])


def imported(node):
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return []


def test_examples_can_be_copied_without_benchmarks():
    seen = set()
    for path, text in sources():
        seen.add(path.suffix)
        for node in ast.walk(ast.parse(text)):
            for name in imported(node):
                assert name.split(".")[0] != "benchmarks", f"{path}: {name}"
    assert seen == {".py", ".ipynb"}
