"""What tokenizers must find, in plain Python, and hard texts to try."""

import random
import re

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


def hard_texts(words, count, seed=0, noise=()):
    """Strings of words, noise, spaces, marks and signs of all kinds."""
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
