"""README, docs and examples of docstrings run; public names are documented."""

import ast
import doctest
import importlib.util
import inspect
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed_command import main
from tools import check_english

ROOT = pathlib.Path(__file__).parents[1]
README = ROOT / "README.md"
# Of examples that do not run everywhere.
NEEDED = {"from_wordnet": "WordNet's files"}
NO_CODE = ("py.typed", "reports/page.html")
PIP = (sys.executable, "-m", "pip", "--quiet")
FAQ = ROOT / "docs/faq.md"
# Messages in it of Keras and TensorFlow.
OF_OTHERS = (
    *("Cast string", "Collective ops", "Could not locate", "Encountered"),
    *("Unrecognized keyword", "indices[0]"),
)
PAGES = check_english.PAGES
# Examples that take over a second.
SLOW = (
    "keras_compembed.Budget",
    "keras_compembed.tuning.CompressedHyperModel",
)


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)


def case(name, is_slow, *values):
    marks = [pytest.mark.slow] if is_slow else []
    return pytest.param(*values, id=name, marks=marks)


def snippets():
    """Those of README, and of the guides, which are slow."""
    return [
        case(f"{page.stem}-{number}", page != README, page.name, block)
        for page in PAGES
        for number, block in enumerate(blocks(page, "python"))
    ]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    model = keras.Sequential(
        [
            keras.Input((8,), dtype="int32"),
            keras.layers.Embedding(3000, 64, name="words"),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    model.fit(**data(), verbose=0)
    path = tmp_path_factory.mktemp("model") / "model.keras"
    model.save(path)
    return path


def data():
    return {"x": np.zeros((4, 8), "int32"), "y": np.zeros(4, "float32")}


@pytest.fixture
def folder(model_file, tmp_path, monkeypatch):
    """A folder with a trained model and a file of users, for snippets."""
    shutil.copy(model_file, tmp_path)
    items = np.random.default_rng(0).integers(3000, size=(400, 12))
    lines = [f"user {' '.join(f'item{x}' for x in row)}" for row in items]
    (tmp_path / "ratings.txt").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("page", "code"), snippets())
def test_snippet_runs(page, code, folder, strategy, monkeypatch):
    # Another one in the same process would fail.
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda: strategy)
    if "kc.text." in code:
        pytest.importorskip("tensorflow_text")
    if "tf_keras" in code:
        pytest.importorskip("tf_keras")
    if '"mediapipe"' in code:
        pytest.importorskip("mediapipe")
    if "litert_quantizer" in code:
        pytest.importorskip("litert_quantizer")
    exec(compile(code, page, "exec"), data())
    small = folder / "small.tflite"
    assert ("small.tflite" in code) == small.exists()
    if small.exists():
        assert small.stat().st_size < 500_000


@pytest.mark.slow
def test_readme_runs_from_the_wheel(folder, tmp_path_factory):
    made = tmp_path_factory.mktemp("made")
    settings = made / "settings.cfg"
    # Nothing is built in the checkout, and nothing downloaded.
    settings.write_text(
        f"[build]\nbuild_base={made}\n[egg_info]\negg_base={made}"
    )
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", made]
    run(*PIP, "wheel", ROOT, *options, DIST_EXTRA_CONFIG=str(settings))
    (path,) = made.glob("*.whl")
    packed = set(zipfile.ZipFile(path).namelist())
    files = [x for x in (ROOT / "keras_compembed").rglob("*") if x.is_file()]
    files = [x for x in files if "__pycache__" not in x.parts]
    assert {x.relative_to(ROOT).as_posix() for x in files} <= packed
    assert {f"keras_compembed/{name}" for name in NO_CODE} <= packed

    venv.create(made / "env")
    python = made / "env/bin/python"
    (site,) = made.glob("env/lib/python*/site-packages")
    # The .pth files there, such as that of an editable install, are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    run(*PIP, "--python", python, "install", "--no-deps", "--no-index", path)
    parts = blocks(README, "python")
    if not all(map(importlib.util.find_spec, ("tensorflow_text", "mediapipe"))):
        parts = [part for part in parts if "kc.text." not in part]
    lines = (
        "import keras_compembed, numpy as np",
        f"assert keras_compembed.__file__.startswith({str(site)!r})",
        f"for part in {parts!r}:",
        "    exec(part, dict(x=np.zeros((4, 8), int), y=np.zeros(4)))",
    )
    run(python, "-I", "-c", "\n".join(lines))


def run(*command, **variables):
    result = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def test_command_line_runs(folder, capsys):
    lines = [
        line
        for block in blocks(README, "sh")
        for line in block.splitlines()
        if line.startswith("keras-compembed")
    ]
    assert len(lines) == 4
    for line in lines:
        assert not main(shlex.split(line)[1:])
    small = keras.saving.load_model(folder / "small.keras")
    assert not isinstance(small.get_layer("words"), keras.layers.Embedding)
    assert "words" in capsys.readouterr().out


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem
)
def test_files_that_are_named_exist(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    links = re.findall(r"\]\((?!http|#)([^)#]+)", text)
    for name in links:
        assert (page.parent / name).exists(), name
    for name in re.findall(r"`((?:examples|benchmarks|tests)/[\w/.]+)`", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", text):
        places = (ROOT, ROOT / "keras_compembed")
        assert any((place / name).exists() for place in places), name
    if page == README:
        assert links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_english_is_plain(page):
    assert list(check_english.check_file(page)) == []


def test_pages_are_short():
    assert list(check_english.check_sizes()) == []


def test_english_of_code_is_plain():
    """Docstrings, messages and comments, and pages beside `docs/`."""
    paths = check_english.OTHERS
    assert [x for path in paths for x in check_english.check_file(path)] == []


def test_messages_of_the_faq_are_those_of_the_package():
    """Headings are questions, or messages with "..." for what varies."""
    headings = re.findall(r"^### (.+)", FAQ.read_text(), re.M)
    strings = [
        node.value
        for path in (ROOT / "keras_compembed").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    for heading in headings:
        if heading.endswith("?") or heading.startswith(OF_OTHERS):
            continue
        for part in filter(None, map(str.strip, heading.split("..."))):
            assert any(part in x for x in strings), heading


def public_names(namespace=kc, prefix="keras_compembed"):
    """Yields the full name of each public name, and what it is."""
    for name in namespace.__all__:
        if name == "__version__":
            continue
        value = getattr(namespace, name)
        yield f"{prefix}.{name}", value
        if inspect.ismodule(value):
            yield from public_names(value, f"{prefix}.{name}")


def test_public_names_have_docstrings_of_their_own():
    for name, value in public_names():
        is_class = inspect.isclass(value)
        own = vars(value).get("__doc__") if is_class else value.__doc__
        assert own, f"{name} must have a docstring."


def examples():
    """Yields the example of each public name, and those of its methods."""
    finder = doctest.DocTestFinder()
    for name, value in public_names():
        if inspect.ismodule(value):
            continue
        known = {"kc": kc, "keras": keras, "np": np, "tf": tf}
        known[value.__name__] = value
        for test in finder.find(value, name, globs=known):
            if test.examples:
                yield case(test.name, test.name in SLOW, test)


@pytest.mark.parametrize("example", list(examples()))
def test_example_of_docstring_runs(example, tmp_path, monkeypatch):
    for name, needed in NEEDED.items():
        if example.name.endswith(name):
            pytest.skip(f"needs {needed}")
    if example.name.startswith("keras_compembed.text."):
        pytest.importorskip("tensorflow_text")
    if example.name == "keras_compembed.export.MediaPipeModel":
        pytest.importorskip("tensorflow_text")
        pytest.importorskip("mediapipe")
    monkeypatch.chdir(tmp_path)
    keras.utils.set_random_seed(0)
    runner = doctest.DocTestRunner()
    report = []
    runner.run(example, out=report.append)
    assert not runner.failures, "".join(report)


def test_public_names_are_on_a_page():
    menu = (ROOT / "mkdocs.yml").read_text()
    shown = set()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name in menu, f"mkdocs.yml must have {name} in its menu."
        shown |= set(re.findall(r"^::: (\S+)", page.read_text(), re.M))
    for name, _ in public_names():
        # A page of a namespace shows all that is in its `__all__`.
        namespace = name.rpartition(".")[0]
        assert {name, namespace} & shown, f"A page in docs/api must show {name}"
