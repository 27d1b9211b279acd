"""Reads the model or the vectors of a preset."""

import os
import pathlib

import keras

from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.saving import check_saved_words
from keras_compembed.utils.validation import require
from keras_compembed.vectors.compressed_vectors import CompressedVectors

MODEL, VECTORS, RECORD = "model.keras", "vectors.npz", "preset.json"
# In the installed package, where setup.py copies them, or in the repository.
_PLACES = [
    pathlib.Path(__file__).parents[place] / "saved_models" for place in (1, 2)
]
SAVED_MODELS = next(filter(pathlib.Path.is_dir, _PLACES), _PLACES[0])
NAMES = sorted(path.parent.name for path in SAVED_MODELS.glob(f"*/{RECORD}"))


def from_preset(
    preset: str | os.PathLike, file: str | None = None
) -> keras.Model | CompressedVectors | pathlib.Path:
    """Reads the Keras model of a preset, its vectors of words, or finds a file.

    Example:

    >>> model = from_preset("docstring_classifier")
    >>> model.output_shape
    (None, 278)
    >>> vectors = from_preset("review_words")
    >>> vectors.vector_size
    300
    >>> labels = from_preset("docstring_classifier", "labels.txt")
    >>> labels.read_text("utf-8").splitlines()[0]
    '_collections_abc'

    Args:
        preset: String or path-like: the name of a preset that comes with this
            package, such as `"docstring_classifier"`; the path of a folder
            that `keras_compembed.save_preset` wrote (`"./name"` where it is
            also a name); or `"hf://user/repository"`, or with `@revision`, of
            the Hugging Face Hub, which holds what
            `save_preset` or Keras wrote. It is fetched once, and needs the
            extra `hub`.
        file: Optional string, the name of a file of the preset, such as
            `"model.tflite"` or `"labels.txt"`. Defaults to `None`.

    Returns:
        A Keras model, not compiled, or a
        `keras_compembed.vectors.CompressedVectors`; with `file`, the
        `pathlib.Path` of that.
    """
    folder = _find_folder(preset)
    if file is not None:
        require(
            (folder / file).is_file(),
            f"`file` must be a file of the preset in {str(folder)!r}.",
            file=file,
        )
        return folder / file
    if (folder / VECTORS).is_file():
        return CompressedVectors.load(folder / VECTORS)
    path = folder / MODEL
    if not path.is_file():
        # What `model.save("hf://...")` writes.
        return keras.saving.load_model(folder, compile=False)
    check_saved_words(path)
    return keras.saving.load_model(path, compile=False)


def _find_folder(preset):
    """The folder of a preset, which is fetched first if need be."""
    # A path is never a name.
    if isinstance(preset, str) and preset in NAMES:
        return SAVED_MODELS / preset
    text = os.fspath(preset)
    if text.startswith("hf://"):
        hub = import_extra("huggingface_hub", "hub")
        repository, _, revision = text.removeprefix("hf://").partition("@")
        return pathlib.Path(
            hub.snapshot_download(repository, revision=revision or None)
        )
    require(
        os.path.isdir(preset),
        f"`preset` must be one of {', '.join(map(repr, NAMES))}, the path of a "
        "folder, or 'hf://user/repository'. To get a folder from the Hugging "
        "Face Hub, run: hf download user/repository --local-dir folder.",
        preset=text,
    )
    return pathlib.Path(preset)
