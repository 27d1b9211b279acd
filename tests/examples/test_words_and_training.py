"""Examples of words, of several devices and of large tables run."""

import json
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


@pytest.mark.slow
def test_a_step_of_ones_own_learns_what_fit_learns(tmp_path):
    weights = []
    for flags in ([], ["--fit"]):
        folder = tmp_path / f"step{flags}"
        rows = custom_training_step.main(
            ["--quick", *flags, "--output", str(folder)]
        )
        for row in rows:
            # 0.05 by chance; 0.55 to 0.93 by the seed, with codes.
            assert row["accuracy"] > 0.5
            assert row["word_bytes"] < row["table_bytes"]
        models = [
            keras.saving.load_model(folder / f"{name}.keras")
            for name in ("codes", "anchors")
        ]
        weights.append(sum((model.get_weights() for model in models), []))
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


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
    assert "17,000 x 4 table, 272,000 bytes" in capsys.readouterr().out
    expected = kc.CodeEmbedding.from_table(table, 2, 4, seed=0, verbose=0)
    np.testing.assert_array_equal(layer.codes, expected.codes)
    ids = np.arange(len(table))[None]
    saved = keras.saving.load_model(output)
    np.testing.assert_array_equal(saved(ids), layer(ids))
    np.testing.assert_array_equal(layer(ids), expected(ids))


@pytest.mark.slow
def test_words_of_a_topic_share_a_code(tmp_path):
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


def test_vectors_are_saved_and_asked(tmp_path):
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
    (found,) = figures["tests"].values()
    assert found["known"] == found["all"] == 200
    assert found["small"] > 0.8 > found["table"] + 0.1
    vectors = kc.from_preset(saved)
    assert vectors.index_to_key == words[:150]
    assert vectors.nbytes == figures["file_bytes"]


@pytest.mark.slow
@pytest.mark.parametrize("embedding", ["anchors", "codes"])
def test_language_model(embedding, tmp_path):
    folder = tmp_path / "words"
    arguments = ["--quick", "--embedding", embedding, "--output", str(folder)]
    results = word_language_model.main(arguments)
    # Of 10 words in a line 8 are certain; 62 words in all.
    best = math.exp(math.log(60) / 10)
    assert best < results["perplexity"] < (20 if embedding == "codes" else 5)
    assert results["word_bytes"] < results["table_bytes"] / 2
    assert results["next_words"]["w10 w11 w12"][0] in ("w13", "w14")
    assert json.loads((folder / "results.json").read_text()) == results
