"""A repository of the Hugging Face Hub, each file fetched when asked for."""

from keras_compembed.presets.get_folder import split_address
from keras_compembed.utils.extras import require


class HubFolder:
    """What a `Source` is to a folder, to a repository."""

    is_folder = True
    compression = None
    members = ()
    head = b""

    def __init__(self, path):
        self.path = path
        self._repository, self._revision = split_address(path)
        self._hub = require("huggingface_hub", "hub")
        self._errors = require("huggingface_hub.errors", "hub")
        self._paths = {}

    def __str__(self):
        return repr(self.path)

    def find(self, name):
        """Fetches a file, and returns its path; None if there is none."""
        if name not in self._paths:
            self._paths[name] = self._fetch(name)
        return self._paths[name]

    def _fetch(self, name):
        try:
            return self._hub.hf_hub_download(
                self._repository, name, revision=self._revision
            )
        except self._errors.LocalEntryNotFoundError as error:
            # Not in what was fetched before, which tells nothing.
            raise self._unreachable(error) from error
        except self._errors.EntryNotFoundError:
            return None
        except OSError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error):
        return OSError(
            f"Cannot get {self.path!r} from the Hugging Face Hub, nor from "
            f"what was fetched before: {error}"
        )
