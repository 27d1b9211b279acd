"""Pairs of related words from the files of WordNet."""

import collections
import itertools
import pathlib
import zipfile

import numpy as np

from keras_compembed.utils.validation import require

_PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
_HYPERNYM, _HYPONYM, _ANTONYM = "@", "~", "!"
# Endings of inflected forms and of their possible base forms, from the manual
# page of WordNet's morphological processing.
_ENDINGS = {
    "n": "s: ses:s ves:f xes:x zes:z ches:ch shes:sh men:man ies:y",
    "v": "s: ies:y es:e es: ed:e ed: ing:e ing:",
    "a": "er: est: er:e est:e",
    "r": "",
}


def wordnet_pairs(vocabulary, folder):
    """Pairs of words that are directly related in WordNet."""
    for word in vocabulary:
        rule = "`vocabulary` must have strings only."
        require(isinstance(word, str), rule, word=word)
    folder = _find_database(folder)
    synsets = _read_synsets(folder)
    lemmas = collections.defaultdict(set)
    for (part, _), (words, _) in synsets.items():
        lemmas[part].update(words)
    # Ids of words by part of speech and lemma: exact and inflected forms.
    exact = collections.defaultdict(tuple)
    found = collections.defaultdict(tuple)
    for part, name in _PARTS.items():
        exceptions = _read_exceptions(folder / f"{name}.exc")
        for place, word in enumerate(vocabulary):
            word = word.lower().replace(" ", "_")
            exact[part, word] += (place,)
            forms = {word, *_base_forms(word, part, exceptions)}
            for form in forms & lemmas[part]:
                found[part, form] += (place,)
    pairs = []
    for (part, _), (words, pointers) in synsets.items():
        here = [found.get((part, word), ()) for word in words]
        every = sum(here, ())
        if not every:
            continue
        there = [exact.get((part, word), ()) for word in words]
        pairs += itertools.product(every, sum(there, ()))
        for symbol, target, source_word, target_word in pointers:
            if symbol not in (_HYPERNYM, _HYPONYM, _ANTONYM):
                continue
            others, _ = synsets[target]
            if target_word:
                others = others[target_word - 1 : target_word]
            there = [exact.get((target[0], word), ()) for word in others]
            own = here[source_word - 1] if source_word else every
            pairs += itertools.product(own, sum(there, ()))
    return np.asarray(pairs, "int64").reshape(-1, 2)


def _find_database(folder):
    """The folder with the file data.noun, possibly in a zip file."""
    path = pathlib.Path(folder)
    if path.is_file() and zipfile.is_zipfile(path):
        names = zipfile.ZipFile(path).namelist()
        inside = [name for name in names if name.endswith("data.noun")]
        path = zipfile.Path(path, inside[0][:-9] if inside else "")
    names = [f"data.{name}" for name in _PARTS.values()]
    missing = [name for name in names if not (path / name).is_file()]
    require(
        not missing,
        "`folder` must be a folder of WordNet's database files, or a zip file "
        "of that folder.",
        folder=str(folder),
        missing=missing,
    )
    return path


def _read_synsets(folder):
    """Words and pointers of synsets, by part of speech and offset."""
    synsets = {}
    for part, name in _PARTS.items():
        text = (folder / f"data.{name}").read_text(encoding="utf-8")
        for line in text.splitlines():
            # The licence comes first.
            if not line.startswith("  "):
                offset, *synset = _parse_line(line)
                synsets[part, offset] = synset
    return synsets


def _parse_line(line):
    """Offset, words, and pointers: symbol, target, and places of words."""
    fields = line.partition("|")[0].split()
    start = 4 + 2 * int(fields[3], 16)
    # Adjectives may have a position mark such as "(p)".
    words = [word.partition("(")[0].lower() for word in fields[4:start:2]]
    pointers = []
    for place in range(start + 1, start + 1 + 4 * int(fields[start]), 4):
        symbol, offset, part, numbers = fields[place : place + 4]
        # Satellites of adjectives are in the same file as adjectives.
        target = "a" if part == "s" else part, int(offset)
        places = int(numbers[:2], 16), int(numbers[2:], 16)
        pointers.append((symbol, target, *places))
    return int(fields[0]), words, pointers


def _base_forms(word, part, exceptions):
    """Possible base forms of an inflected word."""
    if word in exceptions:
        return exceptions[word]
    pairs = [pair.split(":") for pair in _ENDINGS[part].split()]
    return {
        word[: -len(ending)] + base
        for ending, base in pairs
        if word.endswith(ending) and len(word) > len(ending)
    }


def _read_exceptions(path):
    """Dict of lists: irregular forms and their base forms."""
    exceptions = collections.defaultdict(list)
    lines = path.read_text(encoding="utf-8") if path.is_file() else ""
    for line in lines.splitlines():
        inflected, *bases = line.split()
        exceptions[inflected] += bases
    return exceptions
