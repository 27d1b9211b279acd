"""Reads the model or the vectors of a preset."""

import json
import re
import zipfile

import keras

from keras_compembed.presets.preset_folder import MODEL
from keras_compembed.presets.preset_folder import VECTORS
from keras_compembed.presets.preset_folder import preset_folder
from keras_compembed.utils.saved_words import check_saved_words
from keras_compembed.utils.validation import require
from keras_compembed.vectors.compressed_vectors import CompressedVectors


def from_preset(preset):
    """Reads the Keras model of a preset, or its vectors of words.

    Example:

    >>> model = from_preset("docstring_classifier")
    >>> model.output_shape
    (None, 278)
    >>> vectors = from_preset("review_words")
    >>> vectors.vector_size
    300

    Args:
        preset: String or path-like, one of:

            - the name of a preset that comes with this package, such as
              `"docstring_classifier"`
            - the path of a folder that `keras_compembed.save_preset` wrote.
              Where it has the same name as one of those, write `"./name"`.
            - `"hf://user/repository"`, a repository of the Hugging Face Hub
              with such a folder's files, or with what Keras itself writes
              there; `"hf://user/repository@revision"` is one state of it. It
              needs the extra `hub`, and is fetched once.

    Returns:
        A Keras model, not compiled, or a
        `keras_compembed.vectors.CompressedVectors`.

    Raises:
        ValueError: if `preset` is none of them, or Keras cannot read its
            model.
        FileNotFoundError: if the folder holds no model.
        ImportError: if it is on the Hub, and `huggingface_hub` is missing.
        OSError: if the Hub does not give it.
    """
    folder = preset_folder(preset)
    path = folder / MODEL
    if (folder / VECTORS).is_file() and not path.is_file():
        return CompressedVectors.load(folder / VECTORS)
    # What `model.save("hf://...")` writes.
    if (folder / "config.json").is_file():
        return keras.saving.load_model(folder, compile=False)
    if not path.is_file():
        raise FileNotFoundError(
            f"`preset` must hold the file '{MODEL}' or '{VECTORS}'. "
            f"Received: the folder {str(folder)!r}."
        )
    require(
        zipfile.is_zipfile(path),
        f"`preset` must hold a whole file '{MODEL}', not one that is cut short "
        "or stands for a file that Git LFS has to fetch.",
        path=str(path),
    )
    check_saved_words(path)
    try:
        return keras.saving.load_model(path, compile=False)
    except Exception as error:
        with zipfile.ZipFile(path) as archive:
            written = json.loads(archive.read("metadata.json"))["keras_version"]
        if _numbers(written) <= _numbers(keras.__version__):
            raise
        raise ValueError(
            f"`preset` was written by Keras {written}, and Keras "
            f"{keras.__version__} cannot read it. Update Keras. "
            f"Received: {str(path)!r}"
        ) from error


def _numbers(version):
    return [int(number) for number in re.findall(r"\d+", version)[:2]]
