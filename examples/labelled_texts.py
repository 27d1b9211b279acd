"""Labelled texts: docstrings, downloaded datasets, or your files."""

import ast
import collections
import csv
import dataclasses
import hashlib
import importlib.util
import json
import lzma
import pathlib
import sysconfig
import tarfile
import warnings

import keras
import numpy as np

IMDB_URL = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
IMDB_MD5 = "7c2ac02c03563afcf9b574c7e56c153a"
NEWSGROUPS_URL = "https://ndownloader.figshare.com/files/5975967"
NEWSGROUPS_SHA256 = (
    "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610"
)
DOCUMENTED = ("numpy", "keras", "tensorflow")
LEAST_WORDS = 8
LEAST_DOCSTRINGS = 20


@dataclasses.dataclass
class TextDataset:
    """Labelled texts, split into training, validation and test."""

    classes: list
    train: tuple
    validation: tuple
    test: tuple

    def digest(self):
        """A hash of texts, labels and split, 12 digits."""
        content = [self.classes]
        for texts, labels in (self.train, self.validation, self.test):
            content.append([texts, labels.tolist()])
        text = json.dumps(content).encode()
        return hashlib.sha256(text).hexdigest()[:12]

    def as_ids(self, max_tokens, length):
        """The vocabulary of training texts, and all parts as word ids."""
        vectorizer = keras.layers.TextVectorization(
            max_tokens=max_tokens, output_sequence_length=length
        )
        vectorizer.adapt(np.array(self.train[0], dtype=object))

        def convert(part):
            texts, labels = part
            ids = [
                vectorizer(np.array(texts[start : start + 1024], dtype=object))
                for start in range(0, len(texts), 1024)
            ]
            return np.concatenate(ids).astype("int32"), labels

        parts = map(convert, (self.train, self.validation, self.test))
        return vectorizer.get_vocabulary(), TextDataset(self.classes, *parts)


def load(name, folder=None, seed=0, limit=None):
    """Loads a dataset."""
    if name == "docstrings":
        parts = [docstrings()]
    elif name == "imdb":
        parts = imdb(folder)
    elif name == "20newsgroups":
        parts = newsgroups(folder)
    elif pathlib.Path(name).suffix in (".csv", ".tsv"):
        parts = [read_table(name)]
    else:
        raise ValueError(
            "`data` must be 'docstrings', 'imdb', '20newsgroups' or the path "
            f"of a .csv or .tsv file. Received: data={name!r}."
        )
    return split(parts, seed, limit)


def intents(folder):
    """CLINC150: requests to an assistant, with 150 intents."""
    path = folder / "clinc150" / "data_full.json.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        data = json.load(file)
    names = sorted({name for _, name in data["train"]})
    places = {name: place for place, name in enumerate(names)}
    parts = (
        (
            [text for text, _ in data[key]],
            np.array([places[name] for _, name in data[key]], "int32"),
        )
        for key in ("train", "val", "test")
    )
    return TextDataset(names, *parts)


def split(parts, seed, limit=None):
    """Makes a `TextDataset` of `[all]` or `[train, test]` lists of pairs."""
    counts = collections.Counter(label for label, _ in parts[0])
    classes = sorted(label for label, _ in counts.most_common(limit))
    places = {label: place for place, label in enumerate(classes)}
    rng = np.random.default_rng(seed)
    shuffled = []
    for part in parts:
        part = [(label, text) for label, text in part if label in places]
        shuffled.append([part[i] for i in rng.permutation(len(part))])
    train = shuffled[0]
    if len(parts) == 1:
        tenth = max(1, len(train) * 15 // 100)
        test, train = train[:tenth], train[tenth:]
    else:
        test = shuffled[1]
    held = max(1, len(train) // 10)
    validation, train = train[:held], train[held:]

    def columns(rows):
        texts = [text for _, text in rows]
        labels = [places[label] for label, _ in rows]
        return texts, np.array(labels, dtype="int32")

    return TextDataset(
        classes, columns(train), columns(validation), columns(test)
    )


def generated(num_texts, num_classes, num_words):
    """`(label, text)` pairs; words depend on the class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(num_classes, size=num_texts)
    words = rng.integers(num_words, size=(num_texts, 12))
    ids = labels[:, None] + num_classes * words
    return [
        (f"class{label}", " ".join(f"word{word}" for word in row))
        for label, row in zip(labels, ids, strict=True)
    ]


def docstrings():
    """`(module, docstring)` pairs of the installed packages."""
    found = {}
    files = list(_source_files())
    progress = keras.utils.Progbar(len(files), unit_name="file")
    for count, (module, path) in enumerate(files, start=1):
        for text in _docstrings_of(path):
            found.setdefault(text, module)
        if count % 100 == 0 or count == len(files):
            progress.update(count)
    counts = collections.Counter(found.values())
    return [
        (module, text)
        for text, module in found.items()
        if counts[module] >= LEAST_DOCSTRINGS
    ]


def _source_files():
    roots = [("", pathlib.Path(sysconfig.get_paths()["stdlib"]))]
    for name in DOCUMENTED:
        origin = importlib.util.find_spec(name).origin
        roots.append((name, pathlib.Path(origin).parent))
    for name, root in roots:
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if {"site-packages", "test", "tests"}.isdisjoint(parts):
                parts = [name, *parts]
                yield ".".join(p for p in parts if p and p != "__init__"), path


def _docstrings_of(path):
    documented = (
        ast.Module,
        ast.ClassDef,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            return
    for node in ast.walk(tree):
        if isinstance(node, documented):
            text = ast.get_docstring(node)
            if text and len(text.split()) >= LEAST_WORDS:
                yield text


def imdb(folder=None):
    """Large Movie Review Dataset (Maas et al., 2011): train and test."""

    def read_compact(path):
        return [(row[0], row[3]) for row in _rows(path, "\t")]

    archive = ("aclImdb_v1.tar.gz", IMDB_URL, IMDB_MD5)
    return _published(folder, archive, _imdb_member, "tsv.xz", read_compact)


def newsgroups(folder=None):
    """20 Newsgroups, split by date: train and test."""

    def read_compact(path):
        rows = map(json.loads, _lines(path))
        return [(row["label"], row["text"]) for row in rows]

    archive = ("20news-bydate.tar.gz", NEWSGROUPS_URL, NEWSGROUPS_SHA256)
    return _published(
        folder, archive, _newsgroups_member, "jsonl.xz", read_compact
    )


def _published(folder, archive, member_of, suffix, read_compact):
    """`[train, test]`: downloaded, or from a folder in either layout."""
    if folder is None:
        name, url, file_hash = archive
        path = keras.utils.get_file(name, url, file_hash=file_hash)
        return _from_archive(path, member_of)
    folder = pathlib.Path(folder)
    if (folder / f"train.{suffix}").exists():
        return [
            read_compact(folder / f"{part}.{suffix}")
            for part in ("train", "test")
        ]
    return _from_folder(folder, member_of)


def _imdb_member(parts):
    """`(split, label)` of `.../train/pos/0_9.txt`, or None."""
    if len(parts) >= 3 and parts[-2] in ("pos", "neg"):
        return parts[-3], parts[-2]
    return None


def _newsgroups_member(parts):
    """`(split, label)` of `.../20news-bydate-train/sci.med/5913`, or None."""
    if len(parts) >= 3 and parts[-3].startswith("20news-bydate-"):
        return parts[-3].removeprefix("20news-bydate-"), parts[-2]
    return None


def _from_archive(archive, member_of):
    parts = {"train": [], "test": []}
    with tarfile.open(archive) as tar:
        for member in tar:
            place = member_of(pathlib.PurePosixPath(member.name).parts)
            if member.isfile() and place:
                text = tar.extractfile(member).read()
                parts[place[0]].append((place[1], _decode(text)))
    return [parts["train"], parts["test"]]


def _from_folder(folder, member_of):
    parts = {"train": [], "test": []}
    for path in sorted(folder.rglob("*")):
        place = member_of(path.parts)
        if path.is_file() and place:
            parts[place[0]].append((place[1], _decode(path.read_bytes())))
    if not parts["train"] or not parts["test"]:
        raise FileNotFoundError(
            f"The folder must contain the dataset. Received: {str(folder)!r}."
        )
    return [parts["train"], parts["test"]]


def read_table(path, label_column="label", text_column="text"):
    """`(label, text)` rows of a `.csv` or `.tsv` file with a header."""
    delimiter = "\t" if str(path).endswith(".tsv") else ","
    rows = iter(_rows(path, delimiter))
    header = next(rows, [])
    # Excel writes a byte order mark first.
    header = [name.removeprefix("\ufeff") for name in header]
    if not {label_column, text_column} <= set(header):
        raise ValueError(
            f"{path} must have a header with the columns {label_column!r} and "
            f"{text_column!r}. Received: {header}."
        )
    label, text = header.index(label_column), header.index(text_column)
    pairs = []
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ValueError(
                f"Row {number} of {path} must have {len(header)} fields. "
                f"Received: {len(row)}."
            )
        pairs.append((row[label], row[text]))
    if len(pairs) < 10:
        raise ValueError(
            f"{path} must have at least 10 rows. Received: {len(pairs)}."
        )
    return pairs


def _rows(path, delimiter):
    # Reviews have unpaired quotes, which matter in CSV only.
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    yield from csv.reader(_lines(path), delimiter=delimiter, quoting=quoting)


def _lines(path):
    opened = lzma.open if str(path).endswith(".xz") else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        yield from file


def _decode(text):
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        return text.decode("latin-1")
