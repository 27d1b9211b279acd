"""The card of a preset, as Markdown."""

import json
import os

from keras_compembed.export.inspect_litert import inspect_litert
from keras_compembed.presets.preset_folder import FIGURES
from keras_compembed.presets.preset_folder import LITERT
from keras_compembed.presets.preset_folder import MODEL
from keras_compembed.presets.preset_folder import NAMES
from keras_compembed.presets.preset_folder import RECORD
from keras_compembed.presets.preset_folder import VECTORS
from keras_compembed.utils.validation import require

_REQUIRED = ("summary", "license", "command", "limits")
# Those whose numbers are filled in.
_FILLED = ("summary", "data", "results", "limits", "attribution")
_OPTIONAL = ("data", "results", "attribution", "inputs", "outputs", "files")
_OPTIONAL += ("task", "language", "tags")
_CONTENTS = {
    MODEL: "the Keras model",
    VECTORS: "words and their vectors",
    LITERT: "the model as a LiteRT file",
    "labels.txt": "names of the outputs, one a line, in their order",
    "vocabulary.txt": "words, one a line; the line is the id",
    FIGURES: "the record of the figures below",
    "sample.json": "a few inputs with their answers",
    RECORD: "what this card is made of",
}


def fill_card(card, figures):
    """A card with all its keys, whose texts have figures for their names."""
    missing = [name for name in _REQUIRED if not card.get(name)]
    unknown = sorted(set(card) - {*_REQUIRED, *_OPTIONAL})
    require(
        not missing and not unknown,
        f"`card` must have {', '.join(_REQUIRED)}, and of other texts any of "
        f"{', '.join(_OPTIONAL)}.",
        missing=missing,
        unknown=unknown,
    )
    card = dict.fromkeys(_OPTIONAL) | card
    for name in _FILLED:
        try:
            card[name] = card[name] and card[name].format_map(figures)
        except (LookupError, AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                f"`card` has a text {name!r} that `figures` cannot fill: "
                f"{error!r}. Braces of its own are doubled: '{{{{'. "
                f"Received: figures of {list(figures)}."
            ) from error
    return card


def format_card(folder, model):
    """Returns the card of a preset whose other files are written."""
    record = json.loads((folder / RECORD).read_text("utf-8"))
    figures = folder / FIGURES
    figures = json.loads(figures.read_text("utf-8")) if figures.exists() else {}
    card = fill_card(record["card"], figures)
    results = card["results"] and f"## How good it is\n\n{card['results']}"
    versions = [f"{name} {x}" for name, x in record["versions"].items()]
    sections = [
        _front_matter(card, record["files"]),
        f"# {record['name']}",
        card["summary"],
        _table_of_files(folder, record["files"], card["files"] or {}),
        _ends("Input", getattr(model, "inputs", None), card["inputs"]),
        _ends("Output", getattr(model, "outputs", None), card["outputs"]),
        _ends_of_file(folder / LITERT),
        f"## Use\n\n```python\n{_use(record)}```",
        f"## How it was made\n\n```sh\n{card['command']}\n```",
        card["data"],
        f"{', '.join(versions)} wrote the files.",
        results,
        results and figures and f"These figures are those of `{FIGURES}`.",
        f"## Limits\n\n{card['limits']}",
        f"## Licence\n\n`{card['license']}`.",
        card["attribution"],
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _front_matter(card, files):
    """What the Hugging Face Hub reads, as YAML."""
    library = "keras" if MODEL in files else "keras_compembed"
    tags = ["keras", "keras_compembed", *["litert"] * (LITERT in files)]
    head = {
        "library_name": library,
        "license": card["license"],
        # Quoted by JSON: YAML takes the language `no` for a boolean.
        "language": card["language"],
        "pipeline_tag": card["task"],
        "tags": list(dict.fromkeys([*tags, *(card["tags"] or ())])),
    }
    lines = [f"{key}: {json.dumps(x)}" for key, x in head.items() if x]
    return "\n".join(["---", *lines, "---"])


def _table_of_files(folder, names, described):
    lines = ["| file | bytes | what |", "|---|---:|---|"]
    first = (MODEL, LITERT, VECTORS)
    for name in sorted(names, key=lambda name: (name not in first, name)):
        size = os.path.getsize(folder / name)
        what = described.get(name, _CONTENTS.get(name, ""))
        if name == LITERT:
            oldest = inspect_litert(folder / name).min_runtime
            if oldest:
                what += f"; needs LiteRT of TensorFlow {oldest} or newer"
        what = " ".join(what.split()).replace("|", r"\|")
        lines.append(f"| `{name}` | {size:,} | {what} |")
    return "\n".join(lines)


def _ends(title, tensors, meaning):
    """A paragraph on inputs or outputs, where anything is known of them."""
    shown = ", ".join(map(_tensor, tensors or ()))
    shown = [text for text in (shown, meaning) if text]
    return f"**{title}.** {': '.join(shown)}" if shown else None


def _ends_of_file(path):
    """What goes in and out of the LiteRT file, which may answer otherwise."""
    if not path.exists():
        return None
    file = inspect_litert(path)
    inputs, outputs = (
        ", ".join(map(_tensor, side)) for side in (file.inputs, file.outputs)
    )
    return f"**`{path.name}`.** In: {inputs}. Out: {outputs}."


def _tensor(tensor):
    first, *rest = tensor.shape
    sizes = ["batch" if first is None else first]
    sizes += ["any" if size is None else size for size in rest]
    text = f"`{tensor.dtype} ({', '.join(map(str, sizes))})`"
    # Keras counts outputs up.
    if tensor.name.startswith("keras_tensor"):
        return text
    return f"`{tensor.name}`, {text}"


def _use(record):
    name = record["name"]
    preset = name if name in NAMES else f"PATH/{name}"
    lines = (
        f'import keras_compembed as kc\n\nmodel = kc.from_preset("{preset}")\n'
    )
    if VECTORS in record["files"]:
        lines = lines.replace("model =", "vectors =")
        lines += "vectors.most_similar(vectors.index_to_key[0])\n"
    return lines
