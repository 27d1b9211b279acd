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
from benchmarks.common import word_lstm
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data.words import Text
from keras_compembed.anchors.anchor_initializer import Dynamic


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    num_anchors: int | None = None
    l1: float | None = None


class TiedWords(Benchmark):
    settings = word_lstm.recipe_flags(epochs=1)
    choices = {
        "num_anchors": (500, 1000),
        "l1": (1e-5,),
    }
    quick = word_lstm.QUICK | {"num_anchors": (6,), "l1": (1e-3,)}

    def rows(self):
        return [Row("table")] + [
            Row(f"{number} anchors, l1 {l1:g}", number, l1)
            for number in self.args.num_anchors
            for l1 in self.args.l1
        ]

    @functools.cached_property
    def text(self):
        return Text(self.folder / "ptb")

    def measure(self, row, seed):
        text, recipe = self.text, word_lstm.Recipe.of(self.args, seed)
        keras.utils.set_random_seed(seed)
        embedding = make_embedding(row, len(text.vocabulary), recipe)
        steps = len(text.ids["train"]) // (recipe.batch_size * recipe.steps)
        model = TiedLanguageModel(
            embedding,
            text.counts,
            recipe,
            steps * recipe.epochs,
            self.jit_compile,
        )
        model.build((recipe.batch_size, recipe.steps))
        _, seconds = word_lstm.train(model, text)
        return {
            "valid": word_lstm.perplexity(model, text, "valid"),
            "test": word_lstm.perplexity(model, text, "test"),
            "parameters": count_numbers(embedding),
            "seconds": seconds,
        }


def make_embedding(row, num_words, recipe):
    if row.num_anchors is None:
        return keras.layers.ReversibleEmbedding(
            num_words,
            recipe.units,
            embeddings_initializer=keras.initializers.RandomNormal(
                stddev=0.1, seed=recipe.seed
            ),
        )
    # A few short numbers, the layer's own start, would give rare words no
    # gradient to grow by.
    start = keras.initializers.RandomUniform(
        0.0, row.num_anchors**-0.5, seed=recipe.seed
    )
    return kc.ANTEmbedding(
        num_words,
        recipe.units,
        num_anchors=row.num_anchors,
        anchors=Dynamic(recipe.seed),
        transform=kc.anchors.Transform("lazy", initializer=start),
        l1=row.l1,
    )


def count_numbers(embedding):
    """Weights; of an `ANTEmbedding`, anchors and the non-zeros of T."""
    if isinstance(embedding, kc.ANTEmbedding):
        return embedding.num_anchors * embedding.output_dim + embedding.nnz
    return embedding.count_params()


class TiedLanguageModel(word_lstm.LanguageModel):
    """Predicts words with the matrix that it reads them with."""

    def __init__(
        self, embedding, counts, recipe, total_steps, jit_compile="auto"
    ):
        super().__init__(embedding, counts, recipe, total_steps, jit_compile)
        inner = self.optimizer
        self.compile(
            kc.optimizers.SparseRowOptimizer(inner),
            jit_compile=jit_compile,
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
