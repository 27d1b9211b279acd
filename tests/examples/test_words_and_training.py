"""Examples of words, of several devices and of large tables run."""

import json
import lzma
import math
import pathlib
import re

import keras
import numpy as np
import pytest
from children import run_python

import keras_compembed as kc
from examples import custom_training_step
from examples import similar_words
from examples import small_word_vectors
from examples import word_language_model

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def own_step(tmp_path_factory):
    """What a training step of one's own made: weights, and rows."""
    return train_own(tmp_path_factory.mktemp("own"))


def train_own(folder, *flags):
    rows = custom_training_step.main(
        ["--quick", *flags, "--output", str(folder)]
    )
    assert json.loads((folder / "results.json").read_text()) == rows
    weights = [
        keras.saving.load_model(folder / f"{name}.keras").get_weights()
        for name in ("codes", "anchors")
    ]
    return sum(weights, []), rows


@pytest.mark.slow
def test_a_step_of_ones_own_learns_what_fit_learns(own_step, tmp_path):
    own, rows = own_step
    assert [row["name"] for row in rows] == ["codes", "anchors"]
    for row in rows:
        # 0.05 by chance; 0.55 to 0.93 by the seed, with codes.
        assert row["accuracy"] > 0.5
        assert row["word_bytes"] < row["table_bytes"]
    by_fit, _ = train_own(tmp_path, "--fit")
    for a, b in zip(own, by_fit, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.slow
def test_a_step_of_ones_own_on_two_devices(
    own_step, tmp_path, monkeypatch, strategy
):
    monkeypatch.setattr(
        custom_training_step, "mirrored_strategy", {2: strategy}.get
    )
    _, rows = train_own(tmp_path, "--devices", "2")
    for row, own in zip(rows, own_step[1], strict=True):
        # Sums in another order, over 150 steps of Adam.
        assert row["accuracy"] == pytest.approx(own["accuracy"], abs=0.03)


@pytest.mark.slow
def test_two_devices_equal_one():
    """In a process of its own, where it makes the devices."""
    done = run_python(
        "from examples.train_distributed import main\n"
        "main(['--quick', '--devices=2'])",
        folder=ROOT,
        CUDA_VISIBLE_DEVICES="",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    table = [line.split()[-4:] for line in lines[-4:-2]]
    (one_code_loss, _, one_loss, one_accuracy) = map(float, table[0])
    (two_code_loss, _, two_loss, two_accuracy) = map(float, table[1])
    # Printed with four places.
    assert abs(one_loss - two_loss) < 2e-4
    assert abs(one_accuracy - two_accuracy) < 0.02
    assert 0 < two_code_loss < 2 * one_code_loss
    difference = re.search(r"fine-tuned weights: (\S+)", done.stdout)
    assert float(difference[1]) < 1e-4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed")
def test_a_cluster_gives_the_codes_of_one_core(tmp_path, capsys):
    pytest.importorskip("distributed")
    from examples import large_table

    # Of more than a block, which tasks have.
    table = np.random.default_rng(0).normal(size=(17_000, 4)).astype("float32")
    paths = [tmp_path / f"part-{place}.npy" for place in range(2)]
    for path, part in zip(paths, np.split(table, [7000]), strict=True):
        np.save(path, part)
    output = tmp_path / "small" / "table.keras"
    flags = [f"--output={output}", "--num-codebooks=2", "--codebook-size=4"]
    flags += ["--workers=1", *map(str, paths)]
    layer = large_table.main(flags)
    assert "17,000 rows of 4 numbers, 272,000 bytes" in capsys.readouterr().out
    expected = kc.CodeEmbedding.from_table(table, 2, 4, seed=0, verbose=0)
    np.testing.assert_array_equal(layer.codes, expected.codes)
    ids = np.arange(len(table))[None]
    saved = keras.saving.load_model(output)
    np.testing.assert_array_equal(saved(ids), layer(ids))
    np.testing.assert_array_equal(layer(ids), expected(ids))
    assert [path.name for path in output.parent.iterdir()] == [output.name]


@pytest.mark.slow
def test_words_of_a_topic_share_a_code(tmp_path, capsys):
    rng = np.random.default_rng(0)
    # Twelve topics, whose vectors lie close together.
    topics = 3 * rng.normal(size=(12, 5))
    vectors = np.repeat(topics, 5, axis=0) + 0.01 * rng.normal(size=(60, 5))
    words = [f"topic{row // 5}word{row % 5}" for row in range(60)]
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")
    np.save(tmp_path / "vectors.npy", vectors.astype("float16"))
    flags = "--vocabulary-size=50 --num-codebooks=2 --codebook-size=6 "
    flags += "--iterations=60 --words=topic3word0,nowhere,topic3word4 "
    groups = similar_words.main(f"{flags} --data={tmp_path}".split())
    assert sum(len(words) for _, words in groups) == 50
    for word in ("topic3word0", "topic9word4"):
        (group,) = [words for _, words in groups if word in words]
        topic = word.partition("word")[0]
        assert {f"{topic}word{i}" for i in range(5)} <= set(group)
    said = capsys.readouterr().out
    assert "50 words, " in said and " of 36 codes used" in said
    alike, any_two = re.search(
        r"same code: (-?[\d.]+) .*any two words: (-?[\d.]+)\.$", said, re.M
    ).groups()
    assert float(alike) > 0.5 > float(any_two)
    vectors = np.array([[1.0, 0], [1, 0], [-1, 0], [-1, 0]])
    alike, any_two = similar_words.likeness(vectors, [[0, 1], [2, 3]])
    assert (alike, any_two) == (1, pytest.approx(-1 / 3))


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
    saved = tmp_path / "topics"
    flags = f"--data={tmp_path} --tests={tmp_path} --words=150 --rank=12 "
    flags += f"--directions=1 --save={saved} --shown=topic3word0,unknown"
    figures = small_word_vectors.main(flags.split())
    said = capsys.readouterr().out
    assert "150 words as int4" in said
    (found,) = figures["tests"].values()
    assert found["known"] == found["all"] == 200
    assert found["small"] > 0.8 > found["table"] + 0.1
    vectors = kc.from_preset(saved)
    assert vectors.index_to_key == words[:150]
    assert vectors.nbytes == figures["file_bytes"]


@pytest.mark.slow
@pytest.mark.parametrize("embedding", ["anchors", "codes"])
def test_language_model(embedding, tmp_path, capsys):
    folder = tmp_path / "words"
    arguments = ["--quick", "--embedding", embedding, "--output", str(folder)]
    results = word_language_model.main(arguments)
    # Of 10 words in a line 8 are certain; 62 words in all.
    best = math.exp(math.log(60) / 10)
    assert best < results["perplexity"] < (20 if embedding == "codes" else 5)
    words = (folder / "vocabulary.txt").read_text().split("\n")
    assert len(words) == 62
    assert results["table_bytes"] == 2 * 4 * 62 * 24
    assert results["word_bytes"] < results["table_bytes"] / 2
    assert results["next_words"]["w10 w11 w12"][0] in ("w13", "w14")
    assert json.loads((folder / "results.json").read_text()) == results
    assert "Perplexity on the test part" in capsys.readouterr().out


def test_words_of_a_file_and_of_a_folder(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("Don't go,\nNo!\n\n" * 20)
    train, valid, test = word_language_model.read_words(path)
    line = ["don't", "go", ",", "no", "!", "<eos>"]
    # No paragraph follows the last one.
    assert train + valid + test == (line * 20)[:-1]
    assert (len(train), len(valid), len(test)) == (107, 6, 6)
    for part in ("train", "valid"):
        with lzma.open(tmp_path / f"ptb.{part}.txt.xz", "wt") as file:
            file.write(f" u.s. {part} n \n no \n")
    (tmp_path / "ptb.test.txt").write_text(" the test \n")
    parts = word_language_model.read_words(tmp_path)
    assert parts[0] == ["u.s.", "train", "n", "<eos>", "no", "<eos>"]
    assert parts[2] == ["the", "test", "<eos>"]
