import re

import numpy as np
import pytest

from examples import similar_words


def write_vectors(folder, as_text):
    """Words of twelve topics, whose vectors lie close together."""
    rng = np.random.default_rng(0)
    topics = 3 * rng.normal(size=(12, 5))
    vectors = np.repeat(topics, 5, axis=0) + 0.01 * rng.normal(size=(60, 5))
    words = [f"topic{row // 5}word{row % 5}" for row in range(60)]
    if not as_text:
        (folder / "words.txt").write_text("\n".join(words) + "\n")
        np.save(folder / "vectors.npy", vectors.astype("float16"))
        return folder
    lines = ["60 5"]
    for word, vector in zip(words, vectors, strict=True):
        lines.append(" ".join([word, *(f"{x:.4f}" for x in vector)]))
    (folder / "vectors.txt").write_text("\n".join(lines) + "\n")
    return folder / "vectors.txt"


@pytest.mark.slow
@pytest.mark.parametrize("as_text", [False, True], ids=["folder", "text"])
def test_words_of_a_topic_share_a_code(tmp_path, capsys, as_text):
    path = write_vectors(tmp_path, as_text)
    groups = similar_words.main(
        [
            f"--data={path}",
            "--vocabulary-size=50",
            "--num-codebooks=2",
            "--codebook-size=6",
            "--iterations=60",
            "--words=topic3word0,nowhere,topic3word4",
        ]
    )
    assert sum(len(words) for _, words in groups) == 50
    for word in ("topic3word0", "topic9word4"):
        (group,) = [words for _, words in groups if word in words]
        topic = word.partition("word")[0]
        assert {f"{topic}word{i}" for i in range(5)} <= set(group)
    said = capsys.readouterr().out
    assert "50 words, " in said and " of 36 codes used" in said
    assert len(re.findall(r"^[0-5]{2}  .*topic3word0", said, re.M)) == 1
    alike, any_two = re.search(
        r"same code: (-?[\d.]+) .*any two words: (-?[\d.]+)\.$", said, re.M
    ).groups()
    assert float(alike) > 0.5 > float(any_two)


def test_likeness():
    vectors = np.array([[1.0, 0], [1, 0], [-1, 0], [-1, 0]])
    alike, any_two = similar_words.likeness(vectors, [[0, 1], [2, 3]])
    assert (alike, any_two) == (1, pytest.approx(-1 / 3))
