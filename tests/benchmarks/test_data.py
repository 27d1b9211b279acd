"""Readers of data sets, on small files of the same form."""

import csv
import functools
import io
import json
import lzma
import tarfile

import keras
import numpy as np
import pytest
from benchmark_files import write_sentences

from benchmarks.data import class_tasks as tasks
from benchmarks.data import labelled_texts
from benchmarks.data import links
from benchmarks.data import text_ids
from benchmarks.data import vectors
from benchmarks.data import visits
from benchmarks.data import words

REVIEWS = [("pos", 'It\'s "great"'), ("neg", "caf\u00e9 awful")] * 10


def write_xz(path, text):
    path.parent.mkdir(exist_ok=True)
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.write(text)


def write_tar(path, members):
    """An archive of pairs of names and bytes."""
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:xz" if path.suffix == ".xz" else "w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def parts_of(data):
    return data.train, data.validation, data.test


def texts_of(data):
    return sorted(text for part in parts_of(data) for text in part[0])


def rows_of(task, part):
    inputs, labels = getattr(task, part)
    return {
        (row.tobytes(), int(k)) for row, k in zip(inputs, labels, strict=True)
    }


def write_titles(folder):
    """40 occupations of 5 titles of their own, and 20 titles of two."""
    names = [f"Makers of {chr(97 + k % 26)}{k}" for k in range(40)]
    write_xz(
        folder / "onet_titles" / "Occupation_Data.txt.xz",
        "O*NET-SOC Code\tTitle\tDescription\n"
        + "".join(f"{k}\t{name}\tThey make.\n" for k, name in enumerate(names)),
    )
    rows = [(k, f'Maker "{i}" of {k}') for k in range(40) for i in range(5)]
    rows += [(k + i, f"Both {k}") for k in range(20) for i in (0, 1)]
    # Twice, in other letters, and the name of another occupation.
    rows += [(7, 'MAKER "1" of 7'), (3, names[4].upper())]
    write_xz(
        folder / "onet_titles" / "Alternate_Titles.txt.xz",
        "O*NET-SOC Code\tAlternate Title\tShort Title\tSource(s)\n"
        + "".join(f"{k}\t{title}\tn/a\t08\n" for k, title in rows),
    )


def test_job_titles(tmp_path):
    write_titles(tmp_path)
    task = tasks.job_titles(tmp_path, buckets=5000)
    assert task.num_classes == 40 and task.names[1] == "Makers of b1"
    assert task.input_dim == 5000
    parts = {p: rows_of(task, p) for p in ("train", "valid", "test")}
    # 220 titles are free of names, 20 of them twice; none is lost.
    assert sum(map(len, parts.values())) == 40 + 1 + 200 + 2 * 20
    for name, rows in parts.items():
        assert len(getattr(task, name)[1]) == len(rows)
    for name in ("valid", "test"):
        assert len({row for row, _ in parts[name]}) == 22
    assert (task.counts > 0).all()
    named = tasks.bags([task.names[4]], 5000, 64)[0].tobytes()
    assert {(named, 3), (named, 4)} <= parts["train"]
    # A title is in one part.
    texts = [{row for row, _ in rows} for rows in parts.values()]
    assert len(set.union(*texts)) == sum(map(len, texts))
    again = tasks.job_titles(tmp_path, buckets=5000)
    np.testing.assert_array_equal(again.test[0], task.test[0])
    other = tasks.job_titles(tmp_path, buckets=5000, seed=1)
    assert rows_of(other, "test") != parts["test"]


def test_intents(tmp_path):
    data = {
        part: [[f"please {name} {i}", name] for name in names for i in range(2)]
        for part, names in (
            *(("train", "ba"), ("val", "ab"), ("test", "ab")),
            ("oos_train", ["oos"]),
        )
    }
    write_xz(tmp_path / "clinc150" / "data_full.json.xz", json.dumps(data))
    found = labelled_texts.intents(tmp_path)
    assert found.classes == ["a", "b"] and len(found.validation[0]) == 4
    assert found.train[1].tolist() == [1, 1, 0, 0]


def test_bags():
    first, second, third = tasks.bags(["Big cat", "cat big!", ""], 1000, 20)
    assert (third == 0).all() and first.dtype == np.int32
    assert 0 < first.max() < 1000
    # "<big>" "<cat>" | pair | 3 + 2 + 1 grams a word; the words' 5-grams are
    # other features than the words.
    assert (first > 0).sum() == 2 + 1 + 2 * 6
    assert len(set(first[first > 0]) ^ set(second[second > 0])) == 2
    short = tasks.bags(["Big cat"], 1000, 2)[0]
    np.testing.assert_array_equal(short, first[:2])


def test_synthetic_classes():
    task = tasks.synthetic_classes(300, examples=20000, width=32, branching=5)
    assert task.num_classes == 300 and task.input_dim is None
    assert task.train[0].shape == (20000, 32)
    assert task.test[0].shape == task.valid[0].shape == (2000, 32)
    counts = np.sort(task.counts)[::-1]
    share = 1 / (1 / np.arange(1, 301)).sum()
    # Five standard deviations.
    for rank in (1, 2, 10):
        expected = 20000 * share / rank
        assert abs(counts[rank - 1] - expected) < 5 * expected**0.5
    seen = np.flatnonzero(task.counts > 20)
    means = np.array([task.train[0][task.train[1] == k].mean(0) for k in seen])
    # Classes beside each other are more alike than others.
    near = np.square(means[:, None] - means).sum(-1)
    together = seen[:, None] // 5 == seen // 5
    apart = seen[:, None] // 25 != seen // 25
    np.fill_diagonal(together, False)
    assert near[together].mean() < 0.5 * near[apart].mean()
    again = tasks.synthetic_classes(300, examples=20000, width=32, branching=5)
    np.testing.assert_array_equal(again.test[0], task.test[0])
    odd = tasks.synthetic_classes(7, width=3, branching=10)
    assert odd.train[0].shape == (70, 3) and odd.valid[0].shape == (7, 3)


def test_books(tmp_path):
    """Two books, one with marks of Project Gutenberg."""
    marks = (
        "Title\r\n\r\n*** START OF THIS PROJECT GUTENBERG EBOOK ONE ***\r\n{}"
        "\r\n\r\nEnd of Project Gutenberg's One, by None\r\n"
        "*** END OF THIS PROJECT GUTENBERG EBOOK ONE ***\r\nLicence\r\n"
    )
    second = "\ufeff" + marks.format("It’s once, twice.\r\n" * 100)
    members = [
        ("books/b.txt", second.encode()),
        ("books/a.txt", b"Plain once\r\n" * 50),
    ]
    write_tar(tmp_path / "books" / "books.tar.xz", members)
    books = words.Books(tmp_path / "books", min_count=46)
    # 90 of 100 tokens of the first, 450 of 500 of the second.
    assert len(books.ids["train"]) == 540
    assert len(books.ids["valid"]) == len(books.ids["test"]) == 30
    assert books.vocabulary[0] == "once" and books.counts[0] == 135
    of_both = {"once", "It’s", "twice", ".", ",", books.unknown}
    assert set(books.vocabulary) == of_both
    assert books.counts[books.vocabulary.index(books.unknown)] == 45
    tokens = [books.vocabulary[k] for k in books.ids["train"]]
    assert tokens[88:95] == [
        *(books.unknown, "once", "It’s", "once", ",", "twice", ".")
    ]
    inputs, targets = books.segments("train", batch_size=4, steps=5)
    np.testing.assert_array_equal(inputs[:, 1:], targets[:, :-1])
    assert words.tokenize("Don't go—1999! (l’été) _so_--x") == [
        *("Don't", "go", "—", "1999", "!", "(", "l’été", ")", "so", "--", "x")
    ]


@pytest.mark.data
def test_downloaded_tasks(data_dir):
    task = tasks.job_titles(data_dir)
    assert task.num_classes == 1016 and (task.counts > 0).all()
    sizes = [len(labels) for _, labels in (task.train, task.valid, task.test)]
    assert 53_000 < sum(sizes) < 54_000 and min(sizes) > 5000
    books = words.Books(data_dir / "gutenberg_books")
    assert 50_000 < len(books.vocabulary) < 60_000
    assert "Gutenberg's" not in books.vocabulary
    assert len(books.ids["train"]) > 7_000_000


PARTS = [(part, i) for part in ("train", "test") for i in range(10)]
IMDB = [
    (f"aclImdb/{part}/{label}/{i}_9.txt", f"{part} {label} {i}".encode())
    for part, i in PARTS
    for label in ("pos", "neg")
] + [("aclImdb/train/unsup/1_0.txt", b"unlabelled")]
NEWS = [
    (f"20news-bydate-{part}/{label}/{i}", f"{label} {i} \xe9".encode("latin-1"))
    for part, i in PARTS
    for label in ("sci.med", "rec.autos")
]


@pytest.mark.parametrize(
    ("name", "members", "classes"),
    [
        ("imdb", IMDB, ["neg", "pos"]),
        ("20newsgroups", NEWS, ["rec.autos", "sci.med"]),
    ],
)
@pytest.mark.parametrize("is_archive", [True, False])
def test_published_layouts(
    name, members, classes, is_archive, tmp_path, monkeypatch
):
    archive = tmp_path / "data.tar.gz"
    write_tar(archive, members)
    folder = None if is_archive else tmp_path
    if is_archive:
        monkeypatch.setattr("keras.utils.get_file", lambda *_, **__: archive)
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    data = labelled_texts.load(name, folder)
    assert data.classes == classes
    assert [len(texts) for texts, _ in parts_of(data)] == [18, 2, 20]
    assert set(data.test[1]) == {0, 1}
    for text, label in zip(*data.train, strict=True):
        assert classes[label] in text


def test_checksum_is_checked(tmp_path, monkeypatch):
    archive = tmp_path / "data.tar.gz"
    write_tar(archive, IMDB)
    monkeypatch.setattr(labelled_texts, "IMDB_URL", archive.as_uri())
    into = functools.partial(keras.utils.get_file, cache_dir=tmp_path)
    monkeypatch.setattr("keras.utils.get_file", into)
    with pytest.raises(ValueError, match="hash"):
        labelled_texts.imdb()


def test_compact_layouts(tmp_path):
    for part in ("train", "test"):
        lines = [f"{label}\t9\t{text}\t{text}\n" for label, text in REVIEWS]
        write_xz(tmp_path / f"{part}.tsv.xz", "".join(lines))
        rows = [{"label": label, "text": text} for label, text in REVIEWS]
        lines = [json.dumps(row) + "\n" for row in rows]
        write_xz(tmp_path / f"{part}.jsonl.xz", "".join(lines))
    expected = sorted(2 * [text for _, text in REVIEWS])
    for name in ("imdb", "20newsgroups"):
        assert texts_of(labelled_texts.load(name, tmp_path)) == expected


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_tables(tmp_path, suffix):
    path = tmp_path / f"reviews.{suffix}"
    options = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None}
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, **(options if suffix == "tsv" else {}))
        writer.writerow(["id", "text", "label"])
        for number, (label, text) in enumerate(REVIEWS):
            writer.writerow([number, text, label])
    data, again = (labelled_texts.load(str(path)) for _ in range(2))
    assert texts_of(data) == sorted(text for _, text in REVIEWS)
    assert again.train[0] == data.train[0]
    np.testing.assert_array_equal(again.test[1], data.test[1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "columns 'label' and 'text'"),
        ("label,text\nx\n", "Row 2 .* must have 2 fields"),
        ("label,text\nx,y\n", "at least 10 rows"),
        ("", "columns 'label' and 'text'"),
    ],
)
def test_bad_tables(tmp_path, content, message):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        labelled_texts.load(str(path))
    with pytest.raises(ValueError, match="`data` must be 'docstrings'"):
        labelled_texts.load("wikipedia")
    with pytest.raises(FileNotFoundError, match="holds no such data set"):
        labelled_texts.load("imdb", tmp_path)


def test_split_and_digest():
    rows = [("a", "1")] * 30 + [("b", "caf\u00e9")] * 20 + [("c", "3")] * 10
    data = labelled_texts.split([rows], seed=0, limit=2)
    assert data.classes == ["a", "b"]
    assert sum(len(texts) for texts, _ in parts_of(data)) == 50
    digest = data.digest()
    assert len(digest) == 12
    assert labelled_texts.split([rows], 0, limit=2).digest() == digest
    assert labelled_texts.split([rows], 1, limit=2).digest() != digest
    data.test[0][0] += " "
    assert data.digest() != digest


def test_docstrings(tmp_path, monkeypatch):
    text = "Takes a {} and does nothing at all with it, ever."
    source = "\n".join(
        f'def f{i}():\n    """{text.format(i)}"""' for i in range(20)
    )
    for name, code in (
        ("inner/many.py", source),
        ("inner/same.py", source),
        ("few.py", '"""Eight words and more in a module."""'),
        ("broken.py", "def ("),
        ("tests/test_many.py", source + "\n# more"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    monkeypatch.setattr(
        labelled_texts.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)}
    )
    monkeypatch.setattr(labelled_texts, "DOCUMENTED", ())
    rows = labelled_texts.docstrings()
    assert [label for label, _ in rows] == ["inner.many"] * 20
    assert rows[3][1] == text.format(3)


def test_ids_of_texts(tmp_path):
    """Files as those of the data folder; ids by how often words occur."""
    for part, rows in (("train", 20), ("test", 4)):
        lines = [
            f'{label}\t5\t{row}\tA film,<br />a "FILM" {row}\n'
            for row, label in enumerate(["neg", "pos"] * (rows // 2))
        ]
        write_xz(tmp_path / "imdb" / f"{part}.tsv.xz", "".join(lines))
        lines = [
            json.dumps({"label": f"sci.{row % 2}", "text": "x y it's x"}) + "\n"
            for row in range(rows)
        ]
        path = tmp_path / "20newsgroups" / f"{part}.jsonl.xz"
        write_xz(path, "".join(lines))
    texts = text_ids.read("imdb", tmp_path, 4)
    assert texts.words == ["", "[UNK]", "a", "film"]
    assert texts.counts.tolist() == [0, 0, 40, 40]
    assert [len(part[1]) for part in (texts.train, texts.valid)] == [18, 2]
    assert (texts.test[0] == [2, 3, 2, 3]).all()
    assert texts.test[1].tolist() == [0, 1, 0, 1]
    texts = text_ids.read("20newsgroups", tmp_path, 6)
    assert texts.words == ["", "[UNK]", "x", "y", "it's"]
    assert np.unique(texts.train[0], axis=0).tolist() == [[2, 3, 4, 2, 0, 0]]


def test_vectors_of_a_folder_and_of_tokens(tmp_path):
    table = np.arange(6, dtype="float16").reshape(3, 2)
    np.savez(tmp_path / "vectors.npz", table)
    (tmp_path / "words.txt").write_text("a\nb\nc\n")
    names, read = vectors.load_vectors(tmp_path, 2)
    assert names == ["a", "b"] and read.dtype == "float32"
    np.testing.assert_array_equal(read, table[:2])
    np.testing.assert_array_equal(vectors.load_table(tmp_path), table)
    numpy = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "model.safetensors"
    numpy.save_file({"embeddings.word_embeddings.weight": read}, path)
    np.testing.assert_array_equal(vectors.load_tokens(path), read)


def test_text_is_read_in_order(tmp_path):
    write_sentences(tmp_path)
    text = words.Text(tmp_path / "ptb")
    assert (np.diff(text.counts) <= 0).all()
    inputs, targets = (
        part.reshape(-1, 4, 5)[:, 0].ravel()
        for part in text.segments("train", batch_size=4, steps=5)
    )
    stream = text.ids["train"][: len(inputs) + 1]
    np.testing.assert_array_equal(inputs, stream[:-1])
    np.testing.assert_array_equal(targets, stream[1:])


def test_visits_are_read_by_user(tmp_path):
    folder = tmp_path / "gowalla"
    write_xz(folder / "train.txt.xz", "0 4 1 3 2\n1 0\n2 0 1 2 3 5\n")
    write_xz(folder / "test.txt.xz", "0 0 6\n1\n")
    pairs = visits.gowalla(folder)
    assert (pairs.num_users, pairs.num_items) == (3, 7)
    assert pairs.test.tolist() == [[0, 0], [0, 6]]
    together = np.concatenate([pairs.train, pairs.valid]).tolist()
    assert len(pairs.valid) == 1 and len(together) == 10
    assert [2, 5] in together and [0, 4] in together


def test_links_of_words(tmp_path):
    """Both ways; the one link of a word is left out, and so is the word."""
    lines = [
        *("hypernym dog animal", "hypernym cat animal", "antonym dog cat"),
        *("antonym cat dog", "synonym cat cat", "hypernym animal thing"),
    ]
    rows = [line.replace(" ", "\tn\t", 1).replace(" ", "\t") for line in lines]
    write_xz(tmp_path / "relations.tsv.xz", "\n".join(rows) + "\n")
    found = links.wordnet(tmp_path, least=2)
    assert (found.num_entities, found.num_relations) == (3, 4)
    parts = [found.train, found.valid, found.test]
    assert [len(part) for part in parts] == [2, 2, 2]
    animal, cat, dog = range(3)
    antonym, hypernym, _, hyponym = range(4)
    assert {tuple(row) for part in parts for row in part.tolist()} == {
        *((dog, hypernym, animal), (animal, hyponym, dog)),
        *((cat, hypernym, animal), (animal, hyponym, cat)),
        *((cat, antonym, dog), (dog, antonym, cat)),
    }
    # A link is in one part, both ways.
    for part in parts:
        assert set(part[0, ::2]) == set(part[1, ::2])
