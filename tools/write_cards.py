"""Writes the cards of `saved_models/` anew, from their records.

    python -m tools.write_cards

For when the form of cards has changed. What they say comes from `preset.json`
and `figures.json`, which stay as they are.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras_compembed as kc
from keras_compembed.presets import preset_files
from keras_compembed.presets.card_text import format_card
from keras_compembed.presets.get_folder import NAMES
from keras_compembed.utils.files import replacing


def cards():
    """Yields the path of each card and what it says."""
    for name in NAMES:
        folder = kc.presets.get_folder(name)
        card = format_card(folder, kc.from_preset(name))
        yield folder / preset_files.CARD, card


def main():
    for path, card in cards():
        with replacing(path, overwrite=True) as beside:
            with open(beside, "w", encoding="utf-8") as file:
                file.write(card)
        print(path)


if __name__ == "__main__":
    main()
