"""Glosses of WordNet's nouns as vectors, and their hypernyms as classes."""

import io
import tarfile

import numpy as np

from benchmarks.data.class_tasks import ClassTask
from benchmarks.data.vectors import minilm_folder
from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.files import replacing

# Tokens of a gloss that are read; 0.2 % of glosses have more.
LENGTH = 64


def gloss_vectors(folder, cache, least=1, seed=0):
    """Nouns whose class, the first hypernym, has at least `least` of them.

    Of the glosses, in an order drawn by `seed`, the first tenth is for
    validation, the next for the test.
    """
    texts, hypernyms = read_glosses(folder / "wordnet30" / "dict.tar.xz")
    table = encoded(texts, cache / "glosses.npy")
    names, labels, counts = np.unique(
        hypernyms, return_inverse=True, return_counts=True
    )
    kept = np.flatnonzero(counts[labels] >= least)
    classes, labels = np.unique(labels[kept], return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(kept))
    held = len(kept) // 10
    parts = {
        part: (table[kept[places]], labels[places].astype("int32"))
        for part, places in (
            ("valid", order[:held]),
            ("test", order[held : 2 * held]),
            ("train", order[2 * held :]),
        )
    }
    return ClassTask(names[classes].tolist(), **parts)


def read_glosses(archive):
    """Lists of glosses of nouns, and of the numbers of their hypernyms."""
    texts, hypernyms = [], []
    with tarfile.open(archive) as files:
        content = files.extractfile("dict/data.noun").read()
    for line in io.StringIO(content.decode("latin-1")):
        # The licence is indented.
        if line.startswith(" "):
            continue
        fields, gloss = line.split(" | ", 1)
        fields = fields.split()
        # After the words: their number of pointers, each of four fields.
        pointers = fields[5 + 2 * int(fields[3], 16) :]
        found = [
            pointers[place + 1]
            for place in range(0, len(pointers), 4)
            if pointers[place] == "@"
        ]
        if found:
            texts.append(gloss.strip())
            hypernyms.append(found[0])
    return texts, hypernyms


def encoded(texts, path):
    """float32 array of the vectors of all-MiniLM-L6-v2, kept in a file."""
    if not path.exists():
        table = encode(texts)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, overwrite=True) as beside:
            with open(beside, "wb") as file:
                np.save(file, table)
    return np.load(path)


def encode(texts, batch_size=128):
    """Vectors of texts, computed in order of length to pad little."""
    models = import_extra("keras_hub", "hub").models
    folder = str(minilm_folder())
    read = models.TextEmbedderPreprocessor.from_preset(
        folder, sequence_length=LENGTH
    )
    model = models.TextEmbedder.from_preset(folder, preprocessor=None)
    inputs = read(texts)
    inputs = {name: np.asarray(array) for name, array in inputs.items()}
    model.compile(jit_compile=False)
    lengths = inputs["padding_mask"].sum(axis=1)
    order = np.argsort(lengths)
    table = np.empty((len(texts), model.output.shape[-1]), "float32")
    for start in range(0, len(texts), batch_size):
        places = order[start : start + batch_size]
        # In steps of 8, so that few lengths are traced.
        most = -(-lengths[places].max() // 8) * 8
        batch = {name: array[places, :most] for name, array in inputs.items()}
        table[places] = model.predict_on_batch(batch)
    return table
