"""Changes one thing in the package and runs the nearest tests.

    python tools/mutate.py keras_compembed/classes --count 10 --seed 0
    python tools/mutate.py keras_compembed/codes/packing.py --tests tests/codes

Each change is made in a copy of the repository. A change that no test notices
is printed as a survivor: read it, and write the test that is missing, unless it
means nothing. The nearest tests are those of the folder of the same name.
"""

import argparse
import ast
import copy
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[1]
COPIED = ("keras_compembed", "tests", "benchmarks", "examples")
NEEDED = ("pyproject.toml", "docs", "saved_models", "README.md")
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {
    "minimum": "maximum",
    "min": "max",
    "floor": "ceil",
    "any": "all",
    "argmin": "argmax",
    "sum": "mean",
    "zeros": "ones",
}
NAMES |= {other: name for name, other in NAMES.items()}


def changes(tree):
    """Yields the place of each node that can be changed, and how."""
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr)):
            skipped |= set(ast.walk(node))
    for place, node in enumerate(ast.walk(tree)):
        if node in skipped:
            continue
        operator = getattr(node, "op", None)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            operator = node.ops[0]
        name = getattr(node, "attr", None)
        if type(operator) in OPERATORS:
            yield place, "operator"
        elif name in NAMES:
            yield place, "name"
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield place, "constant"
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield place, "constant"
        elif isinstance(node, ast.UnaryOp) and type(node.op) is ast.Not:
            yield place, "negation"
        elif isinstance(node, ast.AugAssign) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        ):
            yield place, "statement"


def change(tree, place, kind):
    """A changed copy of a tree, and the line that was changed."""
    tree = copy.deepcopy(tree)
    node = list(ast.walk(tree))[place]
    line = node.lineno
    if kind == "operator" and isinstance(node, ast.Compare):
        node.ops = [OPERATORS[type(node.ops[0])]()]
    elif kind == "operator":
        node.op = OPERATORS[type(node.op)]()
    elif kind == "name":
        node.attr = NAMES[node.attr]
    elif kind == "constant":
        is_bool = isinstance(node.value, bool)
        node.value = not node.value if is_bool else node.value + 1
    elif kind == "negation":
        node.operand = ast.UnaryOp(ast.Not(), node.operand)
    else:
        for parent in ast.walk(tree):
            for body in ("body", "orelse", "finalbody"):
                statements = getattr(parent, body, None)
                if isinstance(statements, list) and node in statements:
                    statements[statements.index(node)] = ast.Pass()
    return ast.fix_missing_locations(tree), line


def copy_repository(folder):
    ignored = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in NEEDED:
        (folder / name).symlink_to(ROOT / name)


def notice(folder, tests):
    """Whether tests fail in a copy of the repository."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow"]
    command += ["-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(done.stdout.decode())
    return done.returncode != 0


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="+", help="files or folders to change")
    parser.add_argument("--tests", nargs="+", help="what is run instead")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    files = []
    for path in map(pathlib.Path, args.paths):
        found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        files += [path.resolve().relative_to(ROOT) for path in found]
    trees = {path: ast.parse((ROOT / path).read_text()) for path in files}
    places = [
        (path, *found)
        for path, tree in trees.items()
        for found in changes(tree)
    ]
    drawn = random.Random(args.seed).sample(places, args.count)
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        copy_repository(folder)
        passing = set()
        for path, place, kind in drawn:
            changed, line = change(trees[path], place, kind)
            tests = args.tests or [f"tests/{path.parts[1]}"]
            if tests[0] not in passing and notice(folder, tests):
                sys.exit(f"{' '.join(tests)} must pass without a change.")
            passing.add(tests[0])
            (folder / path).write_text(ast.unparse(changed))
            killed = notice(folder, tests)
            (folder / path).write_text((ROOT / path).read_text())
            survivors += not killed
            old = (ROOT / path).read_text().splitlines()[line - 1].strip()
            said = "killed" if killed else "SURVIVED"
            print(f"{said}: {path}:{line} ({kind}): {old}", flush=True)
    print(f"{survivors} of {len(drawn)} survived")


if __name__ == "__main__":
    main()
