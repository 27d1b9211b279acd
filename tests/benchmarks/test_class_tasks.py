"""Loaders of tasks with many classes, on small files of the same form."""

import io
import json
import lzma
import tarfile

import numpy as np
import pytest

from benchmarks.data import class_tasks as tasks
from benchmarks.data import words


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.write(text)


def write_titles(folder):
    """40 occupations of 5 titles of their own, and 20 titles of two."""
    names = [f"Makers of {chr(97 + k % 26)}{k}" for k in range(40)]
    write(
        folder / "onet_titles" / "Occupation_Data.txt.xz",
        "O*NET-SOC Code\tTitle\tDescription\n"
        + "".join(f"{k}\t{name}\tThey make.\n" for k, name in enumerate(names)),
    )
    rows = [(k, f'Maker "{i}" of {k}') for k in range(40) for i in range(5)]
    rows += [(k + i, f"Both {k}") for k in range(20) for i in (0, 1)]
    # Twice, in other letters, and the name of another occupation.
    rows += [(7, 'MAKER "1" of 7'), (3, names[4].upper())]
    write(
        folder / "onet_titles" / "Alternate_Titles.txt.xz",
        "O*NET-SOC Code\tAlternate Title\tShort Title\tSource(s)\n"
        + "".join(f"{k}\t{title}\tn/a\t08\n" for k, title in rows),
    )


def rows_of(task, part):
    inputs, labels = getattr(task, part)
    return {
        (row.tobytes(), int(k)) for row, k in zip(inputs, labels, strict=True)
    }


def test_job_titles(tmp_path):
    write_titles(tmp_path)
    task = tasks.job_titles(tmp_path, buckets=5000)
    assert task.num_classes == 40 and task.names[1] == "Makers of b1"
    assert task.input_dim == 5000
    parts = {p: rows_of(task, p) for p in ("train", "valid", "test")}
    # 220 titles are free of names, 20 of them twice; none is lost.
    assert sum(map(len, parts.values())) == 40 + 1 + 200 + 2 * 20
    assert all(
        len(getattr(task, p)[1]) == len(rows) for p, rows in parts.items()
    )
    assert len({row for row, _ in parts["valid"]}) == 22
    assert len({row for row, _ in parts["test"]}) == 22
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
            ("train", "ba"),
            ("val", "ab"),
            ("test", "ab"),
            ("oos_train", ["oos"]),
        )
    }
    write(tmp_path / "clinc150" / "data_full.json.xz", json.dumps(data))
    task = tasks.intents(tmp_path)
    assert task.names == ["a", "b"]
    assert task.train[1].tolist() == [1, 1, 0, 0]
    assert task.valid[0].shape == (4, 128) and task.counts.tolist() == [2, 2]


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
    np.fill_diagonal(together, False)
    assert (
        near[together].mean()
        < 0.5 * near[seen[:, None] // 25 != seen // 25].mean()
    )
    # Neither trivial nor hopeless.
    inputs, labels = task.test
    known = np.isin(labels, seen)
    distances = np.square(inputs[known, None] - means).sum(-1)
    accuracy = (seen[distances.argmin(1)] == labels[known]).mean()
    assert 0.5 < accuracy < 0.99
    again = tasks.synthetic_classes(300, examples=20000, width=32, branching=5)
    np.testing.assert_array_equal(again.test[0], task.test[0])


def test_synthetic_classes_of_odd_number():
    task = tasks.synthetic_classes(7, width=3, branching=10)
    assert task.train[0].shape == (70, 3) and task.valid[0].shape == (7, 3)


def write_books(folder):
    """Two books, one with marks of Project Gutenberg."""
    folder.mkdir()
    marks = (
        "Title\r\n\r\n*** START OF THIS PROJECT GUTENBERG EBOOK ONE ***\r\n{}"
        "\r\n\r\nEnd of Project Gutenberg's One, by None\r\n"
        "*** END OF THIS PROJECT GUTENBERG EBOOK ONE ***\r\nLicence\r\n"
    )
    texts = {
        "b": "\ufeff" + marks.format("It’s once, twice.\r\n" * 100),
        "a": "Plain once\r\n" * 50,
    }
    with tarfile.open(folder / "books.tar.xz", "w:xz") as file:
        for name, text in texts.items():
            text = text.encode()
            member = tarfile.TarInfo(f"books/{name}.txt")
            member.size = len(text)
            file.addfile(member, io.BytesIO(text))


def test_books(tmp_path):
    write_books(tmp_path / "books")
    books = words.Books(tmp_path / "books", min_count=46)
    # 90 of 100 tokens of the first, 450 of 500 of the second.
    assert len(books.ids["train"]) == 540
    assert len(books.ids["valid"]) == len(books.ids["test"]) == 30
    assert books.vocabulary[0] == "once" and books.counts[0] == 135
    assert set(books.vocabulary) == {
        *("once", "It’s", "twice", ".", ",", books.unknown)
    }
    assert books.counts[books.vocabulary.index(books.unknown)] == 45
    tokens = [books.vocabulary[k] for k in books.ids["train"]]
    assert tokens[88:95] == [books.unknown, "once", *("It’s", "once", ",")] + [
        "twice",
        ".",
    ]
    inputs, targets = books.segments("train", batch_size=4, steps=5)
    np.testing.assert_array_equal(inputs[:, 1:], targets[:, :-1])


def test_tokens():
    assert words.tokenize("Don't go—1999! (l’été) _so_--x") == [
        *("Don't", "go", "—", "1999", "!", "(", "l’été", ")", "so", "--", "x")
    ]


@pytest.mark.data
def test_job_titles_of_onet(data_dir):
    task = tasks.job_titles(data_dir)
    assert task.num_classes == 1016 and (task.counts > 0).all()
    sizes = [len(labels) for _, labels in (task.train, task.valid, task.test)]
    assert 53_000 < sum(sizes) < 54_000 and min(sizes) > 5000


@pytest.mark.data
def test_intents_of_clinc(data_dir):
    task = tasks.intents(data_dir)
    assert task.num_classes == 150 and (task.counts == 100).all()
    assert len(task.valid[0]) == 3000 and len(task.test[0]) == 4500


@pytest.mark.data
def test_books_of_gutenberg(data_dir):
    books = words.Books(data_dir / "gutenberg_books")
    assert 50_000 < len(books.vocabulary) < 60_000
    assert "Gutenberg's" not in books.vocabulary
    assert len(books.ids["train"]) > 7_000_000
