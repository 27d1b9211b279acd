"""What a file says of itself to whoever gets it."""

import dataclasses

from keras_compembed.utils.validation import require


@dataclasses.dataclass(frozen=True)
class FileMetadata:
    """Who made a LiteRT file, and what for, as the file itself says it.

    Apps and tools read it as TFLite model metadata; `inspect_litert` shows it.

    Example:

    >>> FileMetadata(name="Moods of reviews", license="Apache-2.0").license
    'Apache-2.0'

    Args:
        name: Optional string, what the model is called.
        description: Optional string, what it is for.
        version: Optional string, e.g. `"1.0"`.
        author: Optional string.
        license: Optional string, e.g. `"Apache-2.0"`.

    Raises:
        ValueError: if one is given that is no string, or an empty one.
    """

    name: str | None = None
    description: str | None = None
    version: str | None = None
    author: str | None = None
    license: str | None = None

    def __post_init__(self):
        for name, value in vars(self).items():
            if value is not None:
                require(
                    isinstance(value, str) and value.strip(),
                    f"`{name}` of `FileMetadata` must be a string that is not "
                    "empty, or None.",
                    **{name: value},
                )
                check_text(name, value)


def check_text(name, text):
    """Raises if a string cannot be UTF-8 in a file."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"`{name}` must be text that UTF-8 can hold. Received: {text!r}."
        ) from error
