"""Shows groups of words that share a code.

Learns 4x6 codes for the 10,000 most frequent words of a table of word vectors.
There are only 1,296 such codes, so words have to share them, as in Table 2 of
Chen, Min & Sun (2018).

    python -m examples.similar_words --data vectors
    python -m examples.similar_words --data glove.6B.300d.txt --words london

`--data` is a folder with `words.txt` (one word per line) and `vectors.npy` (one
row per word), or a file for `keras_compembed.vectors.read_vectors`, such as
from GloVe, word2vec or fastText. Frequent words must come first.
"""

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import keras_compembed as kc
from keras_compembed.reports.code_statistics import words_sharing_codes

# Skip-gram vectors of words in reviews, 75,102 x 300.
REVIEWS = "vectors_reviews_75k_300d"
WORDS = "monday,july,two,london,germany,john,he,doctor,guitar,terrible,was,up"
PRINTED = 12  # Words of a group.


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    data = os.environ.get("COMPEMBED_DATA")
    parser.add_argument(
        "--data",
        type=pathlib.Path,
        default=data and pathlib.Path(data) / REVIEWS,
        required=not data,
        help=f"vectors; default: {REVIEWS} in the folder of the environment "
        "variable COMPEMBED_DATA",
    )
    parser.add_argument(
        "--vocabulary-size", type=int, default=10_000, help="words to read"
    )
    parser.add_argument("--num-codebooks", type=int, default=4)
    parser.add_argument("--codebook-size", type=int, default=6)
    parser.add_argument(
        "--composition", default="linear", help="sum, concat, linear or lstm"
    )
    parser.add_argument("--iterations", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--words", default=WORDS, help="words to show, comma-separated"
    )
    return parser.parse_args(argv)


def read_vectors(path, limit):
    """The first vectors of a file, or of `vectors.npy` in a folder."""
    if path.is_dir():
        words = path / "words.txt"
        path = path / "vectors.npy"
        return kc.vectors.read_vectors(path, words=words, limit=limit)
    return kc.vectors.read_vectors(path, limit=limit)


def likeness(vectors, groups):
    """Mean cosine of two words in a group, and of any two words."""
    vectors = vectors - vectors.mean(axis=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    totals = np.zeros(2)
    for rows in groups:
        pairs = len(rows) * (len(rows) - 1)
        # All pairs, without each word with itself.
        total = np.square(vectors[rows].sum(axis=0)).sum() - len(rows)
        totals += total, pairs
    everyone = np.square(vectors.sum(axis=0)).sum() - len(vectors)
    any_two = everyone / (len(vectors) * (len(vectors) - 1))
    return totals[0] / totals[1], any_two


def main(argv=None):
    args = parse_arguments(argv)
    vectors = read_vectors(args.data, args.vocabulary_size)
    words, table = vectors.words, vectors.vectors
    learner = kc.learners.KDCodeLearner(
        args.num_codebooks,
        args.codebook_size,
        composition=args.composition,
        training=kc.learners.Training(iterations=args.iterations),
        seed=args.seed,
        verbose=2,
    )
    learner.train(table)

    groups = words_sharing_codes(
        learner.codes, words, codebook_size=args.codebook_size
    )
    place = {word: row for row, word in enumerate(words)}
    error = np.square(table - learner.decode(learner.codes)).sum()
    variance = np.square(table - table.mean(axis=0)).sum()
    alike, any_two = likeness(
        table, [[place[word] for word in group] for _, group in groups]
    )
    codes = args.codebook_size**args.num_codebooks
    used = len(np.unique(learner.codes, axis=0))
    print(
        f"\n{len(words)} words, {used} of {codes} codes in use; "
        f"{sum(len(group) for _, group in groups)} words share a code.\n"
        f"Squared error: {error / variance:.3f} of the variance.\n"
        f"Cosine of two words with the same code: {alike:.2f} on average; "
        f"of any two words: {any_two:.2f}.\n"
    )
    print("code  words")
    printed = []
    for asked in args.words.split(","):
        for code, group in groups:
            if asked in group and code not in printed:
                printed.append(code)
                more = " ..." if len(group) > PRINTED else ""
                print(
                    f"{code.replace(' ', '')}  {' '.join(group[:PRINTED])}"
                    + more
                )
    return groups


if __name__ == "__main__":
    main()
