"""Tasks with many classes: job titles of O*NET, and classes made up."""

import collections
import dataclasses
import re
import zlib

import numpy as np

from examples.job_titles import read_titles

# Id of places in a bag that hold nothing.
PAD = 0

_WORD = re.compile(r"[a-z0-9']+")
_PARTS = ("train", "valid", "test")


@dataclasses.dataclass(frozen=True)
class ClassTask:
    """Examples of many classes, in three parts."""

    names: list
    train: tuple
    valid: tuple
    test: tuple
    input_dim: int | None = None

    @property
    def num_classes(self):
        return len(self.names)

    @property
    def counts(self):
        """int64 array `(classes,)`: labels of the training part."""
        return np.bincount(self.train[1], minlength=self.num_classes)


def job_titles(folder, buckets=1 << 15, length=64, seed=0):
    """Job titles and the occupations that they name."""
    names, parts = job_title_texts(folder, seed)
    values = {
        part: (
            bags([text for text, _ in rows], buckets, length),
            np.array([k for _, k in rows], "int32"),
        )
        for part, rows in parts.items()
    }
    return ClassTask(names, **values, input_dim=buckets)


def job_title_texts(folder, seed=0):
    """Names of occupations, and lists of pairs `(title, class)` by part."""
    names, pairs = read_titles(folder)
    titles = collections.defaultdict(dict)
    for title, place in pairs:
        # As a set, in order.
        titles[title][place] = None
    named = {name.lower() for name in names}
    free = sorted(title for title in titles if title not in named)
    order = np.random.default_rng(seed).permutation(len(free))
    held = len(free) // 10
    parts = {"train": [(name.lower(), k) for k, name in enumerate(names)]}
    parts["train"] += [
        (title, k)
        for title in titles
        if title in named
        for k in titles[title]
        if names[k].lower() != title
    ]
    for part, places in (
        ("valid", order[:held]),
        ("test", order[held : 2 * held]),
        ("train", order[2 * held :]),
    ):
        parts.setdefault(part, []).extend(
            (free[place], k) for place in places for k in titles[free[place]]
        )
    return names, parts


def words_of(text):
    """Words of a text, in lower case."""
    return _WORD.findall(text.lower())


def bags(texts, buckets, length):
    """Words, pairs of words, and 3 to 5 letters of texts, as hashed ids."""
    table = np.full((len(texts), length), PAD, "int32")
    for row, text in zip(table, texts, strict=True):
        words = words_of(text)
        grams = [f"{a} {b}" for a, b in zip(words, words[1:], strict=False)]
        for size in (3, 4, 5):
            for word in words:
                word = f"<{word}>"
                grams += [
                    word[start : start + size]
                    for start in range(len(word) - size + 1)
                ]
        features = [*(f"<{word}> " for word in words), *grams]
        # Not Python's own hash, which differs from run to run.
        ids = [
            1 + zlib.crc32(feature.encode()) % (buckets - 1)
            for feature in dict.fromkeys(features)
        ][:length]
        row[: len(ids)] = ids
    return table


def synthetic_classes(num_classes, examples, width=64, branching=10, seed=0):
    """Classes in clusters of clusters, with labels as frequent as words."""
    rng = np.random.default_rng(seed)
    sizes = [1]
    while sizes[-1] * branching < num_classes:
        sizes.append(sizes[-1] * branching)
    centres = np.zeros((num_classes, width), "float32")
    scale = 1.0
    for size in reversed(sizes):
        clusters = -(-num_classes // size)
        offsets = rng.standard_normal((clusters, width), "float32")
        offsets *= scale
        centres += offsets[np.arange(num_classes) // size]
        last, scale = scale, scale * 0.7
    shares = np.arange(1, num_classes + 1) ** -1.0
    cumulative = np.cumsum(shares) / shares.sum()
    ranked = rng.permutation(num_classes)
    parts = {}
    for part in _PARTS:
        count = examples if part == "train" else max(1, examples // 10)
        # Rounding may leave the last sum a little below 1.
        rank = np.searchsorted(cumulative, rng.random(count), side="right")
        labels = ranked[np.minimum(rank, num_classes - 1)]
        inputs = rng.standard_normal((count, width), "float32")
        inputs *= 2.5 * last
        inputs += centres[labels]
        parts[part] = inputs, labels.astype("int32")
    return ClassTask([f"class {k}" for k in range(num_classes)], **parts)
