"""Writes a model, all that belongs to it, and its card into a folder."""

import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shutil

import keras
import numpy as np

from keras_compembed.presets import preset_files
from keras_compembed.presets.card_text import format_card
from keras_compembed.presets.card_text import read_json
from keras_compembed.presets.model_card import ModelCard
from keras_compembed.utils.files import check_room
from keras_compembed.utils.files import naming_path
from keras_compembed.utils.files import temporary_folder
from keras_compembed.utils.saved_words import check_saved_words
from keras_compembed.utils.validation import check_boolean
from keras_compembed.vectors.compressed_vectors import CompressedVectors
from keras_compembed.version import __version__


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
    >>> card = kc.presets.ModelCard(
    ...     summary="Tells two kinds of flowers apart.",
    ...     license="apache-2.0",
    ...     command="python train.py --seed 0",
    ...     results="{accuracy:.1%} of {flowers:,} flowers are right.",
    ...     limits="It was not trained at all.",
    ... )
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
        card: A `keras_compembed.presets.ModelCard`.
        figures: Optional dict of numbers, strings, and lists and dicts of
            them: what was measured. It is written as `figures.json`, and the
            card's texts name its entries.
        files: Optional dict from the names of further files to what is in
            them: the path of a file to copy, a list of strings, one a line,
            or for a name that ends with `.json` a dict. `"model.tflite"`,
            `"labels.txt"`, `"vocabulary.txt"` and `"sample.json"` are
            explained in the card by themselves, others by `card.files`.
        overwrite: Boolean, whether the folder may hold files already. Files
            of the preset that it held are replaced or removed, all others are
            left alone. Defaults to False.

    Returns:
        The `pathlib.Path` of the folder.

    Raises:
        FileExistsError: if the folder holds files and `overwrite` is False.
        FileNotFoundError: if its parent, or a file to copy, does not exist.
        OSError: if nothing can be written there, or the disk is full.
        ValueError: if an argument has the wrong form, the card names a figure
            or file that is not given, or the model is not the same when it is
            read back.
    """
    folder = pathlib.Path(os.path.abspath(folder))
    contents = _check(model, folder, card, figures, files, overwrite)
    # On the disk of the folder, which may be a link or a mount.
    parent = folder if folder.is_dir() else folder.parent
    check_room(str(parent), 0, f"of the preset {str(folder)!r}")
    with naming_path(str(folder)), temporary_folder(parent) as beside:
        new = pathlib.Path(beside) / folder.name
        new.mkdir()
        for name, content in contents.items():
            _write(new / name, content)
        saved = _save(model, new, beside)
        names = sorted(path.name for path in new.iterdir())
        record = {
            "name": folder.name,
            "card": dataclasses.asdict(card),
            "versions": _versions(),
            "files": [*names, preset_files.RECORD],
        }
        _write(new / preset_files.RECORD, record)
        card = format_card(new, saved)
        (new / preset_files.CARD).write_text(card, "utf-8")
        _move(new, folder)
    return folder


def _check(model, folder, card, figures, files, overwrite):
    """Returns what to write, by name of file, or raises."""
    if not isinstance(model, CompressedVectors) and not (
        isinstance(model, keras.Model) and model.built
    ):
        raise ValueError(
            "`model` must be a built Keras model or a "
            "`keras_compembed.vectors.CompressedVectors`. "
            f"Received: model={model!r}"
        )
    check_boolean("overwrite", overwrite)
    if not isinstance(card, ModelCard):
        raise ValueError(
            "`card` must be a `keras_compembed.presets.ModelCard`. "
            f"Received: card={card!r}"
        )
    for name, value in (("figures", figures), ("files", files)):
        if not isinstance(value, dict | None):
            raise ValueError(
                f"`{name}` must be a dict. Received: {name}={value!r}"
            )
    if not folder.parent.is_dir():
        raise FileNotFoundError(
            "The folder that `folder` is in must exist. "
            f"Received: folder={str(folder)!r}"
        )
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(
            f"`folder` must be a folder. Received a file: {str(folder)!r}"
        )
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise FileExistsError(
            f"`folder` holds files already: {str(folder)!r}. "
            "Pass `overwrite=True` to replace those of the preset in it."
        )
    files = dict(files or {})
    for name, content in files.items():
        _check_file(name, content)
    for name in card.files:
        if name not in (*files, preset_files.MODEL, preset_files.VECTORS):
            raise ValueError(
                "`files` of the card must name files of the preset. Received: "
                f"{name!r}, which `files` of `save_preset` lacks."
            )
    if figures is not None:
        try:
            # Not all readers of JSON know NaN and infinity.
            figures = json.loads(
                json.dumps(figures, default=_as_python, allow_nan=False)
            )
        except (TypeError, ValueError) as error:
            raise ValueError(
                "`figures` must hold finite numbers, strings, and lists and "
                f"dicts of them ({error}). Received: figures={figures!r}"
            ) from error
        files[preset_files.FIGURES] = figures
    # Before the model is written.
    card.fill(figures or {})
    return files


def _check_file(name, content):
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w. -]*", name):
        raise ValueError(
            "`files` must have plain names of files as its keys. "
            f"Received: {name!r}"
        )
    # Some disks do not tell capitals from small letters.
    if name.lower() in [own.lower() for own in preset_files.OWN_FILES]:
        raise ValueError(
            f"`files` must not hold {name!r}, which `save_preset` writes."
        )
    if isinstance(content, str | os.PathLike):
        if not os.path.isfile(content):
            raise FileNotFoundError(
                f"`files` must name files that exist. Received: "
                f"{name!r}: {os.fspath(content)!r}"
            )
    elif isinstance(content, dict):
        if not name.endswith(".json"):
            raise ValueError(
                "`files` must have a name that ends with '.json' for a dict. "
                f"Received: {name!r}"
            )
    elif not isinstance(content, list | tuple):
        raise ValueError(
            "`files` must hold paths, lists of strings or dicts. Received: "
            f"{name!r}: {content!r}"
        )
    else:
        for line in content:
            # A label with a line break would be two.
            if not isinstance(line, str) or set(line) & {"\n", "\r"}:
                raise ValueError(
                    "`files` must hold lists of strings without line breaks. "
                    f"Received: {name!r} with {line!r}"
                )


def _as_python(value):
    """NumPy's numbers and arrays as JSON has them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is none of them")


def _write(path, content):
    if isinstance(content, dict):
        text = json.dumps(content, indent=1, default=_as_python) + "\n"
        path.write_text(text, "utf-8")
    elif isinstance(content, list | tuple):
        # One kind of line ends on all systems.
        text = "".join(f"{line}\n" for line in content)
        path.write_bytes(text.encode("utf-8"))
    else:
        shutil.copyfile(content, path)


def _save(model, folder, beside):
    """Returns what was saved as it is read back."""
    if isinstance(model, CompressedVectors):
        model.save(folder / preset_files.VECTORS)
        return CompressedVectors.load(folder / preset_files.VECTORS)
    return _save_model(model, folder / preset_files.MODEL, beside)


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
            "its file by the path alone: classes and functions of its own "
            "are registered, and none is a lambda. "
            f"Received: {model.name!r}; Keras's own error stands above."
        ) from error
    keras.saving.save_model(saved, path)
    before, after = model.get_weights(), saved.get_weights()
    same = len(before) == len(after) and all(
        # NaN does not equal itself.
        old.tobytes() == new.tobytes()
        for old, new in zip(before, after, strict=True)
    )
    if not same:
        raise ValueError(
            "`model` must be the same when Keras reads it from its file. "
            f"Received: {model.name!r}, whose weights are others then. "
            "A layer's `get_config` or `build` may lack something."
        )
    return saved


def _versions():
    names = {"keras": "Keras", "tensorflow": "TensorFlow", "numpy": "NumPy"}
    versions = {"Python": platform.python_version()}
    for package, name in names.items():
        versions[name] = importlib.metadata.version(package)
    return {**versions, "keras_compembed": __version__}


def _move(new, folder):
    """Puts whole files in their places, the record of them last."""
    folder.mkdir(exist_ok=True)
    record = folder / preset_files.RECORD
    old = read_json(record)["files"] if record.exists() else []
    names = {path.name for path in new.iterdir()}
    for name in names - {record.name}:
        os.replace(new / name, folder / name)
    for name in set(old) - names:
        # A name that leads elsewhere is no file of a preset.
        if os.path.basename(name) == name:
            (folder / name).unlink(missing_ok=True)
    os.replace(new / record.name, record)
