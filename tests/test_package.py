import importlib.metadata
import importlib.util
import inspect
import pathlib
import pickle
import re
import runpy
import subprocess
import sys

import keras
import pytest

import keras_compembed as kc

EXTRAS = (
    "ai_edge_litert",
    "faiss",
    "huggingface_hub",
    "jinja2",
    "keras_tuner",
    "matplotlib",
    "scipy",
    "sklearn",
    "tensorflow_model_optimization",
    "tensorflow_text",
    "tf_keras",
)


@pytest.mark.slow
def test_import_needs_no_extra():
    hidden = "".join(f"sys.modules[{name!r}] = None;" for name in EXTRAS)
    code = "import keras_compembed as kc; print(kc.CodeEmbedding.__name__)"
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; {hidden} {code}"],
        capture_output=True,
        text=True,
    )
    assert result.stdout == "CodeEmbedding\n", result.stderr


def test_another_backend_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ImportError, match="KERAS_BACKEND=tensorflow"):
        runpy.run_path(kc.__file__)


def test_public_names():
    assert kc.__version__ == importlib.metadata.version("keras-compembed")
    names = []
    for name in kc.__all__:
        value = getattr(kc, name)
        inner = value.__all__ if inspect.ismodule(value) else [name]
        names += inner
    assert len(names) <= 86


def public_values():
    for name in kc.__all__:
        value = getattr(kc, name)
        if inspect.ismodule(value):
            yield from (getattr(value, inner) for inner in value.__all__)
        else:
            yield value


def signatures(value):
    """Yields those of a function, or what the site shows of a class."""
    found = [("", value)]
    if inspect.isclass(value):
        ours = [
            x for x in value.__mro__ if x.__module__.startswith(kc.__name__)
        ]
        found = [item for cls in ours for item in vars(cls).items()]
    for name, each in found:
        each = getattr(each, "fget", None) or each
        each = inspect.unwrap(getattr(each, "__func__", each))
        is_shown = inspect.isfunction(each) and each.__doc__
        if name == "__init__" or (is_shown and not name.startswith("_")):
            yield each.__qualname__, inspect.signature(each, eval_str=True)


def test_public_signatures_have_hints():
    missing = []
    for value in public_values():
        for name, signature in signatures(value):
            hints = {
                each.name: each.annotation
                for each in signature.parameters.values()
                if each.name not in ("self", "cls")
            }
            if not name.endswith("__init__"):
                hints["return"] = signature.return_annotation
            unset = inspect.Signature.empty
            missing += [(name, x) for x in hints if hints[x] is unset]
    assert missing == []


def test_public_names_alone_are_listed():
    for module in [kc, *map(vars(kc).get, kc.__all__)]:
        if inspect.ismodule(module):
            assert dir(module) == sorted(module.__all__)
    assert kc.layers and pickle.loads(pickle.dumps(kc.Sampling)) is kc.Sampling


def test_private_names_of_keras_are_listed():
    root = pathlib.Path(__file__).parents[1]
    text = (root / "docs/how_it_works.md").read_text()
    table = text.partition("## Private names")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `([\w.]+)` \|", table, re.M))
    used = set(runpy.run_path(str(root / "tools/private_names.py"))["find"]())
    assert used == listed
