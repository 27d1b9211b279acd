"""Loading of presets."""

import os
import pathlib

import keras

from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.saving import check_saved_words
from keras_compembed.utils.validation import require
from keras_compembed.vectors.compressed_vectors import CompressedVectors

MODEL, VECTORS, RECORD = "model.keras", "vectors.npz", "preset.json"
# In the package, where setup.py copies them, or in the repository.
_PLACES = [
    pathlib.Path(__file__).parents[place] / "saved_models" for place in (1, 2)
]
SAVED_MODELS = next(filter(pathlib.Path.is_dir, _PLACES), _PLACES[0])
NAMES = sorted(path.parent.name for path in SAVED_MODELS.glob(f"*/{RECORD}"))


def from_preset(
    preset: str | os.PathLike, file: str | None = None
) -> keras.Model | CompressedVectors | pathlib.Path:
    """Loads the Keras model or word vectors of a preset, or finds a file.

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
        preset: String or path-like, one of: the name of a preset in this
            package, e.g. `"docstring_classifier"`; a folder that
            `keras_compembed.save_preset` wrote, `"./name"` if a preset has its
            name; or `"hf://user/repository"`, optionally with `@revision`, a
            Hugging Face repository written by `save_preset` or Keras. It is
            downloaded once and needs the extra `hub`.
        file: Optional string, the name of a file of the preset, such as
            `"model.tflite"` or `"labels.txt"`. Defaults to `None`.

    Returns:
        A Keras model, not compiled, or a
        `keras_compembed.vectors.CompressedVectors`. With `file`, the
        `pathlib.Path` of that file.

    Raises:
        ValueError: If there is no such preset or file.
    """
    folder = _find_folder(preset)
    if file is not None:
        require(
            (folder / file).is_file(),
            f"`file` must exist in the preset {str(folder)!r}.",
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
    """The folder of a preset, downloaded if necessary."""
    # A name is a string, not a path.
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
        "folder, or 'hf://user/repository'. To download a folder, run: "
        "hf download user/repository --local-dir folder.",
        preset=text,
    )
    return pathlib.Path(preset)
