"""What do anchors cost in perplexity, in and out? Table 2 of Liang et al.

An LSTM on Penn Treebank that reads and predicts words with one matrix, a table
or an `ANTEmbedding` from nothing. Steps take a softmax over frequent words and
a sample of the others (appendix C); perplexity is over all words.
Paper: https://arxiv.org/abs/2003.08197.
"""

import dataclasses
import functools

import keras
import numpy as np
import tensorflow as tf

import keras_compembed as kc
from benchmarks.anchors.classification import near_words
from benchmarks.anchors.classification import read_wordnet
from benchmarks.common import word_lstm
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data.words import Text
from keras_compembed.anchors.anchor_initializer import Dynamic


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    num_anchors: int | None = None
    nonzeros: int | None = None
    by: str = "dynamic"
    relations: bool = False
    negative_weight: float = 0.0
    num_sets: int = 1


ROWS = [
    Row("table"),
    Row("1,000 anchors", 1000, 210_000),
    Row("100 anchors", 100, 30_000),
    Row("100 by frequency", 100, 30_000, "frequency"),
    Row("100 by frequency, relations", 100, 30_000, "frequency", True),
    Row("100, relations, negative", 100, 30_000, "frequency", True, 1.0),
    Row("5 sets of 20", 100, 30_000, num_sets=5),
]


class TiedWords(Benchmark):
    settings = word_lstm.recipe_flags(epochs=2) | {
        "first_l1": Flag(1e-5, "of the first epoch; then a target leads it")
    }
    quick = word_lstm.QUICK

    def rows(self):
        if self.args.quick:
            return [Row("table"), Row("anchors", 6, 60, "frequency", True)]
        return ROWS

    @functools.cached_property
    def text(self):
        return Text(self.folder / "ptb")

    def measure(self, row, seed):
        text, recipe = self.text, word_lstm.Recipe.of(self.args, seed)
        keras.utils.set_random_seed(seed)
        embedding = self.embedding(row, recipe)
        steps = len(text.ids["train"]) // (recipe.batch_size * recipe.steps)
        sizes = text.counts, recipe, steps * recipe.epochs
        model = TiedLanguageModel(embedding, *sizes, self.jit_compile)
        model.build((recipe.batch_size, recipe.steps))

        def hold_l1(step, logs):
            if row.nonzeros and model.optimizer.iterations < steps:
                embedding.l1 = self.args.first_l1

        hold = keras.callbacks.LambdaCallback(on_train_batch_begin=hold_l1)
        _, seconds = word_lstm.train(model, text, [hold])
        if row.nonzeros:
            transform = embedding.get_transform()
            print(f"  {transform.nnz} before the smallest are dropped")
            embedding.assign_transform(transform.keep_largest(row.nonzeros))
        return {
            "valid": word_lstm.perplexity(model, text, "valid"),
            "test": word_lstm.perplexity(model, text, "test"),
            "parameters": count_numbers(embedding),
            "seconds": seconds,
        }

    def embedding(self, row, recipe):
        number = len(self.text.vocabulary)
        if row.num_anchors is None:
            return plain_table(number, recipe.units, recipe.seed)
        # A few short numbers, the layer's own start, would give rare words
        # no gradient to grow by.
        start = keras.initializers.RandomUniform(
            0.0, row.num_anchors**-0.5, seed=recipe.seed
        )
        anchors = Dynamic(recipe.seed)
        if row.by == "frequency":
            anchors = kc.anchors.Frequency(self.text.counts, seed=recipe.seed)
        activation = "softmax" if row.num_sets > 1 else None
        return kc.ANTEmbedding(
            number,
            recipe.units,
            num_anchors=row.num_anchors,
            anchors=anchors,
            transform=kc.anchors.Transform(
                "lazy", activation, start, num_sets=row.num_sets
            ),
            l1=kc.anchors.L1(
                self.args.first_l1,
                target_nonzeros=row.nonzeros,
                negative_weight=row.negative_weight,
            ),
            relations=self.relations if row.relations else None,
        )

    @functools.cached_property
    def relations(self):
        words = self.text.vocabulary
        near = near_words(self.text.ids["train"], len(words))
        if self.args.quick:
            return near
        return near | read_wordnet(words, self.folder)


def plain_table(num_words, width, seed):
    start = keras.initializers.RandomNormal(stddev=0.1, seed=seed)
    return keras.layers.ReversibleEmbedding(
        num_words, width, embeddings_initializer=start
    )


def count_numbers(embedding):
    """Weights; of an `ANTEmbedding`, anchors and the non-zeros of T."""
    if isinstance(embedding, kc.ANTEmbedding):
        return embedding.num_anchors * embedding.output_dim + embedding.nnz
    return embedding.count_params()


class TiedLanguageModel(word_lstm.LanguageModel):
    """Predicts words with the matrix that it reads them with."""

    def __init__(
        self, embedding, counts, recipe, total_steps, jit_compile, rate=None
    ):
        super().__init__(embedding, counts, recipe, total_steps, jit_compile)
        inner = self.optimizer
        if rate is not None:
            inner = keras.optimizers.Adam(rate, global_clipnorm=recipe.clipnorm)
        self.compile(
            kc.optimizers.SparseRowOptimizer(inner), jit_compile=jit_compile
        )

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
        # A lookup outside of the model's call forgets them.
        others = sum(self.losses)
        features = tf.reshape(y_pred, (-1, self.recipe.units))
        labels = tf.cast(tf.reshape(y, (-1,)), "int64")
        softmax = self._sampled_loss if training else self._full_loss
        loss = tf.reduce_mean(softmax(features, labels))
        self.task_loss.update_state(loss)
        return loss + others

    def _full_loss(self, features, labels):
        logits = self.embedding(features, reverse=True) + self.bias
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

    def _sampled_loss(self, features, labels):
        candidates, chance = self.sampled_words()
        count = candidates.shape[0]
        # The labels of a batch are candidates too: all that is looked up.
        ids = tf.concat([candidates, labels], 0)
        vectors = self.embedding(ids)
        biases = tf.gather(self.bias.value * 1.0, ids)
        biases -= tf.math.log(chance(ids))
        logits = tf.matmul(features, vectors[:count], transpose_b=True)
        logits += biases[:count]
        true = tf.reduce_sum(features * vectors[count:], axis=1)
        true += biases[count:]
        hits = tf.equal(labels[:, None], ids[None, :count])
        logits = tf.where(hits, -1e9, logits)
        logits = tf.concat([true[:, None], logits], axis=1)
        return tf.reduce_logsumexp(logits, axis=1) - true


main = functools.partial(run, TiedWords)
