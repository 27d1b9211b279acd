"""Writes the cards of `saved_models/` anew, from their records.

    python -m tools.write_cards

For when the form of cards has changed. What they say comes from `preset.json`
and `figures.json`, which stay as they are.
"""

import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from keras_compembed.presets.from_preset import NAMES
from keras_compembed.presets.from_preset import SAVED_MODELS
from keras_compembed.presets.save_preset import format_card


def cards():
    """Yields the path of each card and what it says."""
    for name in NAMES:
        folder = SAVED_MODELS / name
        record, figures = (
            json.loads((folder / file).read_text("utf-8"))
            for file in ("preset.json", "figures.json")
        )
        yield folder / "README.md", format_card(folder, record, figures)


def main():
    for path, card in cards():
        path.write_text(card, "utf-8")
        print(path)


if __name__ == "__main__":
    main()
