"""Pairs of related words from the files of WordNet."""

import collections
import dataclasses
import itertools
import os
import pathlib
import zipfile

import numpy as np

_PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
_HYPERNYM, _HYPONYM, _ANTONYM = "@", "~", "!"
# Endings of inflected forms and of base forms that they may have, from the
# manual page of WordNet's morphological processing.
_ENDINGS = {
    "n": (
        ("s", ""),
        ("ses", "s"),
        ("ves", "f"),
        ("xes", "x"),
        ("zes", "z"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("men", "man"),
        ("ies", "y"),
    ),
    "v": (
        ("s", ""),
        ("ies", "y"),
        ("es", "e"),
        ("es", ""),
        ("ed", "e"),
        ("ed", ""),
        ("ing", "e"),
        ("ing", ""),
    ),
    "a": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "r": (),
}


@dataclasses.dataclass(frozen=True)
class Synset:
    """One meaning."""

    words: tuple
    pointers: tuple


def wordnet_pairs(vocabulary, folder, lemmatize=True):
    """Pairs of words that WordNet relates at once."""
    for word in vocabulary:
        if not isinstance(word, str):
            raise ValueError(
                "`vocabulary` must hold strings. "
                f"Received: {word!r} (of type {type(word).__name__})."
            )
    folder = find_database(folder or find_installed())
    synsets = read_synsets(folder)
    found = _ids_of_lemmas(vocabulary, synsets, folder, lemmatize)
    exact = _ids_of_lemmas(vocabulary, synsets, folder, lemmatize=False)
    pairs = []
    for (part, _), synset in synsets.items():
        here = [found.get((part, word), ()) for word in synset.words]
        every = sum(here, ())
        if not every:
            continue
        there = [exact.get((part, word), ()) for word in synset.words]
        pairs += itertools.product(every, sum(there, ()))
        for symbol, other_part, offset, source, target in synset.pointers:
            if symbol not in (_HYPERNYM, _HYPONYM, _ANTONYM):
                continue
            if (other_part, offset) not in synsets:
                raise ValueError(
                    "`folder` must hold whole files of one version of "
                    f"WordNet. Received: a pointer from {synset.words[0]!r} "
                    f"to the missing {other_part} {offset:08d}."
                )
            words = synsets[other_part, offset].words
            if target:
                words = words[target - 1 : target]
            there = [exact.get((other_part, word), ()) for word in words]
            pairs += itertools.product(
                here[source - 1] if source else every, sum(there, ())
            )
    return np.asarray(pairs, "int64").reshape(-1, 2)


def find_installed():
    """Where WordNet is on this machine."""
    places = []
    if os.environ.get("WNSEARCHDIR"):
        places.append(pathlib.Path(os.environ["WNSEARCHDIR"]))
    nltk = os.environ.get("NLTK_DATA", "").split(os.pathsep)
    nltk += [pathlib.Path.home() / "nltk_data", "/usr/share/nltk_data"]
    for folder in filter(None, nltk):
        corpora = pathlib.Path(folder) / "corpora"
        places += [corpora / "wordnet", corpora / "wordnet.zip"]
    places.append(pathlib.Path("/usr/share/wordnet"))
    for place in places:
        if place.is_file() or (place / "data.noun").is_file():
            return place
    raise ValueError(
        "`folder` must be given where WordNet is not in a usual place: a "
        "folder of its database files, or a zip file of it, as "
        "`nltk.download('wordnet')` fetches. Looked in: "
        f"{', '.join(map(str, places))}."
    )


def find_database(folder):
    """The folder that has the file data.noun, in a zip file perhaps."""
    path = pathlib.Path(folder)
    if path.is_file() and zipfile.is_zipfile(path):
        names = zipfile.ZipFile(path).namelist()
        inside = [name for name in names if name.endswith("data.noun")]
        path = zipfile.Path(path, inside[0][:-9] if inside else "")
    missing = [
        f"data.{name}"
        for name in _PARTS.values()
        if not (path / f"data.{name}").is_file()
    ]
    if missing:
        raise ValueError(
            "`folder` must be a folder of WordNet's database files, or a zip "
            f"file of it. Received: {folder}, without {', '.join(missing)}."
        )
    return path


def read_synsets(folder):
    """Reads the data files."""
    synsets = {}
    for part, name in _PARTS.items():
        text = (folder / f"data.{name}").read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            # The licence comes first.
            if line.startswith("  ") or not line:
                continue
            try:
                offset, synset = _parse_line(line)
            except (ValueError, IndexError) as error:
                raise ValueError(
                    f"Line {number} of data.{name} in `folder` is not a line "
                    f"of WordNet's. Received: {line[:80]!r}."
                ) from error
            synsets[part, offset] = synset
    return synsets


def _parse_line(line):
    fields = line.partition("|")[0].split()
    num_words = int(fields[3], 16)
    words = fields[4 : 4 + 2 * num_words : 2]
    start = 4 + 2 * num_words
    pointers = []
    for place in range(start + 1, start + 1 + 4 * int(fields[start]), 4):
        symbol, offset, part, numbers = fields[place : place + 4]
        # Satellites of adjectives are in the same file as adjectives.
        part = "a" if part == "s" else part
        source, target = int(numbers[:2], 16), int(numbers[2:], 16)
        pointers.append((symbol, part, int(offset), source, target))
    # Adjectives may have a mark like "(p)" for where they stand.
    words = tuple(word.partition("(")[0].lower() for word in words)
    return int(fields[0]), Synset(words, tuple(pointers))


def _ids_of_lemmas(vocabulary, synsets, folder, lemmatize):
    """Dict of tuples of ids, by part of speech and lemma."""
    lemmas = collections.defaultdict(set)
    for (part, _), synset in synsets.items():
        lemmas[part].update(synset.words)
    ids = collections.defaultdict(tuple)
    for part, name in _PARTS.items():
        exceptions = {}
        if lemmatize:
            exceptions = _read_exceptions(folder / f"{name}.exc")
        for place, word in enumerate(vocabulary):
            word = word.lower().replace(" ", "_")
            forms = {word}
            if lemmatize:
                forms |= _base_forms(word, part, exceptions)
            for form in forms & lemmas[part]:
                ids[part, form] += (place,)
    return ids


def _base_forms(word, part, exceptions):
    if word in exceptions:
        return exceptions[word]
    return {
        word[: -len(ending)] + base
        for ending, base in _ENDINGS[part]
        if word.endswith(ending) and len(word) > len(ending)
    }


def _read_exceptions(path):
    """Dict of sets: irregular forms and their base forms."""
    if not path.is_file():
        return {}
    exceptions = collections.defaultdict(set)
    for line in path.read_text(encoding="utf-8").splitlines():
        inflected, *bases = line.split()
        exceptions[inflected].update(bases)
    return exceptions
