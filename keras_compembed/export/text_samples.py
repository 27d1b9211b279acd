"""Texts on which files are compared with Keras."""

import functools

import numpy as np

from keras_compembed.export.check import run_first
from keras_compembed.export.check import run_keras
from keras_compembed.export.file_metadata import check_text
from keras_compembed.utils.validation import require

_HARD = (
    "",
    " ",
    "Hello, world! It's 5 o'clock.",
    "\u00c9t\u00e9 na\u00efve \u201cquotes\u201d \ufb01ne \u212b",
    "\u65e5\u672c\u8a9e \u0440\u0443\u0441\u0441\u043a\u0438\u0439 "
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0e44\u0e17\u0e22",
    "\U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467 \u200b\ufeff\u00a0x",
    "\ttabs\nand  lines\r\n",
    "\u2581under \U0010ffff \u0130stanbul \u1e9e",
)
_NUM_TEXTS, _NUM_TOKENS, _LONG = 4, 12, 500
# What every model takes.
_SHORT = 10


def default_texts(vocabulary):
    """A list of texts: hard ones, and those made of tokens that are known."""
    # Pieces say by this where words begin.
    tokens = [token.replace("\u2581", " ") for token in vocabulary]
    rng = np.random.default_rng(0)
    texts = list(_HARD)
    for number in range(_NUM_TEXTS):
        places = rng.integers(len(tokens), size=_NUM_TOKENS)
        texts.append((" ", "")[number % 2].join(tokens[x] for x in places))
    texts.append(" ".join(tokens[-_NUM_TOKENS:]).title())
    texts.append(f"{tokens[-1]} {tokens[len(tokens) // 2]} " * _LONG)
    return texts


def as_texts(inputs, read_text):
    """The user's texts as an object array `(number,)`."""
    texts = np.array(inputs, object).reshape(-1)
    require(len(texts), "`sample_inputs` must hold a text.", number=0)
    for place, text in enumerate(texts):
        require(
            isinstance(text, (str, bytes)),
            "`sample_inputs` must be a list of strings for a model that takes "
            "texts.",
            text=text,
        )
        if isinstance(text, str):
            check_text("sample_inputs", text)
        texts[place] = read_text(text)
    return texts


def run_on_texts(model, split, given=None):
    """Texts, one at a time, and what a model gives for them."""
    found = []
    for text in default_texts(split.vocabulary) if given is None else given:
        texts = [text]
        while given is None and len(texts[-1]) >= _SHORT:
            texts.append(texts[-1][: len(texts[-1]) // 2])
        samples = [np.array([each], object) for each in texts]
        found.append(run_first(functools.partial(_run, model, split), samples))
    return tuple(zip(*found, strict=True))


def _run(model, split, sample):
    if split.layer(sample).shape[1]:
        return run_keras(model, sample)
    # TextVectorization makes no id at all of an empty text by itself, of which
    # there is no average. In a batch with others it is padded, as in a file.
    outputs = run_keras(model, np.array([sample[0], "x"], object))
    return {name: array[:1] for name, array in outputs.items()}
