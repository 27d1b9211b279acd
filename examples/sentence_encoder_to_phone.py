"""Shrinks a sentence encoder without labels, and exports it for phones.

Loads a BERT-like encoder from a Hugging Face folder, such as all-MiniLM-L6-v2.
Its vector of a text is the mean of its tokens. Two ways to a small file:

- `transformer`: the token table becomes codes, which are trained towards the
  encoder's vectors. All other weights become int8. The file takes texts, and
  runs in LiteRT with the tokenizer ops of tensorflow-text.
- `static`: one vector per piece of a small vocabulary, also learned from the
  encoder, then codes. MediaPipe's `TextEmbedder` opens the file.

Texts need no labels. With `--data`, a folder of data sets, but no `--texts`,
they are training questions of CLINC150; `static` adds lines of 20 Newsgroups.
It also learns the words of the encoder's vocabulary. Figures with `--data`:

- neighbor: how often the nearest validation question has a test's intent,
- intents, newsgroups: the accuracy of ridge regression on vectors,
- words: Spearman's correlation with word similarities of MEN.

    python -m examples.sentence_encoder_to_phone FOLDER --texts mails.txt
    python -m examples.sentence_encoder_to_phone FOLDER --way static
    python -m examples.sentence_encoder_to_phone FOLDER --data DATA --seeds 3

`--static FOLDER` adds rows for a static encoder of others, such as WordLlama:
a folder with a table in safetensors and a `tokenizer.json`.
"""

import argparse
import functools
import json
import os
import pathlib
import re

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from examples import labelled_texts

# Texts to compare vectors on. Only the tokenizer is trained on them.
HELD = 1000
TABLE_EPOCHS = 10
SAMPLE = 20  # Test texts kept with a saved model.
CARD = {
    "summary": "Turns an English text into a unit vector of {width} numbers. "
    "Texts that mean the same have near vectors. MediaPipe's TextEmbedder "
    "opens the file as it is, on phones and in browsers.",
    "license": "apache-2.0",
    "task": "sentence-similarity",
    "language": "en",
    "tags": ["mediapipe"],
    "data": "The vectors were learned from all-MiniLM-L6-v2 (Apache-2.0), on "
    "{texts:,} texts without labels: questions of CLINC150 (Larson et al., "
    "2019, CC BY 3.0), lines of 20 Newsgroups, words of the encoder. The "
    "tokenizer has {pieces:,} pieces, learned from the same texts. A text's "
    "vector is the mean of those of its pieces, which are codes.",
    "results": "| measure | |\n|---|---:|\n"
    "| CLINC150: the nearest validation question has the intent | "
    "{neighbor:.1%} |\n"
    "| CLINC150: ridge regression on vectors | {intents:.1%} |\n"
    "| 20 Newsgroups: ridge regression on vectors | {newsgroups:.1%} |\n"
    "| Spearman's correlation with word similarities of MEN | {words:.2f} |",
    "limits": "The order of words does not count. It knows frequent words, "
    "names and places of the web, and learned from posts of 1993.",
    "inputs": "One text, a string of any length.",
    "outputs": "A vector of length 1.",
    "files": {
        "model.keras": "the Keras model with its tokenizer",
        "model.tflite": "the LiteRT file for MediaPipe, int8 weights",
        "sample.json": f"{SAMPLE} test texts, and the vectors of the file",
    },
}


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("encoder", help="a Hugging Face folder with a BERT model")
    add("--texts", help="a .txt file, one text per line (default: docstrings)")
    add("--data", help="clinc150, 20newsgroups, word_similarity in a folder")
    add("--way", choices=("transformer", "static"), default="transformer")
    add("--output", default="build/sentence_encoder_to_phone")
    add("--num-codebooks", type=int, default=32)
    add("--max-texts", type=int, default=5000)
    add("--length", type=int, default=32, help="tokens per text, at most")
    add("--epochs", type=int, default=3)
    add("--learning-rate", type=float, help="default: 5e-4; static: 2e-3")
    add("--pieces", type=int, default=6000, help="of the static encoder")
    add("--width", type=int, default=256, help="of the static vectors")
    add("--baselines", action="store_true", help="other methods as small")
    add("--static", help="a folder of a static encoder, to compare with")
    add("--save", help="folder for a preset of the static encoder")
    add("--seed", type=int, default=0)
    add("--seeds", type=int, default=1)
    args = parser.parse_args(argv)
    if args.save and (args.texts or not args.data or args.way != "static"):
        parser.error("--save needs --data and --way static, without --texts")
    if args.learning_rate is None:
        args.learning_rate = 2e-3 if args.way == "static" else 5e-4
    return args


def load_encoder(folder, length):
    """A model from texts to unit vectors."""
    import keras_hub

    tokenizer = kc.text.WordPieceTokenizer(
        pathlib.Path(folder) / "vocab.txt",
        add_cls=True,
        add_sep=True,
        sequence_length=length,
        name="tokenizer",
    )
    backbone = keras_hub.models.BertBackbone.from_preset(str(folder))
    text = keras.Input((), dtype="string", name="text")
    ids = tokenizer(text)
    real = keras.ops.not_equal(ids, 0)
    tokens = backbone(
        {
            "token_ids": ids,
            "segment_ids": keras.ops.zeros_like(ids),
            "padding_mask": keras.ops.cast(real, "int32"),
        }
    )
    mean = keras.layers.GlobalAveragePooling1D(name="mean")(
        tokens["sequence_output"], mask=real
    )
    vector = keras.layers.UnitNormalization(name="vector")(mean)
    return keras.Model(text, vector, name="encoder")


def vectors_of(model, texts):
    return model.predict(tf.constant(texts), batch_size=64, verbose=0)


def encoder_of(model):
    return functools.partial(vectors_of, model)


def principal_columns(vectors, width):
    """The directions, `(columns, width)`, in which vectors vary most."""
    _, directions = np.linalg.eigh(vectors.T @ vectors)
    return directions[:, ::-1][:, :width].astype("float32")


def start_static(encoder, texts, every, args, seed):
    """A static encoder, and a model with the vectors that it is to learn."""
    keras.utils.set_random_seed(seed)
    wanted = vectors_of(encoder, texts)
    directions = principal_columns(wanted, args.width)
    teacher = remembered(texts, keras.utils.normalize(wanted @ directions))
    pieces = kc.text.SentencePieceTokenizer.train(
        every, args.pieces, name="pieces"
    )
    names = [x.replace("\u2581", "") or "." for x in pieces.get_vocabulary()]
    counts = pieces.count_ids(every)
    # Frequent pieces say little.
    weight = 1e-3 / (1e-3 + counts / counts.sum())
    rows = vectors_of(encoder, names) @ directions * weight[:, None]
    table = keras.layers.Embedding(
        len(rows), args.width, mask_zero=True, weights=[rows], name="table"
    )
    static = keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            pieces,
            table,
            keras.layers.GlobalAveragePooling1D(name="mean"),
            keras.layers.UnitNormalization(name="vector"),
        ],
        name="static_encoder",
    )
    return static, teacher


def remembered(texts, vectors):
    """A model that knows the vectors of texts."""
    names = tf.lookup.KeyValueTensorInitializer(texts, tf.range(len(texts)))
    numbers = tf.lookup.StaticHashTable(names, -1)
    rows = tf.constant(vectors)
    text = keras.Input((), dtype="string", name="text")
    look_up = keras.layers.Lambda(
        lambda x: tf.gather(rows, numbers[x]), output_shape=rows.shape[1:]
    )
    return keras.Model(text, look_up(text))


class Measures:
    """Figures of functions from texts to unit vectors."""

    def __init__(self, encode, held, folder):
        self._held, self._wanted = held, encode(held)
        self._folder = folder and pathlib.Path(folder)

    def __call__(self, encode, is_static=False):
        found, wanted = encode(self._held), self._wanted
        if wanted.shape[1] != found.shape[1]:
            # Cosines between texts.
            wanted, found = (x[::2] @ x[1::2].T for x in (wanted, found))
        cosines = keras.losses.cosine_similarity(wanted, found)
        row = {"cosine": -float(np.mean(cosines))}
        if self._folder is None:
            return row
        texts, labels = self._intents.validation
        # The test texts are in the order of their labels.
        tests, wanted = (x[::3] for x in self._intents.test)
        nearest = np.argmax(encode(tests) @ encode(texts).T, axis=1)
        row["neighbor"] = float(np.mean(labels[nearest] == wanted))
        if is_static:
            row["intents"] = ridge_accuracy(encode, self._intents)
            row["newsgroups"] = ridge_accuracy(encode, self._posts)
            row["words"] = word_correlation(encode, self._folder)
        return row

    @functools.cached_property
    def _intents(self):
        return labelled_texts.intents(self._folder)

    @functools.cached_property
    def _posts(self):
        posts = labelled_texts.newsgroups(self._folder / "20newsgroups")
        return labelled_texts.split(posts, seed=0)


def ridge_accuracy(encode, dataset):
    """Test accuracy of the best of some ridge regressions on vectors."""
    parts = dataset.train, dataset.validation, dataset.test
    (x, y), *others = [
        (encode([text[:2000] for text in texts]), labels)
        for texts, labels in parts
    ]
    ones = np.eye(len(dataset.classes))[y] - 1 / len(dataset.classes)
    found = []
    for strength in (0.01, 0.1, 1, 10, 100):
        square = x.T @ x + strength * np.eye(x.shape[1])
        weights = np.linalg.solve(square, x.T @ ones)
        found.append(
            [np.mean(np.argmax(x @ weights, 1) == y) for x, y in others]
        )
    return float(max(found)[1])


def word_correlation(encode, folder):
    path = folder / "word_similarity" / "EN-MEN-TR-3k.txt"
    first, second, scores = zip(
        *map(str.split, path.read_text("utf-8").splitlines()), strict=True
    )
    cosines = np.sum(encode(first) * encode(second), axis=1)
    ranks = []
    for values in (cosines, np.array(scores, "float64")):
        _, places, counts = np.unique(
            values, return_inverse=True, return_counts=True
        )
        ranks.append((np.cumsum(counts) - counts / 2)[places])
    return float(np.corrcoef(*ranks)[0, 1])


def read_static(folder):
    """A function from texts to unit vectors, by another static encoder."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    paths = []
    for pattern in ("*.safetensors", "*tokenizer*.json"):
        found = sorted(pathlib.Path(folder).rglob(pattern))
        if not found:
            raise FileNotFoundError(f"There is no {pattern} in {folder}.")
        paths.append(str(found[0]))
    (rows,) = load_file(paths[0]).values()
    tokenizer = Tokenizer.from_file(paths[1])
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def encode(texts):
        found = tokenizer.encode_batch(list(texts), add_special_tokens=False)
        sums = [rows[x.ids].astype("float32").sum(axis=0) for x in found]
        return keras.utils.normalize(np.stack(sums))

    return encode


def methods_of(args, table):
    """Methods by name; the others take as many bytes as the codes."""
    num_rows, width = table.shape
    num_codebooks = args.num_codebooks
    methods = {"codes": kc.methods.Codes(num_codebooks, 16)}
    if args.baselines:
        size = num_codebooks * (num_rows / 2 + 16 * width)
        ranks = {
            bits: int((size - 2 * num_rows) / (num_rows * bits / 8 + width))
            for bits in (2, 4)
        }
        methods |= {
            "k-means": kc.methods.Codes(
                1, int((size - 1.25 * num_rows) / width)
            ),
            "int2": kc.methods.Quantized(2, rank=ranks[2], learn_rows=True),
            "int4": kc.methods.Quantized(4, rank=ranks[4]),
        }
    return methods


def decayed(learning_rate, epochs, texts):
    return keras.optimizers.schedules.CosineDecay(
        learning_rate, epochs * len(texts) // 32
    )


def shrink(model, teacher, texts, measure, args, seed, target):
    """Yields figures of each method, before and after training."""
    table = max(model.weights, key=lambda weight: weight.shape.num_elements())
    for name, method in methods_of(args, table).items():
        small = kc.compress_model(
            model, method, seed=seed, sample_inputs=texts, verbose=0
        )
        yield f"{name}, compressed", measure(encoder_of(small))
        rate = decayed(args.learning_rate, args.epochs, texts)
        kc.compression.distill(
            small,
            teacher,
            texts,
            epochs=args.epochs,
            optimizer=keras.optimizers.Adam(rate),
            seed=seed,
            verbose=2,
        )
        small = kc.strip(small)
        path = pathlib.Path(args.output) / f"{args.way}_{name}.tflite"
        export = kc.export_litert(
            small, path, target=target, overwrite=True, verbose=0
        )
        size = kc.size_report(small).embedding_bytes
        row = measure(encoder_of(small))
        row |= {"file": export.file_bytes, "embeddings": size}
        yield f"{name}, trained", row
        if args.save and name == "codes":
            save(small, path, args, row | {"texts": len(texts)})


def save(model, path, args, figures):
    tests, _ = labelled_texts.intents(pathlib.Path(args.data)).test
    tests = tests[:: len(tests) // SAMPLE]
    with kc.export.MediaPipeModel(path) as phone:
        vectors = phone.predict(tests)
    figures |= {"file_bytes": figures.pop("file"), "width": args.width}
    figures["pieces"] = len(model.get_layer("pieces").get_vocabulary())
    command = "python -m examples.sentence_encoder_to_phone FOLDER --data DATA"
    names = "way length max_texts epochs pieces num_codebooks seed save".split()
    for name in names:
        command += f" --{name.replace('_', '-')} {getattr(args, name)}"
    kc.save_preset(
        model,
        args.save,
        CARD | {"command": command},
        figures,
        files={
            "model.tflite": path,
            "sample.json": {
                "texts": tests,
                "vectors": np.round(vectors, 4).astype(float).tolist(),
            },
        },
        overwrite=True,
    )


def run(args, seed):
    """Yields pairs of a name and figures."""
    rng = np.random.default_rng(seed)
    if args.texts:
        lines = pathlib.Path(args.texts).read_text("utf-8").split("\n")
        texts = [x for x in lines if x.strip()]
    elif args.data:
        folder = pathlib.Path(args.data)
        texts = list(labelled_texts.intents(folder).train[0])
        if args.way == "static":
            posts, _ = labelled_texts.newsgroups(folder / "20newsgroups")
            lines = [line for _, post in posts for line in post.split("\n")]
            lines = [line for line in lines if len(line.split()) >= 8]
            texts += list(rng.choice(lines, 2 * len(texts)))
    else:
        texts = [text for text, _ in labelled_texts.docstrings()]
    texts = list(dict.fromkeys(texts))
    rng.shuffle(texts)
    other = args.static and read_static(args.static)
    every, held = texts, texts[:HELD]
    texts = texts[HELD : HELD + args.max_texts]
    if args.way == "static":
        names = pathlib.Path(args.encoder, "vocab.txt").read_text("utf-8")
        words = re.findall("^[a-z]{3,}$", names, re.MULTILINE)
        every, texts = every + words, texts + words
        rng.shuffle(texts)
    encoder = load_encoder(args.encoder, args.length)
    measure = Measures(encoder_of(encoder), held, args.data)
    yield "encoder", measure(encoder_of(encoder))
    target = kc.export.Target("tf-text")
    model = teacher = encoder
    if args.way == "static":
        measure = functools.partial(measure, is_static=True)
        if args.static:
            yield args.static, measure(other)
        model, teacher = start_static(encoder, texts, every, args, seed)
        yield "static, from tokens", measure(encoder_of(model))
        kc.compression.distill(
            model,
            teacher,
            texts,
            train_all=True,
            epochs=TABLE_EPOCHS,
            optimizer=kc.optimizers.SparseRowOptimizer(
                keras.optimizers.Adam(decayed(1e-3, TABLE_EPOCHS, texts))
            ),
            seed=seed,
        )
        yield "static, trained", measure(encoder_of(model))
        target = kc.export.Target("mediapipe", task="embedder")
    yield from shrink(model, teacher, texts, measure, args, seed, target)


def main(argv=None):
    args = parse_arguments(argv)
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    if args.save:
        pathlib.Path(args.save).parent.mkdir(parents=True, exist_ok=True)
    found = []
    for seed in range(args.seed, args.seed + args.seeds):
        for name, row in run(args, seed):
            found.append({"name": name, "seed": seed, **row})
            figures = ", ".join(f"{key} {x:,.4g}" for key, x in row.items())
            print(f"{name}: {figures}", flush=True)
    path = output / f"{args.way}.json"
    path.write_text(json.dumps(found, indent=2) + "\n")
    return found


if __name__ == "__main__":
    main()
