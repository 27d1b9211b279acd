"""Writes the cards of `saved_models/` again, from their records.

    python -m tools.write_cards

Run it after a change to the form of cards. Their texts and figures come from
`preset.json` and `figures.json`, which it does not change.
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
