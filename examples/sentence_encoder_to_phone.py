"""Shrinks a sentence encoder without labels, and exports it for phones.

Loads a BERT-like encoder from a Hugging Face folder, such as all-MiniLM-L6-v2.
Its vector of a text is the mean of its tokens. Two ways to a small file:

- `transformer`: the token table becomes codes, which are trained towards the
  encoder's vectors. All other weights become int8. The file takes texts, and
  runs in LiteRT with the tokenizer ops of tensorflow-text.
- `static`: one vector per piece of a small vocabulary, also learned from the
  encoder, then codes. MediaPipe's `TextEmbedder` opens the file.

Texts need no labels. With `--data`, a folder with CLINC150, texts are its
training questions, and each row shows how often the nearest validation question
has the intent of a test question.

    python -m examples.sentence_encoder_to_phone FOLDER --texts mails.txt
    python -m examples.sentence_encoder_to_phone FOLDER --way static
    python -m examples.sentence_encoder_to_phone FOLDER --data DATA --seeds 3
"""

import argparse
import json
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from examples import labelled_texts

# Texts to compare vectors on, none of which is trained on.
HELD = 1000


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("encoder", help="a Hugging Face folder with a BERT model")
    add("--texts", help="a .txt file, one text per line (default: docstrings)")
    add("--data", help="a folder with the folder `clinc150`")
    add("--way", choices=("transformer", "static"), default="transformer")
    add("--output", default="build/sentence_encoder_to_phone")
    add("--num-codebooks", type=int, default=32)
    add("--max-texts", type=int, default=5000)
    add("--length", type=int, default=32, help="tokens per text, at most")
    add("--epochs", type=int, default=3)
    add("--learning-rate", type=float, default=2e-3)
    add("--pieces", type=int, default=6000, help="of the static encoder")
    add("--width", type=int, default=256, help="of the static vectors")
    add("--baselines", action="store_true", help="other methods as small")
    add("--seed", type=int, default=0)
    add("--seeds", type=int, default=1)
    return parser.parse_args(argv)


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


def principal_columns(vectors, width):
    """The directions, `(columns, width)`, in which vectors vary most."""
    _, directions = np.linalg.eigh(vectors.T @ vectors)
    return directions[:, ::-1][:, :width].astype("float32")


def start_static(encoder, texts, args, seed):
    """A static encoder, and a model with the vectors that it is to learn."""
    keras.utils.set_random_seed(seed)
    directions = principal_columns(vectors_of(encoder, texts), args.width)
    start = keras.initializers.Constant(directions)
    project = keras.layers.Dense(
        args.width, use_bias=False, kernel_initializer=start, name="project"
    )
    unit = keras.layers.UnitNormalization(name="unit")
    teacher = keras.Model(encoder.input, unit(project(encoder.output)))
    pieces = kc.text.SentencePieceTokenizer.train(
        texts, args.pieces, name="pieces"
    )
    names = [x.replace("\u2581", "") or "." for x in pieces.get_vocabulary()]
    counts = pieces.count_ids(texts)
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


class Measures:
    """Compares vectors with those of the encoder, on texts held out."""

    def __init__(self, encoder, held, dataset=None):
        self._held, self._dataset = held, dataset
        self._encoder, self._wanted = encoder, vectors_of(encoder, held)

    def __call__(self, model):
        found = vectors_of(model, self._held)
        wanted = self._wanted
        if wanted.shape[1] != found.shape[1]:
            # Cosines between texts.
            wanted, found = (x[::2] @ x[1::2].T for x in (wanted, found))
        cosines = keras.losses.cosine_similarity(wanted, found)
        row = {"cosine": -float(np.mean(cosines))}
        if self._dataset is not None:
            texts, labels = self._dataset.validation
            # The test texts are in the order of their labels.
            tests, wanted = (x[::3] for x in self._dataset.test)
            similar = vectors_of(model, tests) @ vectors_of(model, texts).T
            right = labels[np.argmax(similar, axis=1)] == wanted
            row["neighbor"] = float(np.mean(right))
        return row


def methods_of(args):
    """Methods by name; the others take as many bytes as the codes."""
    methods = {"codes": kc.methods.Codes(args.num_codebooks, 16)}
    if args.baselines:
        methods |= {
            "k-means": kc.methods.Codes(1, args.num_codebooks * 32),
            "int2": kc.methods.Quantized(
                2, rank=2 * args.num_codebooks, learn_rows=True
            ),
        }
    return methods


def shrink(model, teacher, texts, measure, args, seed, target):
    """Yields figures of each method, before and after training."""
    for name, method in methods_of(args).items():
        small = kc.compress_model(
            model, method, seed=seed, sample_inputs=texts, verbose=0
        )
        yield f"{name}, compressed", measure(small)
        rate = keras.optimizers.schedules.CosineDecay(
            args.learning_rate, args.epochs * len(texts) // 32
        )
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
        row = {"file": export.file_bytes, "embeddings": size}
        yield f"{name}, trained", measure(small) | row


def run(args, seed):
    """Yields pairs of a name and figures."""
    dataset = None
    if args.data:
        dataset = labelled_texts.intents(pathlib.Path(args.data))
        texts = list(dataset.train[0])
    elif args.texts:
        lines = pathlib.Path(args.texts).read_text("utf-8").split("\n")
        texts = [x for x in lines if x.strip()]
    else:
        texts = [text for text, _ in labelled_texts.docstrings()]
    np.random.default_rng(seed).shuffle(texts)
    held, texts = texts[:HELD], texts[HELD : HELD + args.max_texts]
    encoder = load_encoder(args.encoder, args.length)
    measure = Measures(encoder, held, dataset)
    yield "encoder", measure(encoder)
    target = kc.export.Target("tf-text")
    model = teacher = encoder
    if args.way == "static":
        model, teacher = start_static(encoder, texts, args, seed)
        yield "static, from tokens", measure(model)
        kc.compression.distill(
            model, teacher, texts, train_all=True, epochs=10, seed=seed
        )
        yield "static, trained", measure(model)
        target = kc.export.Target("mediapipe", task="embedder")
    yield from shrink(model, teacher, texts, measure, args, seed, target)


def main(argv=None):
    args = parse_arguments(argv)
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
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
