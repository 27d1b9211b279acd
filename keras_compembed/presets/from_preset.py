"""Reads the model or the vectors of a preset."""

import json
import pathlib
import re
import zipfile

import keras

from keras_compembed.presets import preset_files
from keras_compembed.presets.get_folder import get_folder
from keras_compembed.utils.saved_words import check_saved_words
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

            - the name of a preset that stands in `saved_models` of the
              repository of this package: `"docstring_classifier"`
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
        FileNotFoundError: if the folder holds no model, or the presets that
            have names are not on this machine.
        ImportError: if it is on the Hub, and `huggingface_hub` is missing.
        OSError: if the Hub does not give it.
    """
    folder = get_folder(preset)
    path = folder / preset_files.MODEL
    if not path.is_file():
        if (folder / preset_files.VECTORS).is_file():
            return CompressedVectors.load(folder / preset_files.VECTORS)
        # What `model.save("hf://...")` writes.
        if (folder / "config.json").is_file():
            return keras.saving.load_model(folder, compile=False)
        held = ", ".join(sorted(item.name for item in folder.iterdir()))
        raise FileNotFoundError(
            f"`preset` must hold the file '{preset_files.MODEL}' or "
            f"'{preset_files.VECTORS}', which `kc.save_preset` writes. "
            f"Received: the folder {str(folder)!r} with "
            f"{held or 'nothing in it'}."
        )
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"`preset` must hold a whole file '{preset_files.MODEL}'. "
            f"Received one of {path.stat().st_size:,} bytes that is cut "
            "short, damaged, or stands for a file that Git LFS has to fetch: "
            f"{str(path)!r}"
        )
    check_saved_words(path)
    try:
        return keras.saving.load_model(path, compile=False)
    except Exception as error:
        written = _keras_version(path)
        if _numbers(written) <= _numbers(keras.__version__):
            raise
        raise ValueError(
            f"`preset` was written by Keras {written}, and Keras "
            f"{keras.__version__} cannot read it. Update Keras. "
            f"Received: {str(path)!r}"
        ) from error


def _keras_version(path):
    with zipfile.ZipFile(pathlib.Path(path)) as archive:
        return json.loads(archive.read("metadata.json"))["keras_version"]


def _numbers(version):
    return [int(number) for number in re.findall(r"\d+", version)[:2]]
