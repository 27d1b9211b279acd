"""The card of a preset, as Markdown."""

import json
import os
import pathlib

from keras_compembed.export.inspect_litert import inspect_litert
from keras_compembed.layers.class_head import ClassHead
from keras_compembed.layers.top_classes import list_heads
from keras_compembed.presets import preset_files
from keras_compembed.presets.get_folder import NAMES
from keras_compembed.presets.model_card import ModelCard

_TAGS = ("keras", "keras_compembed")


def format_card(folder, model):
    """Returns the card of a preset whose other files are written."""
    record = read_json(folder / preset_files.RECORD)
    figures = folder / preset_files.FIGURES
    figures = read_json(figures) if figures.exists() else {}
    card = ModelCard(**record["card"]).fill(figures)
    sections = [
        _front_matter(card, record["files"]),
        f"# {record['name']}",
        card.summary,
        _table_of_files(folder, record["files"], card.files),
        *_ends("Input", _inputs(model), card.inputs),
        *_ends("Output", _outputs(model), card.outputs),
        *_ends_of_file(folder / preset_files.LITERT),
        "## Use",
        _use(record),
        "## How it was made",
        f"```sh\n{card.command}\n```",
        *([card.data] if card.data else []),
        f"{_listed(record['versions'])} wrote the files.",
    ]
    if card.results:
        sections += ["## How good it is", card.results]
        if figures:
            sections.append(
                f"These figures are those of `{preset_files.FIGURES}`, which "
                "the command wrote."
            )
    sections += ["## Limits", card.limits, "## Licence", f"`{card.license}`."]
    if card.attribution:
        sections.append(card.attribution)
    return "\n\n".join(sections) + "\n"


def read_json(path):
    return json.loads(pathlib.Path(path).read_text("utf-8"))


def _front_matter(card, files):
    """What the Hugging Face Hub reads, as YAML."""
    tags = [*_TAGS, *(["litert"] if preset_files.LITERT in files else [])]
    tags += [tag for tag in card.tags if tag not in tags]
    library = "keras" if preset_files.MODEL in files else "keras_compembed"
    lines = ["---", f"library_name: {library}", f"license: {card.license}"]
    if card.language:
        # In quotes: YAML takes the language `no` for a boolean.
        lines.append(f'language: "{card.language}"')
    if card.task:
        lines.append(f"pipeline_tag: {card.task}")
    lines += ["tags:", *(f'  - "{tag}"' for tag in tags), "---"]
    return "\n".join(lines)


def _table_of_files(folder, names, described):
    lines = ["| file | bytes | what |", "|---|---:|---|"]
    first = (preset_files.MODEL, preset_files.LITERT, preset_files.VECTORS)
    for name in sorted(names, key=lambda name: (name not in first, name)):
        size = os.path.getsize(folder / name)
        what = described.get(name, preset_files.CONTENTS.get(name, ""))
        if name == preset_files.LITERT:
            what += _needs(inspect_litert(folder / name))
        what = " ".join(what.split()).replace("|", r"\|")
        lines.append(f"| `{name}` | {size:,} | {what} |")
    return "\n".join(lines)


def _needs(file):
    """What a LiteRT file asks of what runs it."""
    prefix = "CUSTOM "
    ops = [op for op in file.ops if op.startswith(prefix)]
    needs = []
    if file.min_runtime:
        needs.append(f"needs LiteRT of TensorFlow {file.min_runtime} or newer")
    if ops:
        names = ", ".join(f"`{op.removeprefix(prefix)}`" for op in ops)
        runtime = "MediaPipe Tasks"
        if any(op.startswith(f"{prefix}TFText>") for op in ops):
            runtime = "tensorflow-text"
        elif f"{prefix}TFSentencepieceTokenizeOp" not in ops:
            runtime = "its runtime"
        needs.append(f"takes from {runtime} the ops {names}")
    return "".join(f"; {need}" for need in needs)


def _ends(title, tensors, meaning):
    """A paragraph on inputs or outputs, where anything is known of them."""
    words = []
    if tensors:
        words.append(", ".join(tensors) + ("." if not meaning else ":"))
    if meaning:
        words.append(meaning)
    return [f"**{title}.** {' '.join(words)}"] if words else []


def _ends_of_file(path):
    """What goes in and out of the LiteRT file, which may answer otherwise."""
    if not path.exists():
        return []
    signature = inspect_litert(path).signatures[0]
    sides = [
        ", ".join(_tensor(tensor.name, tensor) for tensor in side)
        for side in (signature.inputs, signature.outputs)
    ]
    return [f"**`{path.name}`.** In: {sides[0]}. Out: {sides[1]}."]


def _inputs(model):
    # Subclassed models do not say.
    tensors = getattr(model, "inputs", None) or ()
    return [_tensor(tensor.name, tensor) for tensor in tensors]


def _outputs(model):
    tensors = getattr(model, "outputs", None) or ()
    names = getattr(model, "output_names", None) or [None] * len(tensors)
    texts = []
    for *end, head in zip(names, tensors, list_heads(model), strict=True):
        texts.append(_tensor(*end))
        if isinstance(head, ClassHead):
            texts[-1] += f", features of {head.num_classes:,} classes, which "
            texts[-1] += "`kc.top_k_model(model, k)` answers"
    return texts


def _tensor(name, tensor):
    first, *rest = tensor.shape
    sizes = ["batch" if first is None else first]
    sizes += ["any" if size is None else size for size in rest]
    text = f"{tensor.dtype} ({', '.join(map(str, sizes))})"
    return f"`{name}`, `{text}`" if name else f"`{text}`"


def _use(record):
    name = preset = record["name"]
    where = ""
    if name not in NAMES:
        preset = f"PATH/{name}"
        where = (
            "\n\n`PATH` is the folder that holds this one; on the Hugging Face "
            "Hub it is `hf://user`."
        )
    return (
        "```python\n"
        "import keras_compembed as kc\n"
        "\n" + _lines_of_use(record["files"], preset) + "```" + where
    )


def _lines_of_use(files, preset):
    if preset_files.VECTORS in files:
        return (
            f'vectors = kc.from_preset("{preset}")\n'
            "word = vectors.index_to_key[0]\n"
            "vectors[word], vectors.most_similar(word)\n"
        )
    return f'model = kc.from_preset("{preset}")\n'


def _listed(versions):
    return ", ".join(f"{name} {version}" for name, version in versions.items())
