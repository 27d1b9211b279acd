"""Shows which words a model has learned to compose from which.

Trains a text classifier, mean pooling over an `ANTEmbedding` whose anchors
stand for frequent words, and prints Table 4 of Liang et al. (2021): for anchor
words, the words whose rows of the transform have the largest numbers for them;
then the largest pairs of all. Words that occur near each other more often than
by chance are related, and so are, if `--wordnet` names a folder, synonyms,
antonyms and hypernyms: what they have in common is not shrunk.

    python -m examples.word_associations
    python -m examples.word_associations --data imdb --wordnet WordNet-3.0/dict
    python -m examples.word_associations --data reviews.csv --words good,bad

`--wordnet` takes the folder of WordNet's files, or NLTK's
`corpora/wordnet.zip`.
"""

import argparse
import os
import re

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_compembed as kc
from examples import labelled_texts

PRINTED = 7  # Words of an anchor.


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data",
        default="20newsgroups",
        help="docstrings, imdb, 20newsgroups, or a .csv or .tsv file with "
        "the columns label and text",
    )
    parser.add_argument(
        "--data-dir", help="folder that holds imdb or 20newsgroups already"
    )
    parser.add_argument("--wordnet", help="WordNet's files")
    parser.add_argument("--vocabulary-size", type=int, default=20_000)
    parser.add_argument("--length", type=int, default=200, help="words read")
    parser.add_argument("--embedding-dim", type=int, default=64)
    parser.add_argument("--num-anchors", type=int, default=200)
    parser.add_argument(
        "--common",
        type=float,
        default=0.04,
        help="part of the texts; words in more of them are no anchors",
    )
    parser.add_argument("--l1", type=float, default=1e-4)
    parser.add_argument(
        "--top", type=int, default=5, help="related words of a word, at most"
    )
    parser.add_argument(
        "--min-count", type=int, default=20, help="of words in the tables"
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--words", help="anchor words to print, by commas; default: the first"
    )
    return parser.parse_args(argv)


def count_words(ids, vocabulary):
    """How often words occur, and in how many of the texts."""
    counts = np.bincount(ids.ravel(), minlength=len(vocabulary))
    rows = np.sort(ids, axis=1)
    first = np.diff(rows, axis=1, prepend=-1) != 0
    texts = np.bincount(rows[first], minlength=len(vocabulary))
    counts[:2] = texts[:2] = 0  # Padding, and words not in the vocabulary.
    return counts, texts


def choose_anchors(ids, vocabulary, args):
    """Anchors for the most frequent words that are not everywhere."""
    counts, texts = count_words(ids, vocabulary)
    telling = texts <= args.common * len(ids)
    telling &= [bool(re.fullmatch("[a-z]{3,}", word)) for word in vocabulary]
    return kc.anchors.Frequency(np.where(telling, counts, 0), seed=args.seed)


def relate(ids, vocabulary, args):
    """Relations of words that occur near each other, and of WordNet."""
    relations = kc.anchors.Relations.from_tokens(
        ids,
        len(vocabulary),
        window=10,
        min_count=5,
        min_information=1.0,
        top=args.top,
        ignore=(0, 1),
    )
    if args.wordnet:
        relations |= kc.anchors.Relations.from_wordnet(vocabulary, args.wordnet)
    return relations


def associations(layer, vocabulary, shown):
    """Words that anchors contribute to.

    Args:
        layer: `ANTEmbedding` with anchors that stand for words.
        vocabulary: List of words.
        shown: Boolean array `(input_dim,)`, words that may be in the result.

    Returns:
        List of `(number, word, anchor word)`, the largest number first. No
        word is an anchor.
    """
    transform = layer.get_transform()
    rows = np.repeat(np.arange(layer.input_dim), transform.row_lengths)
    anchors = np.asarray(layer.anchor_ids)[transform.columns]
    kept = shown[rows] & (anchors >= 0) & ~np.isin(rows, layer.anchor_ids)
    values = transform.values[kept]
    words = np.array(vocabulary)
    order = np.argsort(-values, kind="stable")
    columns = values, words[rows[kept]], words[anchors[kept]]
    return list(
        zip(*(column[order].tolist() for column in columns), strict=True)
    )


def print_tables(pairs, anchors, asked):
    """Table 4: words of each anchor, and the largest pairs."""
    of_anchor = {anchor: [] for anchor in anchors}
    for _, word, anchor in pairs:
        of_anchor[anchor].append(word)
    if not asked:
        asked = [word for word in anchors if len(of_anchor[word]) > 2][:30]
    print(f"\n{'anchor':14}words composed from it")
    for anchor in asked:
        words = of_anchor.get(anchor, [])[:PRINTED] or ["-"]
        print(f"{anchor:14}{', '.join(words)}")
    print("\nlargest numbers of the transform")
    for value, word, anchor in pairs[:20]:
        print(f"{value:6.2f}  {word}, {anchor}")


def main(argv=None):
    args = parse_arguments(argv)
    keras.utils.set_random_seed(args.seed)
    print(f"Reading {args.data}")
    dataset = labelled_texts.load(args.data, args.data_dir, args.seed)
    vocabulary, dataset = dataset.as_ids(args.vocabulary_size, args.length)
    train, test = dataset.train, dataset.test
    relations = relate(train[0], vocabulary, args)
    print(f"{len(vocabulary):,} words, {len(relations):,} pairs are related")

    layer = kc.ANTEmbedding(
        len(vocabulary),
        args.embedding_dim,
        num_anchors=min(args.num_anchors, len(vocabulary)),
        anchors=choose_anchors(train[0], vocabulary, args),
        relations=relations,
        l1=args.l1,
        mask_zero=True,
    )
    model = keras.Sequential(
        [
            keras.Input((args.length,), dtype="int32"),
            layer,
            keras.layers.Dropout(0.3),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(len(dataset.classes), activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(5e-3),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(*train, batch_size=args.batch_size, epochs=args.epochs, verbose=2)
    accuracy = model.evaluate(*test, verbose=0)[1]
    table = layer.input_dim * layer.output_dim
    numbers = layer.nnz + layer.num_anchors * layer.output_dim
    print(
        f"\nAccuracy on test texts: {accuracy:.3f}, with {numbers:,} numbers "
        f"where a table has {table:,}: {table / numbers:.0f} times fewer."
    )
    counts, _ = count_words(train[0], vocabulary)
    pairs = associations(layer, vocabulary, counts >= args.min_count)
    anchors = [vocabulary[anchor] for anchor in layer.anchor_ids]
    print_tables(pairs, anchors, args.words.split(",") if args.words else [])
    return pairs


if __name__ == "__main__":
    main()
