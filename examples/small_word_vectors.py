"""Compresses the most frequent word vectors to less than 2 MB.

Takes the first words of a table, makes cosines agree better with people by
taking the mean and the three strongest directions off all vectors (Mu &
Viswanath, 2018, All-but-the-Top), stores them as low-rank int4 rows, and
measures both by word pairs and analogies.

    python -m examples.small_word_vectors --data vectors --tests word_similarity
    python -m examples.small_word_vectors --data glove.6B.300d.txt --rank 100
    python -m examples.small_word_vectors --save saved_models/review_words

`--data` is a folder with `words.txt` (one word per line) and `vectors.npy` (one
row per word), or a file for `keras_compembed.vectors.read_vectors`; frequent
words come first. `--tests` is a folder with files such as `EN-SIMLEX-999.txt`
(two words and a number on each line) and `questions-words.txt`.
"""

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import keras_compembed as kc
from examples.word_tests import ANALOGIES
from examples.word_tests import PAIRS
from examples.word_tests import WordAnalogies
from examples.word_tests import WordPairs

# Skip-gram vectors of words in reviews, 75,102 x 300.
REVIEWS = "vectors_reviews_75k_300d"
SHOWN = "good,terrible,actor,london,seven"
SAMPLE = 100  # Words kept with saved vectors, with their neighbours.


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    data = os.environ.get("COMPEMBED_DATA")
    for name, folder in (("data", REVIEWS), ("tests", "word_similarity")):
        parser.add_argument(
            f"--{name}",
            type=pathlib.Path,
            default=data and pathlib.Path(data) / folder,
            required=not data,
            help=f"default: {folder} in the folder of the environment "
            "variable COMPEMBED_DATA",
        )
    parser.add_argument(
        "--words", type=int, default=24_000, help="words to keep"
    )
    parser.add_argument(
        "--rank", type=int, default=140, help="int4 numbers of a row"
    )
    parser.add_argument(
        "--directions", type=int, default=3, help="strongest ones to subtract"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--save", type=pathlib.Path, help="folder for `kc.save_preset`"
    )
    parser.add_argument(
        "--shown", default=SHOWN, help="words to show, comma-separated"
    )
    return parser.parse_args(argv)


def read_vectors(path, limit):
    """The first vectors of a file, or of `vectors.npy` in a folder."""
    if path.is_dir():
        words = path / "words.txt"
        path = path / "vectors.npy"
        return kc.vectors.read_vectors(path, words=words, limit=limit)
    return kc.vectors.read_vectors(path, limit=limit)


def without_common_part(table, directions):
    """Vectors without their mean and their strongest directions.

    All vectors share these parts. They distinguish words least, but affect all
    cosines.
    """
    table = table - table.mean(axis=0)
    if directions:
        _, vectors = np.linalg.eigh(table.T @ table)
        strongest = vectors[:, -directions:]
        table -= (table @ strongest) @ strongest.T
    return table


def read_tests(folder, num_words):
    """Dict from names to tests, for the tests in a folder."""
    paths = {name: folder / f"{file}.txt" for name, file in PAIRS.items()}
    tests = {
        name: WordPairs.read(path)
        for name, path in paths.items()
        if path.exists()
    }
    path = folder / f"{ANALOGIES}.txt"
    if path.exists():
        tests["analogies"] = WordAnalogies.read(path, num_words)
    return tests


def ask(tests, words, tables):
    """Dict from names of tests to the scores of each table."""
    figures = {}
    for name, test in tests.items():
        scores = {
            kind: test.evaluate(table, words) for kind, table in tables.items()
        }
        first = next(iter(scores.values()))
        figures[name] = {"known": first.num_used, "all": first.num_all}
        figures[name] |= {kind: each.score for kind, each in scores.items()}
    return figures


def table_of_scores(tests):
    """Lines of a card's table; figures fill in its numbers."""
    lines = [
        "| test | known | of | table | centred | these |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in tests:
        cells = ["known", "all", "table", "centred", "small"]
        forms = [":,", ":,", ":.3f", ":.3f", ":.3f"]
        cells = [
            f"{{tests[{name}][{cell}]{form}}}"
            for cell, form in zip(cells, forms, strict=True)
        ]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


def make_card(args, tests):
    """The card of the vectors in `saved_models/`, with figures by name."""
    command = "python -m examples.small_word_vectors"
    defaults = parse_arguments(["--data=.", "--tests=."])
    for name in ("words", "rank", "directions", "seed"):
        value = getattr(args, name)
        if value != getattr(defaults, name):
            command += f" --{name} {value}"
    return {
        "summary": "Vectors of the {words:,} most frequent words of film "
        "reviews in English: {columns} columns in {megabytes:.2f} MB.",
        "license": "other",
        "command": f"{command} --save saved_models/{args.save.name}",
        "data": "The vectors are the first {words:,} of 75,102 skip-gram "
        "vectors, trained by gensim's Word2Vec for this project. Its window "
        "was 5, with 5 negative samples, for 4 epochs. The texts are the "
        "100,000 reviews of the Large Movie Review Dataset (Maas et al.; "
        "texts only, no ratings), with the posts of 20 Newsgroups and 63 "
        "books of Project Gutenberg. The words are those of the reviews in "
        "lower case, most frequent first. The mean and the {directions} "
        "strongest directions were subtracted, as in [Mu & Viswanath "
        "(2018)](https://arxiv.org/abs/1702.01417). The rest is stored as "
        "{method}: {file_bytes:,} bytes instead of {table_bytes:,} of float32. "
        "The original table is not in the repository; `--data` or the "
        "environment variable `COMPEMBED_DATA` gives its folder.",
        "results": "Scores of word pairs are Spearman correlations of cosines "
        "with human ratings. Scores of analogies are accuracies. Both skip "
        "questions with unknown words. `table` is the trained float32 table, "
        "`centred` is the table after subtraction, and `these` are the vectors "
        "of the file.\n\n"
        + table_of_scores(tests)
        + "\n\n{neighbours:.0%} of the ten nearest words of `centred` are "
        "among the ten nearest words of the file.",
        "limits": "The vectors were trained on some 36 million words, most of "
        "them about films. Vectors of words on other subjects are less "
        "accurate, and a word has its sense in film reviews. The reviews hold "
        "harsh words and prejudice, and the vectors repeat them: do not use "
        "them to decide about people. Words are single tokens of `[a-z0-9]`, "
        "perhaps with an apostrophe, or one of `! ? . , ;`.",
        "attribution": "The preset holds vectors only, no text. The reviews "
        "come without a licence file, for research; their publishers ask you "
        "to cite Maas et al., Learning Word Vectors for Sentiment Analysis, "
        "ACL 2011. The posts of 20 Newsgroups are public Usenet posts without "
        "a licence file. The books are in the public domain in the United "
        "States. If you need more certainty, train your own vectors.",
        "files": {
            "vectors.npz": "words and vectors, for `kc.from_preset` or "
            "`kc.vectors.CompressedVectors.load`",
            "sample.json": f"{SAMPLE} words, a few values of their vectors, "
            "and their nearest words",
        },
        "language": "en",
        "tags": ("word-vectors", "feature-extraction"),
    }


def make_sample(small):
    """Words with parts of their vectors and their nearest words."""
    step = max(1, len(small) // SAMPLE)
    words = small.index_to_key[::step][:SAMPLE]
    return {
        "words": words,
        "numbers": [
            [round(float(x), 5) for x in small[word][:5]] for word in words
        ],
        "nearest": [
            [near for near, _ in small.most_similar(word, topn=3)]
            for word in words
        ],
    }


def main(argv=None):
    args = parse_arguments(argv)
    vectors = read_vectors(args.data, args.words)
    words, table = vectors.words, vectors.vectors
    centred = without_common_part(table, args.directions)
    method = kc.methods.Quantized(4, rank=args.rank)
    small = kc.vectors.CompressedVectors.learn(
        kc.vectors.WordVectors(words, centred),
        method,
        seed=args.seed,
        verbose=0,
    )
    rows = small.table()
    tests = read_tests(args.tests, len(words))
    tables = {"table": table, "centred": centred, "small": rows}
    near = kc.reports.fidelity(centred, rows)
    figures = {
        "file_bytes": small.nbytes,
        "megabytes": small.nbytes / 1e6,
        "table_bytes": 4 * table.size,
        "words": len(words),
        "columns": table.shape[1],
        "method": method.name,
        "directions": args.directions,
        "seed": args.seed,
        "relative_error": near.relative_squared_error,
        "neighbours": near.neighbor_overlap,
        "tests": ask(tests, words, tables),
    }
    if args.save:
        kc.save_preset(
            small,
            args.save,
            make_card(args, tests),
            figures,
            files={"sample.json": make_sample(small)},
            overwrite=True,
        )
    for word in args.shown.split(","):
        if word in small:
            nearest = (near for near, _ in small.most_similar(word, topn=6))
            print(f"{word:10} {' '.join(nearest)}")
    print(
        f"\n{len(words):,} words as {method.name}: {small.nbytes:,} bytes, "
        f"{figures['table_bytes'] / small.nbytes:.1f} times smaller than "
        f"float32; relative squared error {near.relative_squared_error:.3f}, "
        f"{near.neighbor_overlap:.0%} of neighbors kept\n"
    )
    print(f"{'test':10} {'known':>6}  table  centred  small")
    for name, found in figures["tests"].items():
        scores = (
            "    -" if found[kind] is None else f"{found[kind]:.3f}"
            for kind in tables
        )
        print(f"{name:10} {found['known']:6,}  {'   '.join(scores)}")
    return figures


if __name__ == "__main__":
    main()
