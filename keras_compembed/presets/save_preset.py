"""Writes a model, all that belongs to it, and its card into a folder."""

import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shutil

import keras

from keras_compembed.presets.card import fill_card
from keras_compembed.presets.card import format_card
from keras_compembed.presets.preset_folder import CARD
from keras_compembed.presets.preset_folder import FIGURES
from keras_compembed.presets.preset_folder import MODEL
from keras_compembed.presets.preset_folder import RECORD
from keras_compembed.presets.preset_folder import VECTORS
from keras_compembed.utils.files import naming_path
from keras_compembed.utils.files import temporary_folder
from keras_compembed.utils.saved_words import check_saved_words
from keras_compembed.utils.validation import require
from keras_compembed.vectors.compressed_vectors import CompressedVectors
from keras_compembed.version import __version__

_OWN_FILES = (MODEL, VECTORS, FIGURES, CARD, RECORD)


def save_preset(model, folder, card, figures=None, files=None, overwrite=False):
    """Writes a model, all that belongs to it, and its card into a folder.

    The folder is what `from_preset` reads and what a repository of the Hugging
    Face Hub holds: `model.keras`, or `vectors.npz` of vectors of words, the
    files given, `figures.json`, `preset.json` with the record of all this, and
    the card, `README.md`.

    The model is saved without its optimizer, whose state may be twice as
    large as the model. All files are written and the model is read back
    before any of them gets its place.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> card = {
    ...     "summary": "Tells two kinds of flowers apart.",
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
    >>> kc.from_preset("flowers").output_shape
    (None, 2)

    Args:
        model: A built Keras model, or a
            `keras_compembed.vectors.CompressedVectors`. Classes of a model's
            own must be registered with
            `keras.saving.register_keras_serializable`.
        folder: String or path-like. It is made if it does not exist; its
            parent must exist. Its name is the name of the preset.
        card: Dict of what a person has to say, in Markdown: `"summary"`,
            `"license"` as the Hub names it, `"command"` that made the model,
            and `"limits"`; optionally `"data"` it was trained on,
            `"results"`, `"attribution"`, what `"inputs"` and `"outputs"`
            mean, a dict `"files"` from names of files to what is in them,
            and for the Hub `"task"`, `"language"` and a list of `"tags"`.
            `summary`, `data`, `results`, `limits` and `attribution` name
            figures in braces, as in `"{accuracy:.1%}"`.
        figures: Optional dict of numbers, strings, and lists and dicts of
            them: what was measured. It is written as `figures.json`, and the
            card's texts name its entries.
        files: Optional dict from the names of further files to what is in
            them: the path of a file to copy, a list of strings, one a line,
            or for a name that ends with `.json` a dict.
        overwrite: Boolean, whether the folder may hold files already. Files
            of the preset that it held are replaced or removed, all others are
            left alone. Defaults to False.

    Returns:
        The `pathlib.Path` of the folder.

    Raises:
        FileExistsError: if the folder holds files and `overwrite` is False.
        FileNotFoundError: if its parent, or a file to copy, does not exist.
        ValueError: if an argument has the wrong form, the card names a figure
            that is not given, or the model is not the same when it is read
            back.
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
            f"`folder` holds files already: {str(folder)!r}. "
            "Pass `overwrite=True` to replace those of the preset in it."
        )
    files = {name: _content(name, x) for name, x in (files or {}).items()}
    if figures is not None:
        files[FIGURES] = _json(figures)
        figures = json.loads(files[FIGURES])
    # Before the model is written.
    fill_card(card, figures or {})
    with naming_path(str(folder)), temporary_folder(folder.parent) as beside:
        new = pathlib.Path(beside) / folder.name
        new.mkdir()
        for name, content in files.items():
            if isinstance(content, bytes):
                (new / name).write_bytes(content)
            else:
                shutil.copyfile(content, new / name)
        saved = model
        if is_vectors:
            model.save(new / VECTORS)
        else:
            saved = _save_model(model, new / MODEL, beside)
        record = {
            "name": folder.name,
            "card": card,
            "versions": _versions(),
            "files": [*sorted(path.name for path in new.iterdir()), RECORD],
        }
        (new / RECORD).write_bytes(_json(record))
        (new / CARD).write_text(format_card(new, saved), "utf-8")
        _move(new, folder)
    return folder


def _content(name, content):
    """The bytes of a file, or the path of one to copy."""
    # Some disks do not tell capitals from small letters.
    require(
        re.fullmatch(r"\w[\w. -]*", name)
        and name.lower() not in map(str.lower, _OWN_FILES),
        f"`files` must have plain names of files, other than {_OWN_FILES}.",
        name=name,
    )
    if isinstance(content, dict):
        return _json(content)
    if isinstance(content, list | tuple):
        # A label with a line break would be two.
        text = "".join(f"{line}\n" for line in content)
        require(
            text.count("\n") == len(content) and "\r" not in text,
            "`files` must hold lists of strings without line breaks.",
            name=name,
        )
        return text.encode()
    if not os.path.isfile(content):
        raise FileNotFoundError(
            f"`files` must name files that exist. Received: {name!r}: "
            f"{os.fspath(content)!r}"
        )
    return content


def _json(content):
    # Numbers and arrays of NumPy as lists. Not all readers of JSON know NaN.
    text = json.dumps(
        content, indent=1, default=lambda x: x.tolist(), allow_nan=False
    )
    return f"{text}\n".encode()


def _save_model(model, path, beside):
    """Saves without the optimizer; returns the model as it is read back."""
    first = pathlib.Path(beside) / "with_optimizer.keras"
    keras.saving.save_model(model, first)
    check_saved_words(first)
    try:
        saved = keras.saving.load_model(first, compile=False)
    except Exception as error:
        raise ValueError(
            "`model` must be one that `keras.saving.load_model` reads from "
            "its file by the path alone: register its own classes and "
            f"functions. Received: {model.name!r}; Keras's error stands above."
        ) from error
    keras.saving.save_model(saved, path)
    # Bytes, for NaN does not equal itself.
    before, after = (
        [weight.tobytes() for weight in each.get_weights()]
        for each in (model, saved)
    )
    require(
        before == after,
        "`model` must be the same when Keras reads it from its file: a layer's "
        "`get_config` or `build` may lack something.",
        model=model.name,
    )
    return saved


def _versions():
    names = {"keras": "Keras", "tensorflow": "TensorFlow", "numpy": "NumPy"}
    versions = {
        name: importlib.metadata.version(package)
        for package, name in names.items()
    }
    python = {"Python": platform.python_version()}
    return {**python, **versions, "keras_compembed": __version__}


def _move(new, folder):
    """Puts whole files in their places, the record of them last."""
    folder.mkdir(exist_ok=True)
    record = folder / RECORD
    old = json.loads(record.read_bytes())["files"] if record.exists() else []
    names = {path.name for path in new.iterdir()}
    for name in sorted(names, key=lambda name: name == RECORD):
        os.replace(new / name, folder / name)
    for name in set(old) - names:
        # A name that leads elsewhere is no file of a preset.
        if os.path.basename(name) == name:
            (folder / name).unlink(missing_ok=True)
