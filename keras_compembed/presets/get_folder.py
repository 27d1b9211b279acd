"""Finds the folder of a preset."""

import os
import pathlib
import re

from keras_compembed.presets import preset_files
from keras_compembed.utils.extras import require

HUB = "hf://"
# A test holds them to the folders of `saved_models`.
NAMES = (
    "docstring_classifier",
    "docstring_text_classifier",
    "job_title_recommender",
    "review_words",
)
# In the repository, beside the package.
SAVED_MODELS = pathlib.Path(__file__).parents[2] / "saved_models"


def get_folder(preset):
    """Finds the folder of a preset, and fetches it first if need be.

    For files that stand beside the Keras model: the LiteRT file, labels,
    vocabulary.

    Example:

    >>> folder = get_folder("docstring_classifier")
    >>> labels = (folder / "labels.txt").read_text("utf-8").splitlines()
    >>> labels[0]
    '_collections_abc'
    >>> phone = kc.export.LiteRTModel(folder / "model.tflite")

    Args:
        preset: String or path-like, see `keras_compembed.from_preset`.

    Returns:
        A `pathlib.Path`.

    Raises:
        ValueError: if it is neither a name that is known, nor a folder, nor a
            repository of the Hub.
        FileNotFoundError: if the presets that have names are not on this
            machine.
        ImportError: if it is on the Hub, and `huggingface_hub` is missing.
        OSError: if the Hub does not give it.
    """
    if not isinstance(preset, str | os.PathLike):
        raise ValueError(
            "`preset` must be a string or a path. "
            f"Received: preset={preset!r} (of type {type(preset).__name__})"
        )
    # A path is never a name.
    if isinstance(preset, str) and preset in NAMES:
        return _named(preset)
    text = os.fspath(preset)
    if text.startswith(HUB):
        return _fetch(text)
    if os.path.isdir(preset):
        return pathlib.Path(preset)
    names = ", ".join(repr(name) for name in NAMES)
    rule = f"one of {names}, the path of a folder, or 'hf://user/repository'"
    if os.path.isfile(preset):
        rule += "; `keras.saving.load_model` reads a file"
    raise ValueError(f"`preset` must be {rule}. Received: preset={text!r}")


def split_address(address):
    """Returns the repository of `hf://user/repository@revision`, and that."""
    match = re.fullmatch(
        rf"{HUB}([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", address, re.ASCII
    )
    if not match:
        raise ValueError(
            "What is on the Hugging Face Hub must be written as "
            "'hf://user/repository' or 'hf://user/repository@revision'. "
            f"Received: {address!r}"
        )
    return match.groups()


def _named(name):
    folder = SAVED_MODELS / name
    if not (folder / preset_files.RECORD).is_file():
        raise FileNotFoundError(
            f"The preset {name!r} stands in the folder `saved_models` of the "
            "repository of keras_compembed, which is not part of the installed "
            "package. Get the repository and pass the path of the preset: "
            f"'PATH/saved_models/{name}'. Looked in: {str(SAVED_MODELS)!r}"
        )
    return folder


def _fetch(address):
    repository, revision = split_address(address)
    hub = require("huggingface_hub", "hub")
    try:
        return pathlib.Path(
            hub.snapshot_download(repository, revision=revision)
        )
    except OSError as error:
        # No such repository, no right to read it, no network.
        raise OSError(
            f"Cannot get {address!r} from the Hugging Face Hub, nor from what "
            f"was fetched before: {error}"
        ) from error
