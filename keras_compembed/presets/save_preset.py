"""Saving of presets."""

import json
import os
import pathlib
import shutil

import keras
import tensorflow as tf

from keras_compembed.presets.from_preset import MODEL
from keras_compembed.presets.from_preset import NAMES
from keras_compembed.presets.from_preset import RECORD
from keras_compembed.presets.from_preset import VECTORS
from keras_compembed.utils.files import naming_path
from keras_compembed.utils.files import temporary_folder
from keras_compembed.utils.saving import check_saved_words
from keras_compembed.utils.validation import require
from keras_compembed.vectors.compressed_vectors import CompressedVectors
from keras_compembed.version import __version__

FIGURES, CARD = "figures.json", "README.md"
_REQUIRED = {"summary", "license", "command", "limits"}
_OPTIONAL = {"data", "results", "attribution", "inputs", "outputs", "files"}
_OPTIONAL |= {"task", "language", "tags"}
# Texts with figures in braces.
_FILLED = ("summary", "data", "results", "limits", "attribution")


def save_preset(
    model: keras.Model | CompressedVectors,
    folder: str | os.PathLike,
    card: dict,
    figures: dict | None = None,
    files: dict | None = None,
    overwrite: bool = False,
) -> pathlib.Path:
    """Saves a model with its files and a model card in a folder.

    `from_preset` loads the folder. To publish it on the Hugging Face Hub, run
    `hf upload user/repository folder`. It contains:

    - `model.keras` without optimizer state, or `vectors.npz`,
    - the given files, and `figures.json`,
    - `preset.json` with the record of all files, and the card, `README.md`.

    The model is loaded again and compared before any file is replaced.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> card = {
    ...     "summary": "Classifies two kinds of flowers.",
    ...     "license": "apache-2.0",
    ...     "command": "python train.py --seed 0",
    ...     "results": "{accuracy:.1%} of {flowers:,} flowers are right.",
    ...     "limits": "It was not trained at all.",
    ... }
    >>> path = kc.save_preset(
    ...     model,
    ...     "flowers",
    ...     card,
    ...     figures={"accuracy": 0.5, "flowers": 1000},
    ...     files={"labels.txt": ["iris", "rose"]},
    ... )
    >>> "50.0% of 1,000 flowers" in (path / "README.md").read_text()
    True

    Args:
        model: A built Keras model with registered custom classes, or a
            `keras_compembed.vectors.CompressedVectors`.
        folder: String or path-like. Its parent must exist. It names the preset.
        card: Dict of Markdown texts, which may name figures in braces.
            Required: `"summary"`, `"license"`, `"command"` that made the model,
            `"limits"`. Optional: `"data"`, `"results"`, `"attribution"`,
            `"inputs"`, `"outputs"`, a dict `"files"` from file names to
            descriptions, and for the Hub `"task"`, `"language"` and a list of
            `"tags"`.
        figures: Optional dict of measured values, for JSON. Defaults to `None`.
        files: Optional dict from file names to contents: the path of a file to
            copy, a list of strings (lines), or a dict for JSON. Defaults to
            `None`.
        overwrite: Boolean. Whether the folder may contain files. Files of an
            old preset in it are replaced or removed, and other files stay.
            Defaults to `False`.

    Returns:
        The `pathlib.Path` of the folder.

    Raises:
        KeyError: If the card names an unknown figure.
        ValueError: If an argument is invalid, or the loaded model differs.
    """
    folder = pathlib.Path(os.path.abspath(folder))
    is_vectors = isinstance(model, CompressedVectors)
    require(
        is_vectors or (isinstance(model, keras.Model) and model.built),
        "`model` must be a built Keras model or a `CompressedVectors`.",
        model=model,
    )
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise FileExistsError(
            f"`folder` is not empty: {str(folder)!r}. "
            "Pass `overwrite=True` to replace the preset in it."
        )
    contents = dict(files or {})
    own = {MODEL, VECTORS, RECORD, FIGURES, CARD}
    require(
        own.isdisjoint(contents)
        and all(os.path.basename(name) == name for name in contents),
        f"`files` must have plain file names other than {sorted(own)}.",
        files=list(contents),
    )
    if figures is not None:
        contents[FIGURES] = figures
    with naming_path(str(folder)), temporary_folder(folder.parent) as beside:
        new = pathlib.Path(beside) / folder.name
        new.mkdir()
        for name, content in contents.items():
            _write(new / name, content)
        if is_vectors:
            model.save(new / VECTORS)
        else:
            _save_model(model, new / MODEL, beside)
        record = {
            "name": folder.name,
            "card": card,
            "versions": {
                "Keras": keras.__version__,
                "TensorFlow": tf.__version__,
                "keras_compembed": __version__,
            },
            "files": [*sorted(path.name for path in new.iterdir()), RECORD],
        }
        _write(new / RECORD, record)
        card = format_card(new, record, figures or {})
        (new / CARD).write_text(card, "utf-8")
        _move(new, folder)
    return folder


def _write(path, content):
    if isinstance(content, dict):
        # NumPy values as lists. Not all JSON readers accept NaN.
        text = json.dumps(
            content, indent=1, default=lambda x: x.tolist(), allow_nan=False
        )
        path.write_bytes(f"{text}\n".encode())
    elif isinstance(content, list | tuple):
        text = "".join(f"{line}\n" for line in content)
        # A line break would split a label.
        require(
            text.count("\n") == len(content) and "\r" not in text,
            "`files` must have lists of strings without line breaks.",
            name=path.name,
        )
        path.write_bytes(text.encode())
    else:
        shutil.copyfile(content, path)


def _save_model(model, path, beside):
    """Saves without the optimizer, then loads and compares the model."""
    first = pathlib.Path(beside) / "with_optimizer.keras"
    keras.saving.save_model(model, first)
    check_saved_words(first)
    saved = keras.saving.load_model(first, compile=False)
    keras.saving.save_model(saved, path)
    # Compares bytes: NaN does not equal itself.
    before, after = (
        [weight.tobytes() for weight in each.get_weights()]
        for each in (model, saved)
    )
    require(
        before == after,
        "`model` must be the same after saving and loading: check `get_config` "
        "and `build` of its layers.",
        model=model.name,
    )


def _move(new, folder):
    """Replaces the files of an old preset by new ones."""
    folder.mkdir(exist_ok=True)
    if (folder / RECORD).exists():
        for name in json.loads((folder / RECORD).read_bytes())["files"]:
            # Base names only: other paths are outside the preset.
            (folder / os.path.basename(name)).unlink(missing_ok=True)
    for path in new.iterdir():
        os.replace(path, folder / path.name)


def format_card(folder, record, figures):
    """The card of a folder with all other files."""
    card = {name: x for name, x in record["card"].items() if x is not None}
    require(
        set(card) >= _REQUIRED and set(card) <= _REQUIRED | _OPTIONAL,
        f"`card` must have {sorted(_REQUIRED)}, and may have "
        f"{sorted(_OPTIONAL)}.",
        card=list(card),
    )
    for name in _FILLED:
        card[name] = card.get(name, "").format_map(figures)
    table = ["| file | bytes | what |", "|---|---:|---|"]
    for name in record["files"]:
        what = " ".join(card.get("files", {}).get(name, "").split())
        size = os.path.getsize(folder / name)
        table.append(f"| `{name}` | {size:,} | {what} |")
    preset = record["name"]
    preset = preset if preset in NAMES else f"PATH/{preset}"
    versions = [f"`{name} {x}`" for name, x in record["versions"].items()]
    sections = {
        "Files": "\n".join(table),
        "Input": card.get("inputs"),
        "Output": card.get("outputs"),
        "Use": "```python\nimport keras_compembed as kc\n\n"
        f'loaded = kc.from_preset("{preset}")\n```',
        "How it was made": f"```sh\n{card['command']}\n```\n\n"
        f"{card['data']}\n\nVersions: {', '.join(versions)}.",
        "Results": card["results"],
        "Limits": card["limits"],
        "Licence": f"`{card['license']}`. {card['attribution']}",
    }
    text = f"{_head(card, record)}\n\n# {record['name']}\n\n{card['summary']}\n"
    for title, content in sections.items():
        text += f"\n## {title}\n\n{content.strip()}\n" if content else ""
    return text


def _head(card, record):
    """YAML for the Hugging Face Hub."""
    is_keras = VECTORS not in record["files"]
    tags = ["litert"] if "model.tflite" in record["files"] else []
    head = {
        "library_name": "keras" if is_keras else "keras_compembed",
        "license": card["license"],
        "language": card.get("language"),
        "pipeline_tag": card.get("task"),
        "tags": ["keras_compembed", *tags, *card.get("tags", ())],
    }
    # Quoted by JSON: the language `no` is a boolean in YAML.
    lines = [f"{name}: {json.dumps(x)}" for name, x in head.items() if x]
    return "\n".join(["---", *lines, "---"])
