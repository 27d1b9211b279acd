"""Puts a preset on the Hugging Face Hub."""

import pathlib

from keras_compembed.presets import preset_files
from keras_compembed.presets.card_text import read_json
from keras_compembed.presets.get_folder import split_address
from keras_compembed.utils.extras import require
from keras_compembed.utils.validation import check_boolean


def upload_preset(folder, address, private=False):
    """Puts a preset on the Hugging Face Hub.

    It needs the extra `hub`, and that you have logged in, as with
    `hf auth login`. Files of the preset alone are sent, whatever else
    is in the folder.

    Example:

    ```python
    kc.save_preset(model, "flowers", card)
    kc.upload_preset("flowers", "hf://user/flowers")
    ```

    Args:
        folder: String or path-like, what `keras_compembed.save_preset` wrote.
        address: String, `"hf://user/repository"`. The repository is made if
            it does not exist.
        private: Boolean, whether a repository that is made is private.
            Defaults to False.

    Returns:
        String, the address of the page of that change.

    Raises:
        ValueError: if `address` has another form.
        FileNotFoundError: if the folder is no preset.
        ImportError: if `huggingface_hub` is missing.
    """
    repository, revision = split_address(address)
    if revision:
        raise ValueError(
            f"`address` must have no revision. Received: address={address!r}"
        )
    record = pathlib.Path(folder) / preset_files.RECORD
    if not record.is_file():
        raise FileNotFoundError(
            "`folder` must be a preset that `kc.save_preset` wrote. "
            f"Received: {str(folder)!r}, without '{preset_files.RECORD}'."
        )
    check_boolean("private", private)
    hub = require("huggingface_hub", "hub")
    hub.create_repo(repository, private=private, exist_ok=True)
    return hub.upload_folder(
        repo_id=repository,
        folder_path=folder,
        allow_patterns=[*read_json(record)["files"], preset_files.CARD],
        commit_message=f"{read_json(record)['name']}, by keras_compembed",
    )
