"""Writes the cards of `saved_models/` anew, from their records.

    python -m tools.write_cards

For when the form of cards has changed. What they say comes from `preset.json`
and `figures.json`, which stay as they are.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras_compembed as kc
from keras_compembed.presets.card import format_card
from keras_compembed.presets.preset_folder import CARD
from keras_compembed.presets.preset_folder import NAMES


def cards():
    """Yields the path of each card and what it says."""
    for name in NAMES:
        folder = kc.preset_folder(name)
        yield folder / CARD, format_card(folder, kc.from_preset(name))


def main():
    for path, card in cards():
        path.write_text(card, "utf-8")
        print(path)


if __name__ == "__main__":
    main()
