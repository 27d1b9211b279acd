"""Tests import public names; what else they may import is listed here."""

import ast
import inspect
import pathlib

import keras_compembed as kc

TESTS = pathlib.Path(__file__).parent
# Algorithms on plain arrays and files: parts with an interface of their own.
PARTS = {
    "anchors": "anchor_initializer data_initializers l1 lazy_rows relations "
    "sparse_coding sparse_rows transform",
    "classes": "class_scores fitted_search "
    "noise sampling selectors tree_arrays",
    "codes": "computed packing",
    "compositions": "composition",
    "compression": "frontier magnitude_pruning size_search",
    "exchange": "model_copy",
    "layers": "lookup_layer top_classes",
    "litert": "compressed_rows flatbuffer",
    "methods": "method",
    "learners": "additive_quantizer code_learner coordinate_search "
    "refinement task_codes training",
    "optimizers": "device_rows",
    "reports": "code_statistics",
    "rounding": "rounded_table",
    "stores": "integers row_arrays store",
    "text": "piece_table word_tokenizer",
    "utils": "files saving tensor_ops validation workers",
    "vectors": "word_vectors",
}
PACKAGE = kc.__name__


def public_names(namespace=kc, prefix=PACKAGE):
    for name in namespace.__all__:
        yield f"{prefix}.{name}"
        value = getattr(namespace, name)
        if inspect.ismodule(value):
            yield from public_names(value, f"{prefix}.{name}")


def imported_names():
    """Yields what tests import from the package, and where."""
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            module = getattr(node, "module", None) or ""
            if module.partition(".")[0] == PACKAGE:
                for alias in node.names:
                    yield f"{module}.{alias.name}", path.relative_to(TESTS)


def test_public_names_and_parts_alone_are_imported():
    parts = {
        f"{PACKAGE}.{folder}.{name}"
        for folder, names in PARTS.items()
        for name in names.split()
    }
    allowed = parts.union(public_names())
    used = set()
    for name, path in imported_names():
        part = ".".join(name.split(".")[:3])
        used.add(part)
        assert name in allowed or part in parts, f"{path} imports {name}"
        assert "._" not in name.replace("__version__", ""), f"{path}: {name}"
    assert parts <= used, parts - used
