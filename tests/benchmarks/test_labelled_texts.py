import csv
import functools
import io
import json
import lzma
import tarfile

import keras
import numpy as np
import pytest

from benchmarks.data import labelled_texts

REVIEWS = [("pos", 'It\'s "great"'), ("neg", "caf\u00e9 awful")] * 10


def write_xz(path, text):
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.write(text)


def make_archive(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def write_tree(folder, members):
    for name, content in members:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


IMDB_MEMBERS = [
    (f"aclImdb/{part}/{label}/{i}_9.txt", f"{part} {label} {i}".encode())
    for part in ("train", "test")
    for label in ("pos", "neg")
    for i in range(10)
] + [("aclImdb/train/unsup/1_0.txt", b"unlabelled")]
NEWS_MEMBERS = [
    (f"20news-bydate-{part}/{label}/{i}", f"{label} {i} \xe9".encode("latin-1"))
    for part in ("train", "test")
    for label in ("sci.med", "rec.autos")
    for i in range(10)
]


@pytest.mark.parametrize(
    "name, members, classes",
    [
        ("imdb", IMDB_MEMBERS, ["neg", "pos"]),
        ("20newsgroups", NEWS_MEMBERS, ["rec.autos", "sci.med"]),
    ],
)
@pytest.mark.parametrize("source", ["archive", "folder"])
def test_published_layouts(
    name, members, classes, source, tmp_path, monkeypatch
):
    folder = None
    if source == "archive":
        make_archive(tmp_path / "data.tar.gz", members)
        monkeypatch.setattr(
            "keras.utils.get_file",
            lambda *args, **kwargs: str(tmp_path / "data.tar.gz"),
        )
    else:
        folder = tmp_path
        write_tree(tmp_path, members)
    data = labelled_texts.load(name, folder)
    assert data.classes == classes
    assert [len(x[0]) for x in (data.train, data.validation, data.test)] == [
        18,
        2,
        20,
    ]
    assert set(data.test[1]) == {0, 1}
    for text, label in zip(*data.train, strict=True):
        assert classes[label] in text


def test_checksum_is_checked(tmp_path, monkeypatch):
    archive = tmp_path / "data.tar.gz"
    make_archive(archive, IMDB_MEMBERS)
    monkeypatch.setattr(labelled_texts, "IMDB_URL", archive.as_uri())
    monkeypatch.setattr(
        "keras.utils.get_file",
        functools.partial(keras.utils.get_file, cache_dir=tmp_path),
    )
    with pytest.raises(ValueError, match="hash"):
        labelled_texts.imdb()


def test_compact_layouts(tmp_path):
    rows = "".join(f"{label}\t9\t{text}\t{text}\n" for label, text in REVIEWS)
    lines = "".join(
        json.dumps({"label": label, "text": text}) + "\n"
        for label, text in REVIEWS
    )
    for part in ("train", "test"):
        write_xz(tmp_path / f"{part}.tsv.xz", rows)
        write_xz(tmp_path / f"{part}.jsonl.xz", lines)
    for name in ("imdb", "20newsgroups"):
        data = labelled_texts.load(name, tmp_path)
        texts = data.train[0] + data.validation[0]
        assert sorted(texts) == sorted(text for _, text in REVIEWS)


@pytest.mark.parametrize("suffix, delimiter", [("csv", ","), ("tsv", "\t")])
def test_tables(tmp_path, suffix, delimiter):
    path = tmp_path / f"reviews.{suffix}"
    quoting = csv.QUOTE_MINIMAL if suffix == "csv" else csv.QUOTE_NONE
    with open(path, "w", encoding="utf-8", newline="") as file:
        quotechar = '"' if suffix == "csv" else None
        writer = csv.writer(
            file, delimiter=delimiter, quoting=quoting, quotechar=quotechar
        )
        writer.writerow(["id", "text", "label"])
        for number, (label, text) in enumerate(REVIEWS):
            writer.writerow([number, text, label])
    data = labelled_texts.load(str(path))
    parts = (data.train, data.validation, data.test)
    texts = [text for part in parts for text in part[0]]
    assert sorted(texts) == sorted(text for _, text in REVIEWS)
    again = labelled_texts.load(str(path))
    assert again.train[0] == data.train[0]
    np.testing.assert_array_equal(again.test[1], data.test[1])


@pytest.mark.parametrize(
    "content, message",
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


def test_bad_names(tmp_path):
    with pytest.raises(ValueError, match="`data` must be 'docstrings'"):
        labelled_texts.load("wikipedia")
    with pytest.raises(FileNotFoundError, match="holds no such data set"):
        labelled_texts.load("imdb", tmp_path)


def test_most_frequent_classes():
    rows = [("a", "1")] * 30 + [("b", "2")] * 20 + [("c", "3")] * 10
    data = labelled_texts.split([rows], seed=0, limit=2)
    assert data.classes == ["a", "b"]
    assert (
        sum(len(x[0]) for x in (data.train, data.validation, data.test)) == 50
    )


def test_digest():
    rows = [("a", "1")] * 30 + [("b", "caf\u00e9")] * 20
    data = labelled_texts.split([rows], seed=0)
    digest = data.digest()
    assert len(digest) == 12
    assert labelled_texts.split([rows], seed=0).digest() == digest
    assert labelled_texts.split([rows], seed=1).digest() != digest
    data.test[0][0] += " "
    assert data.digest() != digest


def test_docstrings(tmp_path, monkeypatch):
    text = "Takes a {} and does nothing at all with it, ever."
    source = "\n".join(
        f'def f{i}():\n    """{text.format(i)}"""' for i in range(20)
    )
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "many.py").write_text(source)
    (tmp_path / "inner" / "same.py").write_text(source)
    (tmp_path / "few.py").write_text('"""Eight words and more in a module."""')
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_many.py").write_text(source + "\n# more")
    monkeypatch.setattr(
        labelled_texts.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)}
    )
    monkeypatch.setattr(labelled_texts, "DOCUMENTED", ())
    rows = labelled_texts.docstrings()
    assert [label for label, _ in rows] == ["inner.many"] * 20
    assert rows[3][1] == text.format(3)
