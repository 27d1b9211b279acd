"""Readers of data sets, on small files of the same form."""

import io
import json
import lzma
import tarfile

import numpy as np
import pytest

from benchmarks.data import class_tasks as tasks
from benchmarks.data import labelled_texts
from benchmarks.data import links
from benchmarks.data import text_ids
from benchmarks.data import words


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


def test_books(tmp_path):
    """Two books, one with marks of Project Gutenberg."""
    marks = (
        "Title\r\n\r\n*** START OF THIS PROJECT GUTENBERG EBOOK ONE ***\r\n{}"
        "\r\n\r\nEnd of Project Gutenberg's One, by None\r\nLicence\r\n"
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
    inputs, targets = books.segments("train", batch_size=4, steps=5)
    np.testing.assert_array_equal(inputs[:, 1:], targets[:, :-1])


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
