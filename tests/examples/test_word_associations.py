import csv
import re

import numpy as np
import pytest

from examples import word_associations

TOPICS = ("fruit", "metal", "river")


def letters(number):
    return "abcdefghij"[number // 10] + "abcdefghij"[number % 10]


def write_texts(path):
    """Texts of three topics, each with words of its own and common ones."""
    rng = np.random.default_rng(0)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["label", "text"])
        for place in range(600):
            topic = TOPICS[place % 3]
            # Low numbers more often.
            words = np.minimum(rng.geometric(0.1, size=12) - 1, 39)
            text = " ".join(topic + letters(word) for word in words)
            writer.writerow([topic, f"the {text} of"])
    return path


@pytest.mark.slow
def test_words_are_composed_from_words_of_their_topic(tmp_path, capsys):
    path = write_texts(tmp_path / "texts.csv")
    pairs = word_associations.main(
        [
            f"--data={path}",
            "--vocabulary-size=200",
            "--length=20",
            "--embedding-dim=8",
            "--num-anchors=9",
            "--l1=3e-3",
            "--epochs=12",
            "--batch-size=32",
            "--common=0.5",
            "--words=fruitaa,nowhere",
        ]
    )
    alike = [word[:5] == anchor[:5] for _, word, anchor in pairs[:20]]
    # A third by chance.
    assert np.mean(alike) > 0.8
    values = [value for value, _, _ in pairs]
    assert values == sorted(values, reverse=True) and values[-1] > 0
    anchors = {anchor for _, _, anchor in pairs}
    assert not anchors & ({"the", "of"} | {word for _, word, _ in pairs})
    said = capsys.readouterr().out
    assert re.search(r"^fruitaa +[a-z]+, ", said, re.M)
    assert re.search(r"^nowhere +-$", said, re.M)
    assert re.search(r"^ +\d\.\d\d  [a-z]+, [a-z]+$", said, re.M)
    accuracy = re.search(r"test texts: ([\d.]+), with", said)
    assert float(accuracy.group(1)) > 0.8


def test_words_are_counted_once_a_text():
    ids = np.array([[2, 3, 2, 0], [1, 3, 0, 0]])
    counts, texts = word_associations.count_words(ids, list("abcd"))
    assert counts.tolist() == [0, 0, 2, 2]
    assert texts.tolist() == [0, 0, 1, 2]
