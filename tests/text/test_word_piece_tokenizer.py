"""Word pieces, held to BERT's rules in plain Python."""

import re
import unicodedata

import keras
import pytest
import tensorflow as tf
from errors import refused
from export_models import write
from text_pages import make_model

from keras_compembed.text import WordPieceTokenizer

pytest.importorskip("tensorflow_text")

PIECES = [
    *("[PAD]", "a", "red", "apple", "##s", "##ple", "ap", "!", ",", "'"),
    *("[UNK]", "[CLS]", "[SEP]", "e", "##t", "##e", "\u65e5", "Red", "\u00e9"),
]
TEXTS = [
    "A red apple, red apples!",
    "R\u00c9D \u00c9T\u00c9 \u00e9",
    "apples's  ap\tape\n",
    "\u65e5\u672c red\u65e5",
    "",
    " ",
    "unknown words \U0001f600",
    "redred Red a" * 20,
]


def expected_ids(text, lowercase):
    if lowercase:
        text = unicodedata.normalize("NFD", text.lower())
        text = "".join(c for c in text if unicodedata.category(c) != "Mn")
    ids = []
    for word in re.findall(
        r"[!,']|[\u4e00-\u9fff]|[^\s!,'\u4e00-\u9fff]+", text
    ):
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in PIECES:
                    break
            else:
                found, piece = [], "[UNK]"
                end = len(word)
            found.append(PIECES.index(piece))
            start = end
        ids += found
    return ids


@pytest.mark.parametrize("lowercase", [True, False])
def test_ids(lowercase):
    tokenizer = WordPieceTokenizer(PIECES, lowercase)
    for text in TEXTS:
        expected = expected_ids(text, lowercase) or [10]
        assert tokenizer([text]).numpy().tolist() == [expected], text
    assert tokenizer.vocabulary_size == len(PIECES)
    assert tokenizer.get_vocabulary() == PIECES


@pytest.mark.parametrize(
    ("ends", "length"), [(("sep",), None), (("cls", "sep"), 6)]
)
def test_ends(ends, length):
    tokenizer = WordPieceTokenizer(
        PIECES,
        sequence_length=length,
        **{f"add_{end}": True for end in ends},
    )
    room = None if length is None else length - len(ends)
    rows = []
    for text in TEXTS:
        row = expected_ids(text, True)[:room]
        row = [11] * ("cls" in ends) + row + [12] * ("sep" in ends)
        rows.append(row)
    width = length or max(map(len, rows))
    rows = [row + [0] * (width - len(row)) for row in rows]
    assert tokenizer(TEXTS).numpy().tolist() == rows
    assert tokenizer.compute_output_shape((None,)) == (None, length)
    (again,) = WordPieceTokenizer.from_config(tokenizer.get_config())(["red"])
    assert again.numpy().tolist() == tokenizer("red").numpy().tolist()


def test_train(tmp_path):
    texts = ["a red apple", "a green Apple", "two red pears"] * 20
    tokenizer = WordPieceTokenizer.train(
        tf.data.Dataset.from_tensor_slices(texts).batch(7), vocabulary_size=60
    )
    vocabulary = tokenizer.get_vocabulary()
    assert vocabulary[:4] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    assert {"red", "apple"} <= set(vocabulary) and len(vocabulary) < 70
    path = tmp_path / "vocabulary.txt"
    path.write_text("".join(f"{piece}\n" for piece in vocabulary))
    same = WordPieceTokenizer(path)
    assert same.get_vocabulary() == vocabulary
    small = tokenizer.prune(["a red apple"])
    assert small.get_vocabulary() == ["[PAD]", "[UNK]", "a", "apple", "red"]
    assert 0 < small.count_bytes() < tokenizer.count_bytes()


def test_in_a_file(tmp_path):
    tokenizer = WordPieceTokenizer(PIECES, add_cls=True, add_sep=True)
    model = make_model(2, tokenizer, mask_zero=True)
    model.save(tmp_path / "m.keras")
    model = keras.saving.load_model(tmp_path / "m.keras")
    export = write(model, tmp_path / "m.tflite", runtime="tf-text")
    assert export.max_error < 1e-5
    assert export.text_bytes > tokenizer.count_bytes()


@pytest.mark.parametrize(
    "options, argument, received",
    [
        ({"vocabulary": ["[PAD]", "a", "b"]}, "vocabulary", "pieces=3"),
        ({"vocabulary": [*PIECES, "a"]}, "vocabulary", "piece='a', times=2"),
        ({"vocabulary": [*PIECES, 3]}, "vocabulary", "piece=3"),
        ({"vocabulary": set(PIECES)}, "vocabulary", "set"),
        ({"lowercase": 1}, "lowercase", 1),
        ({"vocabulary": PIECES[:11], "add_cls": True}, "add_cls", "True"),
        (
            {"add_cls": True, "add_sep": True, "sequence_length": 2},
            "sequence_length",
            2,
        ),
    ],
)
def test_what_is_refused(options, argument, received):
    with refused(argument, received):
        WordPieceTokenizer(**{"vocabulary": PIECES, **options})
