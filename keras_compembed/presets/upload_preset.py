"""Puts a preset on the Hugging Face Hub."""

import json
import pathlib

from keras_compembed.presets.from_preset import RECORD
from keras_compembed.presets.save_preset import CARD
from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.validation import require


def upload_preset(folder, address, private=False):
    """Puts a preset on the Hugging Face Hub.

    It needs the extra `hub`, and that you have logged in by `hf auth login`.
    Files of the preset alone are sent, whatever else is in the folder.

    Example:

    ```python
    kc.save_preset(model, "flowers", card)
    kc.upload_preset("flowers", "hf://user/flowers")
    ```

    Args:
        folder: String or path-like, what `keras_compembed.save_preset` wrote.
        address: String, `"hf://user/repository"`, made if it does not exist.
        private: Boolean, whether a repository that is made is private.
            Defaults to False.

    Returns:
        String, the address of the page of that change.
    """
    require(
        address.startswith("hf://") and "@" not in address,
        "`address` must be 'hf://user/repository'.",
        address=address,
    )
    record = json.loads((pathlib.Path(folder) / RECORD).read_text("utf-8"))
    hub = import_extra("huggingface_hub", "hub")
    repository = address.removeprefix("hf://")
    hub.create_repo(repository, private=private, exist_ok=True)
    return hub.upload_folder(
        repo_id=repository,
        folder_path=folder,
        allow_patterns=[*record["files"], CARD],
        commit_message=f"{record['name']}, by keras_compembed",
    )
