import importlib.metadata
import importlib.util
import pathlib
import subprocess
import sys
import zipfile

import pytest

import keras_compembed as kc
from keras_compembed.utils.extras import require

EXTRAS = (
    "ai_edge_litert",
    "faiss",
    "huggingface_hub",
    "keras_tuner",
    "matplotlib",
    "scipy",
    "sklearn",
    "tensorflow_model_optimization",
    "tensorflow_text",
)


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )


def test_import_needs_no_extra():
    hidden = "".join(f"sys.modules[{name!r}] = None;" for name in EXTRAS)
    result = run(
        f"import sys; {hidden}"
        "import keras_compembed as kc; print(kc.CodeEmbedding.__name__)"
    )
    assert result.stdout == "CodeEmbedding\n", result.stderr


@pytest.mark.filterwarnings("ignore")
def test_extras_that_are_installed_import():
    """Lowest versions too, see `make test-oldest`."""
    for name in EXTRAS:
        if importlib.util.find_spec(name):
            importlib.import_module(name)


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
    package = root / "keras_compembed"
    for file in package.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            assert file.relative_to(root).as_posix() in packed


def test_another_backend_is_refused():
    result = run(
        "import keras; keras.backend.backend = lambda: 'jax'\n"
        "import keras_compembed"
    )
    assert "KERAS_BACKEND=tensorflow" in result.stderr


def test_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"keras-compembed\[plots\]"):
        require("matplotlib", "plots")


def test_public_names():
    assert kc.__version__ == importlib.metadata.version("keras-compembed")
    for name in kc.__all__:
        assert getattr(kc, name) is not None
