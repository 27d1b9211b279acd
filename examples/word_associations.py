"""Shows how a model composes word vectors from anchor words.

Trains a text classifier with an `ANTEmbedding` that uses frequent words as
anchors, and mean pooling. Prints Table 4 of Liang et al. (2021): for each
anchor word, the words with the largest weights of this anchor, then the largest
pairs of all. Words are related if they occur near each other more often than by
chance. With `--wordnet`, synonyms, antonyms and hypernyms are related as well.
Weights between related words are not shrunk.

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
        help="share of texts; more common words are no anchors",
    )
    parser.add_argument("--l1", type=float, default=1e-4)
    parser.add_argument(
        "--top", type=int, default=5, help="at most, related words of a word"
    )
    parser.add_argument(
        "--min-count", type=int, default=20, help="least count of shown words"
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--words", help="anchor words, comma-separated (default: the first)"
    )
    return parser.parse_args(argv)


def count_words(ids, vocabulary):
    """Counts of words, and of texts with each word."""
    counts = np.bincount(ids.ravel(), minlength=len(vocabulary))
    rows = np.sort(ids, axis=1)
    first = np.diff(rows, axis=1, prepend=-1) != 0
    texts = np.bincount(rows[first], minlength=len(vocabulary))
    counts[:2] = texts[:2] = 0  # Padding and unknown words.
    return counts, texts


def choose_anchors(ids, vocabulary, args):
    """Anchors for the most frequent words that are not too common."""
    counts, texts = count_words(ids, vocabulary)
    telling = texts <= args.common * len(ids)
    telling &= [bool(re.fullmatch("[a-z]{3,}", word)) for word in vocabulary]
    return kc.anchors.Frequency(np.where(telling, counts, 0), seed=args.seed)


def relate(ids, vocabulary, args):
    """Relations of words that co-occur, and of WordNet."""
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
    """Words and the anchor words in their vectors.

    Args:
        layer: `ANTEmbedding` with words as anchors.
        vocabulary: List of words.
        shown: Boolean array `(input_dim,)`, words that may be in the result.

    Returns:
        List of `(weight, word, anchor word)`, the largest weight first.
        Anchor words are not listed as words.
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
    print("\nlargest weights of the transform")
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
        f"\nTest accuracy: {accuracy:.3f}, with {numbers:,} parameters instead "
        f"of {table:,} in a table: {table / numbers:.0f} times fewer."
    )
    counts, _ = count_words(train[0], vocabulary)
    pairs = associations(layer, vocabulary, counts >= args.min_count)
    anchors = [vocabulary[anchor] for anchor in layer.anchor_ids]
    print_tables(pairs, anchors, args.words.split(",") if args.words else [])
    return pairs


if __name__ == "__main__":
    main()
