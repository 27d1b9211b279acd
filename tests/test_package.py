import importlib.metadata
import importlib.util
import inspect
import pathlib
import re
import runpy
import subprocess
import sys
import zipfile

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


@pytest.mark.slow
def test_wheel_has_what_is_no_code(tmp_path):
    root = pathlib.Path(__file__).parents[1]
    steps = "egg_info --egg-base {0} build --build-base {0} bdist_wheel -d {0}"
    result = subprocess.run(
        [sys.executable, "setup.py", *steps.format(tmp_path).split()],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        packed = set(wheel.namelist())
        wheel.extractall(tmp_path / "site")
    package = root / "keras_compembed"
    for file in package.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            assert file.relative_to(root).as_posix() in packed
    code = (
        "import keras_compembed as kc; name = 'review_words';"
        "print(kc.from_preset(name, 'README.md').parent,"
        "kc.from_preset(name).most_similar('good', topn=1))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "site",
        capture_output=True,
        text=True,
        check=False,
    )
    place = tmp_path / "site/keras_compembed/saved_models/review_words"
    assert result.stdout.startswith(f"{place} [('"), result.stderr


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
    assert len(names) <= 85


def test_private_names_of_keras_are_listed():
    root = pathlib.Path(__file__).parents[1]
    text = (root / "docs/design.md").read_text()
    table = text.partition("## Private names")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `([\w.]+)` \|", table, re.M))
    used = set(runpy.run_path(str(root / "tools/private_names.py"))["find"]())
    assert used == listed
