"""Word-level LSTM language model, which two benchmarks train.

Text is laid out in `batch_size` streams that are read side by side, in
segments of `steps` words; the LSTMs' state is carried from a segment to the
next, as in Zaremba et al., 2014 (https://arxiv.org/abs/1409.2329).
"""

import dataclasses
import hashlib
import math
import time

import keras
import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How every row of the table is trained."""

    epochs: int = 4
    batch_size: int = 64
    steps: int = 20
    units: int = 200
    layers: int = 2
    dropout: float = 0.2
    learning_rate: float = 3e-3
    clipnorm: float = 1.0
    frequent: int = 1000
    sampled: int = 500
    seed: int = 0

    @classmethod
    def of(cls, args, seed):
        """The recipe that the flags of `recipe_flags` ask for."""
        return cls(
            seed=seed, **{name: getattr(args, name) for name in recipe_flags()}
        )

    def digest(self):
        """Eight digits that tell it from others, for names of folders."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:8]


# A tiny model and few steps.
QUICK = {
    "epochs": 2,
    "batch_size": 4,
    "steps": 3,
    "units": 8,
    "layers": 1,
    "frequent": 10,
    "sampled": 5,
}


def recipe_flags(**defaults):
    """Dict of the recipe's fields and defaults, but for the seed."""
    fields = {field.name: field.default for field in dataclasses.fields(Recipe)}
    del fields["seed"]
    return fields | defaults


class LanguageModel(keras.Model):
    """Embedding, stateful LSTMs, softmax with a matrix of its own."""

    def __init__(
        self, embedding, counts, recipe, total_steps, jit_compile="auto"
    ):
        super().__init__()
        self.recipe = recipe
        self.counts = np.array(counts)
        self.num_words = len(counts)
        self.embedding = embedding
        self.lstms = [
            keras.layers.LSTM(
                recipe.units, return_sequences=True, stateful=True, unroll=True
            )
            for _ in range(recipe.layers)
        ]
        self.dropouts = [
            keras.layers.Dropout(recipe.dropout, seed=recipe.seed + index)
            for index in range(recipe.layers + 1)
        ]
        self.task_loss = keras.metrics.Mean(name="task_loss")
        warmup = min(100, total_steps // 10)
        rate = keras.optimizers.schedules.CosineDecay(
            initial_learning_rate=0.0,
            decay_steps=total_steps - warmup,
            alpha=0.02,
            warmup_target=recipe.learning_rate,
            warmup_steps=warmup,
        )
        self.compile(
            keras.optimizers.Adam(rate, global_clipnorm=recipe.clipnorm),
            jit_compile=jit_compile,
        )

    def build(self, input_shape):
        shape = (*input_shape, self.embedding.output_dim)
        self.embedding.build(input_shape)
        for lstm in self.lstms:
            lstm.build(shape)
            shape = (*input_shape, self.recipe.units)
        self.kernel = self.add_weight(
            shape=(self.num_words, self.recipe.units), name="kernel"
        )
        # At frequencies from the start: otherwise Adam spends half an epoch
        # on them, and throws the matrix about meanwhile.
        self.bias = self.add_weight(
            shape=(self.num_words,),
            initializer=lambda shape, dtype: np.log(
                self.counts / self.counts.sum()
            ),
            name="bias",
        )
        self.built = True

    def call(self, ids, training=False):
        features = self.dropouts[0](self.embedding(ids), training=training)
        for lstm, dropout in zip(self.lstms, self.dropouts[1:], strict=True):
            features = dropout(lstm(features), training=training)
        return features

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        features = tf.reshape(y_pred, (-1, self.recipe.units))
        labels = tf.reshape(y, (-1,))
        # Gradients become dense on the way back through the products, so that
        # a word met twice counts once in Adam's second moment.
        weights = self.kernel.value * 1.0, self.bias.value * 1.0
        softmax = self._sampled_softmax if training else self._full_softmax
        losses = softmax(features, labels, *weights)
        loss = tf.reduce_mean(losses)
        self.task_loss.update_state(loss)
        return loss + sum(self.losses)

    def _full_softmax(self, features, labels, kernel, bias):
        logits = tf.matmul(features, kernel, transpose_b=True) + bias
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

    def _sampled_softmax(self, features, labels, kernel, bias):
        labels = tf.cast(labels[:, None], "int64")
        candidates, chance = self.sampled_words()
        return tf.nn.sampled_softmax_loss(
            kernel,
            bias,
            labels,
            features,
            num_sampled=candidates.shape[0],
            num_classes=self.num_words,
            sampled_values=(candidates, chance(labels), chance(candidates)),
        )

    def sampled_words(self):
        """Ids of the frequent words and of some others, and their chances."""
        frequent = min(self.recipe.frequent, self.num_words - 1)
        others = self.num_words - frequent
        sampled = min(self.recipe.sampled, others)
        drawn = tf.random.uniform_candidate_sampler(
            tf.zeros((1, 1), "int64"), 1, sampled, True, others
        ).sampled_candidates
        ids = tf.concat(
            [tf.range(frequent, dtype="int64"), frequent + drawn], 0
        )
        return ids, lambda ids: tf.where(ids < frequent, 1.0, sampled / others)

    def reset_states(self):
        for lstm in self.lstms:
            lstm.reset_states()


def make_model(embedding, text, recipe, jit_compile="auto"):
    """A model for `embedding`, with weights that the recipe's seed decides."""
    segments = (len(text.ids["train"]) - 1) // (
        recipe.batch_size * recipe.steps
    )
    model = LanguageModel(
        embedding, text.counts, recipe, segments * recipe.epochs, jit_compile
    )
    model.build((recipe.batch_size, recipe.steps))
    return model


def train(model, text, callbacks=()):
    """Trains by the recipe; validation perplexity by epoch, and seconds."""
    size = model.recipe.batch_size
    start = time.time()
    history = model.fit(
        *text.segments("train", size, model.recipe.steps),
        batch_size=size,
        epochs=model.recipe.epochs,
        shuffle=False,
        validation_data=text.segments("valid", size, model.recipe.steps),
        validation_batch_size=size,
        verbose=0,
        callbacks=[_ResetStates(), *callbacks],
    ).history
    losses = history["val_task_loss"]
    return [math.exp(loss) for loss in losses], round(time.time() - start)


def perplexity(model, text, part):
    """Perplexity of a part of the text, in streams as in training."""
    model.reset_states()
    inputs, targets = text.segments(
        part, model.recipe.batch_size, model.recipe.steps
    )
    losses = model.evaluate(
        inputs,
        targets,
        batch_size=model.recipe.batch_size,
        verbose=0,
        return_dict=True,
        callbacks=[_ResetStates()],
    )
    return math.exp(losses["task_loss"])


class _ResetStates(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.reset_states()

    def on_test_begin(self, logs=None):
        self.model.reset_states()
