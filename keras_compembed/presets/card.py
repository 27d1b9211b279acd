"""The card of a preset, as Markdown."""

import json
import os

from keras_compembed.presets.from_preset import NAMES
from keras_compembed.presets.from_preset import VECTORS
from keras_compembed.utils.validation import require

_REQUIRED = {"summary", "license", "command", "limits"}
_OPTIONAL = {"data", "results", "attribution", "inputs", "outputs", "files"}
_OPTIONAL |= {"task", "language", "tags"}
# Texts whose numbers are filled in.
_FILLED = ("summary", "data", "results", "limits", "attribution")


def format_card(folder, record, figures):
    """The card of a folder whose other files are written."""
    card = {name: x for name, x in record["card"].items() if x is not None}
    require(
        set(card) >= _REQUIRED and set(card) <= _REQUIRED | _OPTIONAL,
        f"`card` must have {sorted(_REQUIRED)}, and may have "
        f"{sorted(_OPTIONAL)}.",
        card=list(card),
    )
    for name in _FILLED:
        card[name] = card.get(name, "").format_map(figures)
    table = ["| file | bytes | what |", "|---|---:|---|"]
    for name in record["files"]:
        what = " ".join(card.get("files", {}).get(name, "").split())
        size = os.path.getsize(folder / name)
        table.append(f"| `{name}` | {size:,} | {what} |")
    preset = record["name"]
    preset = preset if preset in NAMES else f"PATH/{preset}"
    versions = [f"{name} {x}" for name, x in record["versions"].items()]
    sections = {
        "Files": "\n".join(table),
        "Input": card.get("inputs"),
        "Output": card.get("outputs"),
        "Use": "```python\nimport keras_compembed as kc\n\n"
        f'loaded = kc.from_preset("{preset}")\n```',
        "How it was made": f"```sh\n{card['command']}\n```\n\n"
        f"{card['data']}\n\n{', '.join(versions)} wrote the files.",
        "Results": card["results"],
        "Limits": card["limits"],
        "Licence": f"`{card['license']}`. {card['attribution']}",
    }
    text = f"{_head(card, record)}\n\n# {record['name']}\n\n{card['summary']}\n"
    for title, content in sections.items():
        text += f"\n## {title}\n\n{content.strip()}\n" if content else ""
    return text


def _head(card, record):
    """What the Hugging Face Hub reads, as YAML."""
    is_keras = VECTORS not in record["files"]
    tags = ["litert"] if "model.tflite" in record["files"] else []
    head = {
        "library_name": "keras" if is_keras else "keras_compembed",
        "license": card["license"],
        "language": card.get("language"),
        "pipeline_tag": card.get("task"),
        "tags": ["keras_compembed", *tags, *card.get("tags", ())],
    }
    # Quoted by JSON: YAML takes the language `no` for a boolean.
    lines = [f"{name}: {json.dumps(x)}" for name, x in head.items() if x]
    return "\n".join(["---", *lines, "---"])
