"""What a person has to say about a model."""

import dataclasses
import re

# Those whose numbers are filled in.
TEXTS = ("summary", "data", "results", "limits", "attribution")


@dataclasses.dataclass(frozen=True)
class ModelCard:
    """What a person has to say about a model; see `save_preset`.

    The rest of a card is read from the files and the model. Texts are
    Markdown. `summary`, `data`, `results`, `limits` and `attribution` name
    figures in braces, as in `"{accuracy:.1%} of {texts:,} texts"`, and
    `save_preset` fills them in from its `figures`, so that a card says what
    the record says. Braces of their own are doubled: `{{`.

    Example:

    >>> card = ModelCard(
    ...     summary="Names the language of a word.",
    ...     license="cc-by-4.0",
    ...     command="python train.py --seed 0",
    ...     results="On {words:,} other words, {accuracy:.1%} are right.",
    ...     limits="It knows five languages, and answers for any text.",
    ... )
    >>> card.fill({"words": 2000, "accuracy": 0.925}).results
    'On 2,000 other words, 92.5% are right.'

    Args:
        summary: String, what the model does, in a sentence or two.
        license: String, as the Hugging Face Hub names it: `"apache-2.0"`,
            `"cc-by-4.0"`, `"other"`.
        command: String, the command that made the model.
        limits: String, what the model should not be used for, and where it
            fails.
        data: Optional string, what it was trained on.
        results: Optional string, how good it is, and how that was measured.
        attribution: Optional string, whose work is in it, where the licence
            asks for that.
        inputs: Optional string, what the inputs mean: how a text becomes
            ids. Their names, shapes and dtypes are read from the model.
        outputs: Optional string, what the outputs mean.
        files: Optional dict from names of files to what is in them.
        task: Optional string, the Hub's name of the task, such as
            `"text-classification"`.
        language: Optional string, such as `"en"`.
        tags: Sequence of strings, for the Hub.

    Raises:
        ValueError: if one of them has the wrong form.
    """

    summary: str
    license: str
    command: str
    limits: str
    data: str | None = None
    results: str | None = None
    attribution: str | None = None
    inputs: str | None = None
    outputs: str | None = None
    files: dict = dataclasses.field(default_factory=dict)
    task: str | None = None
    language: str | None = None
    tags: tuple = ()

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "files":
                if not isinstance(value, dict):
                    raise ValueError(
                        "`files` must be a dict from names of files to what "
                        f"is in them. Received: files={value!r}"
                    )
            elif field.name == "tags":
                if isinstance(value, str):
                    raise ValueError(
                        "`tags` must be a sequence of strings. "
                        f"Received: tags={value!r}"
                    )
                # A list is what JSON gives.
                object.__setattr__(self, "tags", tuple(value))
            elif value is None and field.default is None:
                continue
            elif not isinstance(value, str) or not value.strip():
                raise ValueError(
                    f"`{field.name}` must be a text that is not empty. "
                    f"Received: {field.name}={value!r}"
                )
        # They stand in the front matter, which is YAML.
        names = {"license": [self.license], "tags": self.tags}
        names |= {"task": [self.task], "language": [self.language]}
        for name, values in names.items():
            for value in values:
                if value is not None and not _is_name(value):
                    raise ValueError(
                        f"`{name}` must be made of letters, digits and any "
                        f"of '.-_'. Received: {name}={value!r}"
                    )

    def fill(self, figures):
        """Returns a card whose texts have figures in place of their names.

        Args:
            figures: Dict of numbers, strings, and lists and dicts of them.

        Raises:
            ValueError: if a text names a figure that is not there, or in a
                form that does not suit it.
        """
        filled = {}
        for name in TEXTS:
            text = getattr(self, name)
            if text is None:
                continue
            try:
                filled[name] = text.format_map(figures)
            except KeyError as error:
                raise ValueError(
                    f"`{name}` of the card names the figure {error}, which "
                    f"`figures` lacks. Received: figures of {list(figures)}."
                ) from error
            except (AttributeError, IndexError, TypeError, ValueError) as error:
                raise ValueError(
                    f"`{name}` of the card cannot be filled with `figures` "
                    f"({error}). Braces of its own are doubled: '{{{{'. "
                    f"Received: {name}={text!r}"
                ) from error
        return dataclasses.replace(self, **filled)


def _is_name(value):
    return isinstance(value, str) and re.fullmatch(r"[\w.-]+", value, re.ASCII)
