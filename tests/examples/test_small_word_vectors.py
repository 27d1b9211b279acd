import numpy as np
import pytest

import keras_compembed as kc
from examples import small_word_vectors


@pytest.mark.slow
def test_vectors_are_saved_and_asked(tmp_path, capsys):
    rng = np.random.default_rng(0)
    # A part that all vectors share hides what tells them apart.
    topics = rng.normal(size=(20, 16))
    table = np.repeat(topics, 10, axis=0) + 0.1 * rng.normal(size=(200, 16))
    table += 9 + 5 * rng.normal(size=(200, 1)) * rng.normal(size=16)
    words = [f"topic{row // 10}word{row % 10}" for row in range(200)]
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")
    np.save(tmp_path / "vectors.npy", table.astype("float16"))
    pairs = rng.integers(150, size=(200, 2))
    pairs[::2, 1] = pairs[::2, 0] // 10 * 10 + pairs[::2, 1] % 10
    lines = [
        f"{words[a]}\t{words[b]}\t{float(a // 10 == b // 10)}" for a, b in pairs
    ]
    (tmp_path / "EN-SIMLEX-999.txt").write_text("\n".join(lines))
    figures = small_word_vectors.main(
        [
            f"--data={tmp_path}",
            f"--tests={tmp_path}",
            "--words=150",
            "--rank=12",
            "--directions=1",
            f"--save={tmp_path / 'topics'}",
            "--shown=topic3word0,unknown",
        ]
    )
    said = capsys.readouterr().out
    assert "topic3word0 topic3word" in said and "150 words as int4" in said
    (found,) = figures["tests"].values()
    assert found["known"] == found["all"] == 200
    assert found["small"] > 0.8 > found["table"] + 0.1
    vectors = kc.from_preset(tmp_path / "topics")
    assert vectors.index_to_key == words[:150]
    assert vectors.nbytes == figures["file_bytes"]
    card = (tmp_path / "topics/README.md").read_text("utf-8")
    assert (
        "small_word_vectors --words 150 --rank 12 --directions 1 --save" in card
    )
    assert f"| SimLex | 200 | 200 | {found['table']:.3f} |" in card
    assert f"| `vectors.npz` | {vectors.nbytes:,} |" in card
