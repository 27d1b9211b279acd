"""Words and rows as they are read, a part at a time."""

import numpy as np

from keras_compembed.vectors.formats.format import Rows


class RowCollector:
    """Gathers words and their rows; of words that stand twice, the first."""

    def __init__(self, source, unit):
        self._source = source
        self._unit = unit
        self._places = {}
        self._blocks = []
        self._repeats = 0
        self._without_word = 0
        self._first_repeat = None

    def add(self, words, vectors, place):
        """Adds words and rows, the first from line or row `place`."""
        kept = []
        for row, word in enumerate(words):
            if word is None:
                self._without_word += 1
                continue
            first = self._places.setdefault(word, place + row)
            if first == place + row:
                kept.append(row)
            else:
                self._repeats += 1
                if self._first_repeat is None:
                    self._first_repeat = (word, first, place + row)
        if len(kept) < len(words):
            vectors = vectors[kept]
        self._blocks.append(vectors)

    def finish(self):
        """Returns `Rows`."""
        remarks = []
        if self._repeats:
            word, first, second = self._first_repeat
            remarks.append(
                f"{self._source} should hold each word once. The first row of "
                f"a word is taken, and {self._repeats} more are left out, such "
                f"as that of {word!r} in {self._unit} {second} (first in "
                f"{self._unit} {first})."
            )
        if self._without_word:
            remarks.append(
                f"{self._without_word} rows of {self._source} belong to no "
                "word and are left out."
            )
        if not self._places:
            raise ValueError(
                f"{self._source} must hold words. Received: no word for any "
                "of the rows that were read."
            )
        # Blocks are freed as they are copied: there is never a second table.
        vectors = np.empty(
            (len(self._places), self._blocks[0].shape[1]), "float32"
        )
        end = len(vectors)
        while self._blocks:
            block = self._blocks.pop()
            vectors[end - len(block) : end] = block
            end -= len(block)
        return Rows(list(self._places), vectors, " ".join(remarks))
