"""What do anchors cost in perplexity, in and out? Table 2 of Liang et al.

Trains an LSTM language model on Penn Treebank that reads and predicts words
with one matrix: a full table, or an `ANTEmbedding` with the same words as
classes, called with `reverse=True` for the logits of all words. Prints
perplexity, and numbers: anchors and the non-zeros of T. Results are kept in a
JSON file as they come; what stands there is not run again, and a row that was
stopped goes on from its last epoch.

    COMPEMBED_DATA=... python benchmarks/ant_language_model.py

The data folder holds `ptb/ptb.{train,valid,test}.txt.xz`. Rows are chosen by
`--rows`, a regular expression.

The model is the paper's, of two LSTMs of 200; the training is not: one epoch
of Adam instead of 500 of SGD. Steps take a softmax over the frequent words
and a sample of the others, of which only those rows of T are looked up
(appendix C). Perplexity is over all words. Compare rows with each other, not
with the paper.

Paper: https://arxiv.org/abs/2003.08197
"""
# ruff: noqa: E402

import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
import word_lstm
from record import write_record

import keras_compembed as kc

FOLDER = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String.
        num_anchors: Integer, or None for the full table.
        l1: Number, or None.
    """

    name: str
    num_anchors: int | None = None
    l1: float | None = None


def all_rows(args):
    rows = [Row("table")]
    for num_anchors in args.num_anchors:
        for l1 in args.l1:
            rows.append(
                Row(f"{num_anchors} anchors, l1 {l1:g}", num_anchors, l1)
            )
    return [row for row in rows if re.search(args.rows, row.name)]


def main(arguments=None):
    args = parse(arguments)
    recipe = word_lstm.Recipe(**args.recipe)
    text = word_lstm.Text(pathlib.Path(args.data) / "ptb")
    lines = []
    if args.output.exists():
        lines = json.loads(args.output.read_text())["rows"]
    for row in all_rows(args):
        key = dataclasses.asdict(row) | {"recipe": dataclasses.asdict(recipe)}
        if any(key.items() <= line.items() for line in lines):
            continue
        print(row.name, flush=True)
        lines.append(key | run(row, text, recipe, args))
        save(args.output, lines)
    print_table(lines)
    return lines


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data",
        default=os.environ.get("COMPEMBED_DATA"),
        help="data folder; default: the environment variable COMPEMBED_DATA",
    )
    parser.add_argument("--rows", default="", help="regular expression")
    parser.add_argument(
        "--num-anchors",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[500, 1000],
    )
    parser.add_argument(
        "--l1",
        type=lambda text: [float(part) for part in text.split(",")],
        default=[1e-5],
    )
    for field in dataclasses.fields(word_lstm.Recipe):
        default = {"epochs": 1}.get(field.name, field.default)
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=field.type,
            default=default,
        )
    parser.add_argument(
        "--cache",
        type=pathlib.Path,
        default=FOLDER.parent / "build" / "ant_language_model",
        help="folder of unfinished rows",
    )
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path(__file__).with_suffix(".json"),
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a tiny model and few steps, to see that it runs",
    )
    args = parser.parse_args(arguments)
    if not args.data:
        sys.exit("Name the data folder: --data, or COMPEMBED_DATA.")
    if args.quick:
        args.num_anchors, args.l1 = [6], [1e-3]
        args.epochs = 2
        args.batch_size, args.steps, args.units, args.layers = 4, 3, 8, 1
        args.frequent, args.sampled = 10, 5
    args.recipe = {
        field.name: getattr(args, field.name)
        for field in dataclasses.fields(word_lstm.Recipe)
    }
    return args


def run(row, text, recipe, args):
    keras.utils.set_random_seed(recipe.seed)
    digest = hashlib.sha256(repr((row, recipe)).encode()).hexdigest()[:8]
    folder = args.cache / digest
    embedding = make_embedding(row, len(text.vocabulary), recipe)
    steps = len(text.ids["train"]) // (recipe.batch_size * recipe.steps)
    model = TiedLanguageModel(
        embedding, text.counts, recipe, steps * recipe.epochs
    )
    model.build((recipe.batch_size, recipe.steps))
    epochs = word_lstm.train(model, text, folder)
    figures = {
        "valid": word_lstm.perplexity(model, text, "valid"),
        "test": word_lstm.perplexity(model, text, "test"),
        "parameters": count_parameters(embedding),
        "seconds": round(sum(epoch["seconds"] for epoch in epochs)),
    }
    shutil.rmtree(folder)
    print(f"  {figures}", flush=True)
    return figures


def make_embedding(row, num_words, recipe):
    if row.num_anchors is None:
        return keras.layers.ReversibleEmbedding(
            num_words,
            recipe.units,
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=0.1, seed=recipe.seed
            ),
        )
    return kc.ANTEmbedding(
        num_words,
        recipe.units,
        num_anchors=row.num_anchors,
        anchors_initializer=kc.anchors.Dynamic(recipe.seed),
        l1=row.l1,
        # A few short numbers, the layer's own start, would give rare words
        # no gradient to grow by.
        transform_initializer=keras.initializers.RandomUniform(
            0.0, row.num_anchors**-0.5, seed=recipe.seed
        ),
        storage="lazy",
        seed=recipe.seed,
    )


class TiedLanguageModel(word_lstm.LanguageModel):
    """Predicts words with the matrix that it reads them with."""

    def __init__(self, *args):
        super().__init__(*args)
        inner = self.optimizer
        self.compile(kc.optimizers.SparseRowOptimizer(inner))

    def build(self, input_shape):
        self.embedding.build(input_shape)
        for lstm in self.lstms:
            lstm.build((*input_shape, self.recipe.units))
        self.bias = self.add_weight(
            shape=(self.num_words,),
            initializer=lambda shape, dtype: np.log(
                self.counts / self.counts.sum()
            ),
            name="bias",
        )
        self.built = True

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        features = tf.reshape(y_pred, (-1, self.recipe.units))
        labels = tf.cast(tf.reshape(y, (-1,)), "int64")
        softmax = self._sampled_loss if training else self._full_loss
        loss = tf.reduce_mean(softmax(features, labels))
        self.task_loss.update_state(loss)
        return loss + sum(self.losses)

    def _full_loss(self, features, labels):
        logits = self.embedding(features, reverse=True) + self.bias
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

    def _sampled_loss(self, features, labels):
        frequent = min(self.recipe.frequent, self.num_words - 1)
        others = self.num_words - frequent
        sampled = min(self.recipe.sampled, others)
        drawn = tf.random.uniform_candidate_sampler(
            tf.zeros((1, 1), "int64"), 1, sampled, True, others
        ).sampled_candidates
        # The labels of a batch are candidates too: all that is looked up.
        ids = tf.concat(
            [tf.range(frequent, dtype="int64"), frequent + drawn, labels], 0
        )
        vectors = self.embedding(ids)
        count = frequent + sampled
        biases = tf.gather(self.bias.value * 1.0, ids)
        chance = tf.where(ids < frequent, 1.0, sampled / others)
        biases -= tf.math.log(chance)
        logits = tf.matmul(features, vectors[:count], transpose_b=True)
        logits += biases[:count]
        true = tf.reduce_sum(features * vectors[count:], axis=1)
        true += biases[count:]
        hits = tf.equal(labels[:, None], ids[None, :count])
        logits = tf.where(hits, -1e9, logits)
        logits = tf.concat([true[:, None], logits], axis=1)
        return tf.reduce_logsumexp(logits, axis=1) - true


def count_parameters(embedding):
    if isinstance(embedding, kc.ANTEmbedding):
        anchors = embedding.num_anchors * embedding.output_dim
        return anchors + embedding.nnz
    return embedding.count_params()


def save(path, lines):
    write_record(path, "python benchmarks/ant_language_model.py", rows=lines)


def print_table(lines):
    print("| row | epochs | valid | test | numbers | s |")
    print("|---|---|---|---|---|---|")
    for line in lines:
        print(
            f"| {line['name']} | {line['recipe']['epochs']} "
            f"| {line['valid']:.1f} | {line['test']:.1f} "
            f"| {line['parameters']:,} | {line['seconds']} |"
        )


if __name__ == "__main__":
    main()
