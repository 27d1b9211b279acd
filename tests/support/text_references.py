"""What tokenizers must find, in plain Python, and hard texts to try."""

import random
import re

import numpy as np

# Of `keras.layers.TextVectorization`.
PUNCTUATION = "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'"


def word_ids(text, vocabulary, standardize):
    """Ids of the words of a text, 1 for those not in the vocabulary."""
    standardize = standardize or ""
    if "lower" in standardize:
        text = re.sub("[A-Z]", lambda found: found[0].lower(), text)
    if "strip" in standardize:
        text = re.sub(f"[{re.escape(PUNCTUATION)}]", "", text)
    if "split" in standardize:
        text = re.sub(f"([{re.escape(PUNCTUATION)}])", r" \1 ", text)
    places = {word: place for place, word in enumerate(vocabulary, start=2)}
    return [places.get(w, 1) for w in re.split(r"[ \t\n\r\v\f]+", text) if w]


class PieceReference:
    """Ids of the pieces of the highest score in the bytes of a text.

    Args:
        proto: `ModelProto` of kind unigram with the usual treatment of spaces.
        rules: Dict from strings to what is read in their place.
    """

    def __init__(self, proto, rules):
        self.rules = {old.encode(): new.encode() for old, new in rules.items()}
        self.pieces = {
            piece.piece.encode(): (np.float32(piece.score), place)
            for place, piece in enumerate(proto.pieces)
            if piece.type in (1, 4)
        }
        lowest = min(score for score, _ in self.pieces.values())
        self.penalty = np.float32(min(lowest, 0) - 10)
        self.unknown = proto.trainer_spec.unk_id

    def __call__(self, text):
        read = self._normalize(text)
        longest = max(map(len, self.pieces))
        best = [(np.float32(0), None, 0)] + [None] * len(read)
        for start in range(len(read)):
            score, code, before = best[start]
            # Unknown bytes side by side are one.
            origin = before if code == self.unknown else start
            found = [(1, self.penalty, self.unknown, origin)]
            for size in range(1, min(longest, len(read) - start) + 1):
                piece = read[start : start + size]
                if piece in self.pieces:
                    found.append((size, *self.pieces[piece], start))
            for size, added, place, origin in found:
                end = start + size
                if best[end] is None or best[end][0] < score + added:
                    best[end] = score + added, place, origin
        ids, end = [], len(read)
        while end > 0:
            _, place, end = best[end]
            ids.append(place)
        return ids[::-1]

    def _normalize(self, text):
        text, read = b" " + text if text else b"", b""
        longest = max(map(len, self.rules))
        while text:
            sizes = range(min(longest, len(text)), 0, -1)
            size = next((n for n in sizes if text[:n] in self.rules), 0)
            read += self.rules[text[:size]] if size else text[:1]
            text = text[size or 1 :]
        read = re.sub(rb"[ \t\r\n]{2,}", b" ", read)
        read = re.sub(rb"[ \t\r\n]\Z", b"", read)
        return re.sub(rb"[ \t\r\n]", "\u2581".encode(), read)


def hard_texts(words, count, seed=0, noise=()):
    """Strings of words, spaces, marks and signs of all kinds.

    Args:
        words: List of strings.
        count: Integer.
        seed: Integer.
        noise: List of strings to be among them.
    """
    signs = [
        *"abcABC019 .,!'\"-_=\t\n\r\v\f\u2581\u0130\u0131\u00e9\u00c9\u00df",
        *"\u2019\u201c\u00a0\u2003\u3000\u200d\u0301\ufb01\uff21\u65e5\u0439",
        *"\U0001f600\U0001d400\u1e9e\ufeff\u0000\u10a0\uac00\u1100",
        "e\u0301",
        "  ",
        "====",
    ]
    choose = random.Random(seed)
    texts = ["", " ", "\t\n", "!", "\u2581", " \u2581 "]
    while len(texts) < count:
        parts = [
            choose.choice(choose.choice([words, words, signs, noise or signs]))
            + choose.choice(["", "", " ", ".", "\u2581", "\u2019"])
            for _ in range(choose.randint(1, 12))
        ]
        texts.append("".join(parts))
    return texts


def with_wrong_bytes(texts, seed=0):
    """Bytes of texts, some of them changed, so that they are no UTF-8."""
    choose = random.Random(seed)
    found = []
    for text in texts:
        content = bytearray(text.encode())
        for _ in range(len(content) // 8):
            content[choose.randrange(len(content))] = choose.randrange(256)
        found.append(bytes(content))
    return found
