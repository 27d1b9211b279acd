"""Sentences and their translations: Multi30k, made-up ones."""

import collections
import gzip
import io

import keras
import numpy as np
import tensorflow as tf

# Ids of pieces.
PAD, UNKNOWN, START, END = range(4)
TESTS = ("test_2016_flickr", "test_2017_flickr")


def read(folder):
    """Dict from parts to lists of German and of English lines."""
    folder = folder / "multi30k_de_en"
    found = {}
    for part in ("train", "val", *TESTS):
        found[part] = []
        for language in ("de", "en"):
            path = folder / f"{part}.{language}.gz"
            with gzip.open(path, "rt", encoding="utf-8") as file:
                found[part].append(file.read().splitlines())
    return found


def generated():
    """Sentences whose translation is the same words in another alphabet."""
    rng = np.random.default_rng(0)
    found = {}
    for part, size in (("train", 200), ("val", 20), *((x, 20) for x in TESTS)):
        lines = [
            rng.integers(999, size=rng.integers(2, 4)) for _ in range(size)
        ]
        found[part] = [
            [" ".join(f"{letter}{word}" for word in line) for line in lines]
            for letter in "ab"
        ]
    return found


class Texts:
    """Lines of both languages as ids of pieces of words (sentencepiece)."""

    def __init__(self, lines, pieces):
        self.lines = lines
        self.processors = list(map(learn_pieces, lines["train"], pieces))
        self.ids = {
            part: [self.pair(*both) for both in zip(*sides, strict=True)]
            for part, sides in lines.items()
        }

    @property
    def sizes(self):
        return [processor.vocab_size() for processor in self.processors]

    def pair(self, *lines):
        """Ids of a line and of its translation."""
        first, second = (
            processor.encode(line.lower())
            for processor, line in zip(self.processors, lines, strict=True)
        )
        return (
            np.array([*first, END], "int32"),
            np.array([START, *second, END], "int32"),
        )

    def english(self, ids):
        """The line of ids, up to the end."""
        ids = ids.tolist()
        ids = ids[: ids.index(END)] if END in ids else ids
        return self.processors[1].decode(ids)


def learn_pieces(lines, count):
    """A processor of sentencepiece: byte-pair encoding, as in the paper."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line.lower() for line in lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=count,
        hard_vocab_limit=False,
        pad_id=PAD,
        unk_id=UNKNOWN,
        bos_id=START,
        eos_id=END,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


class Batches:
    """Batches of sources of one length, so that no layer needs a mask.

    Their targets have about one length: one word in four would be padding.
    """

    def __init__(self, pairs, size, seed=None):
        self.pairs, self.size = pairs, size
        self.rng = None if seed is None else np.random.default_rng(seed)
        self.places = collections.defaultdict(list)
        for place, (source, _) in enumerate(pairs):
            self.places[len(source)].append(place)

    def __len__(self):
        return sum(-(-len(x) // self.size) for x in self.places.values())

    def __iter__(self):
        """Yields places, inputs and targets, in an order of chance."""
        found = []
        for places in self.places.values():
            if self.rng is not None:
                places = self.rng.permutation(places)
            places = sorted(places, key=lambda x: len(self.pairs[x][1]))
            found += np.split(places, range(self.size, len(places), self.size))
        if self.rng is not None:
            self.rng.shuffle(found)
        for places in found:
            source = np.stack([self.pairs[place][0] for place in places])
            targets = [self.pairs[place][1] for place in places]
            target = keras.utils.pad_sequences(targets, padding="post")
            yield places, (source, target[:, :-1]), target[:, 1:]

    def dataset(self):
        """`tf.data.Dataset` of inputs and targets."""
        ids = tf.TensorSpec((None, None), "int32")
        dataset = tf.data.Dataset.from_generator(
            lambda: ((inputs, targets) for _, inputs, targets in self),
            output_signature=((ids, ids), ids),
        )
        return dataset.apply(tf.data.experimental.assert_cardinality(len(self)))
