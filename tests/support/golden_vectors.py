"""Golden files of compressed word vectors, one for each way to store them."""

import json

import numpy as np

import keras_compembed as kc

WIDTH = 8
# With a space, signs of several bytes, none at all, and what looks like code.
WORDS = ["the", "a b", "été", "日本", "", "\U0001f600", "[UNK]", "2000"]
WORDS += [f"word{row}" for row in range(len(WORDS), 40)]
# Not among the words: those with n-grams have vectors of them.
UNKNOWN = ["word999", "wordless"]
QUERIES = ["the", "été", "word26"]


def make_vectors(subwords=False):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(len(WORDS), WIDTH)).astype("float32")
    letters = None
    if subwords:
        kept = np.array([1, 2, 5, 6, 9, 12, 13, 17, 18, 20, 25, 28])
        buckets = rng.normal(size=(len(kept), WIDTH)).astype("float32")
        letters = kc.vectors.Subwords(2, 4, buckets, bucket=30, kept=kept)
    return kc.vectors.WordVectors(WORDS, table, letters)


def learned(method, subwords=False):
    return kc.vectors.CompressedVectors.learn(
        make_vectors(subwords), method, seed=0, verbose=0
    )


def given(composition):
    """Codes that were not learned."""
    layer = kc.CodeEmbedding(
        len(WORDS), WIDTH, 4, 8, composition=composition, seed=0
    )
    layer.build()
    rng = np.random.default_rng(0)
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape))
    return kc.vectors.CompressedVectors(WORDS, layer)


methods = kc.methods
CASES = {
    "codes": lambda: learned(methods.Codes(4, 16, effort=0.2)),
    "codes-300": lambda: learned(methods.Codes(2, 300, effort=0.2)),
    "codes-concat": lambda: given("concat"),
    "codes-linear": lambda: learned(methods.Codes(4, 8, rank=5, effort=0.2)),
    "codes-lstm": lambda: given("lstm"),
    "rounded-8": lambda: learned(methods.Rounded(8)),
    "rounded-4": lambda: learned(methods.Rounded(4, block_size=3)),
    "rounded-2": lambda: learned(methods.Rounded(2, scale_dtype="int16")),
    "rounded-narrow": lambda: learned(methods.Rounded(4, rank=5)),
    "anchors": lambda: learned(methods.Anchors(9, 3)),
    "codes-letters": lambda: learned(methods.Codes(4, 8, effort=0.2), True),
    "rounded-letters": lambda: learned(methods.Rounded(4), True),
    "anchors-letters": lambda: learned(methods.Anchors(9, 4), True),
}


def describe(small):
    """What vectors answer, as JSON holds it."""
    unknown = [word for word in UNKNOWN if word in small]
    letters = small.subwords()
    return {
        "words": small.words,
        "method": small.method,
        "table": small.table().tolist(),
        "vectors": small[[*WORDS[:3], *unknown]].tolist(),
        "unknown": unknown,
        "letters": None if letters is None else letters.vectors.tolist(),
        "most_similar": [small.most_similar(q, topn=3) for q in QUERIES],
        "analogy": small.most_similar(["the", "word9"], ["word20"], topn=3),
    }


def write(name, folder):
    small = CASES[name]()
    path = folder / f"{name}.npz"
    small.save(path)
    text = json.dumps(describe(kc.vectors.CompressedVectors.load(path)))
    path.with_suffix(".json").write_text(text + "\n", "utf-8")
