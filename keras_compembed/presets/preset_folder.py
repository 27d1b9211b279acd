"""Finds the folder of a preset."""

import os
import pathlib
import re

from keras_compembed.utils import extras
from keras_compembed.utils.validation import require

MODEL, VECTORS, LITERT = "model.keras", "vectors.npz", "model.tflite"
FIGURES, CARD, RECORD = "figures.json", "README.md", "preset.json"
# In the installed package, where setup.py copies them, or in the repository.
_PLACES = [
    pathlib.Path(__file__).parents[place] / "saved_models" for place in (1, 2)
]
SAVED_MODELS = next(filter(pathlib.Path.is_dir, _PLACES), _PLACES[0])
NAMES = tuple(
    sorted(
        path.parent.name
        for path in SAVED_MODELS.glob("*/*.json")
        if path.name == RECORD
    )
)


def preset_folder(preset):
    """Finds the folder of a preset, and fetches it first if need be.

    For files that stand beside the Keras model: the LiteRT file, labels,
    vocabulary.

    Example:

    >>> folder = preset_folder("docstring_classifier")
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
        ImportError: if it is on the Hub, and `huggingface_hub` is missing.
        OSError: if the Hub does not give it.
    """
    text = os.fspath(preset)
    # A path is never a name.
    if isinstance(preset, str) and preset in NAMES:
        return SAVED_MODELS / preset
    if text.startswith("hf://"):
        repository, revision = split_address(text)
        hub = extras.require("huggingface_hub", "hub")
        try:
            folder = hub.snapshot_download(repository, revision=revision)
        except OSError as error:
            # No such repository, no right to read it, no network.
            raise OSError(
                f"Cannot get {text!r} from the Hugging Face Hub, nor from what "
                f"was fetched before: {error}"
            ) from error
        return pathlib.Path(folder)
    names = ", ".join(map(repr, NAMES))
    require(
        os.path.isdir(preset),
        f"`preset` must be one of {names}, the path of a folder, or "
        "'hf://user/repository'. To get a folder from the Hugging Face Hub, "
        "run: hf download user/repository --local-dir folder.",
        preset=text,
    )
    return pathlib.Path(preset)


def split_address(address):
    """Returns the repository of `hf://user/repository@revision`, and that."""
    match = re.fullmatch(
        r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", address, re.ASCII
    )
    require(
        match,
        "An address on the Hugging Face Hub must be 'hf://user/repository' or "
        "'hf://user/repository@revision'.",
        address=address,
    )
    return match.groups()
