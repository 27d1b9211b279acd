"""Lists the private names of Keras and TensorFlow that the package uses.

    python -m tools.private_names

`docs/how_it_works.md` says what each is for; a test compares the two lists.
"""

import ast
import pathlib
import re

import keras

PACKAGE = pathlib.Path(__file__).parents[1] / "keras_compembed"
_MODULES = re.compile(r"(keras\.src|tensorflow\.python)\b")
_BASES = (
    *(keras.layers.Layer, keras.Model, keras.optimizers.Optimizer),
    *(keras.losses.Loss, keras.metrics.Metric, keras.callbacks.Callback),
)
# Of Python and of packages that extras install.
_OTHERS = frozenset(
    "_replace _fields _getframe _get_renderer _converted_model _struct_unpack "
    "_load_vocab _NEW_HEADER_FORMAT".split()
)


def find():
    """Dict from a private name to the files that use it."""
    trees = {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    own = {name for tree in trees.values() for name in _defined(tree)}
    found = {}
    for path, tree in trees.items():
        for name in _used(tree):
            if name not in own | _OTHERS:
                found.setdefault(name, set()).add(path)
    return found


def _defined(tree):
    """Names that the package gives to what is its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.FunctionDef):
            # A method of Keras that is overridden is none of ours.
            if not any(hasattr(base, node.name) for base in _BASES):
                yield node.name
        elif isinstance(node, (ast.Name, ast.Attribute)):
            if isinstance(node.ctx, ast.Store):
                if isinstance(node, ast.Name):
                    yield node.id
                elif getattr(node.value, "id", None) == "self":
                    yield node.attr


def _used(tree):
    for node in ast.walk(tree):
        name = None
        if isinstance(node, ast.ImportFrom) and _MODULES.match(node.module):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            name = node.attr
        elif isinstance(node, ast.FunctionDef):
            name = node.name
        elif isinstance(node, ast.keyword):
            name = node.arg
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            if getattr(node.func, "id", "") in ("getattr", "hasattr"):
                name = getattr(node.args[1], "value", None)
        if isinstance(name, str) and re.match("_[^_]", name):
            yield name


if __name__ == "__main__":
    for name, paths in sorted(find().items()):
        print(f"{name:45}{', '.join(sorted(paths))}")
