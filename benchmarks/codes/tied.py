"""What does a tied table cost in a language model, before and after `distill`?

A model of Penn Treebank whose table also gives the logits: an LSTM, or GPT-2 of
four layers by keras-hub. Its table becomes int4, int2 or codes, and is then
trained towards the logits of the model, on some of the text alone.
"""

import dataclasses
import functools

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data.words import Text

METHODS = {
    "codes 32x16": kc.methods.Codes(32, 16),
    "int4": kc.methods.Quantized(4),
    "int2": kc.methods.Quantized(2, learn_rows=True),
    "codes 16x16": kc.methods.Codes(16, 16),
}
TABLE = {"lstm": "words", "gpt2": "token_embedding"}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    model: str
    method: str | None = None


class Tied(Benchmark):
    settings = {
        "width": 200,
        "epochs": 6,
        "batch_size": 16,
        "steps": 35,
        "learning_rate": 2e-3,
        "distilled": 8000,
        "distill_rate": 1e-3,
    }
    choices = {"models": Flag(("lstm", "gpt2"))}
    quick = {"width": 32, "epochs": 1, "steps": 5, "distilled": 320}

    def rows(self):
        return [
            Row(f"{model}, {method or 'table'}", model, method)
            for model in self.args.models
            for method in (None, *METHODS)
        ]

    def together(self, row):
        return row.model

    @functools.cached_property
    def text(self):
        return Text(self.folder / "ptb")

    def segments(self, part):
        size = self.args.batch_size, self.args.steps
        return self.text.segments(part, *size)

    def measure_together(self, rows, seed):
        keras.utils.set_random_seed(seed)
        model = make_model(rows[0].model, len(self.text.counts), self.args)
        inputs, targets = self.segments("train")
        size = self.args.batch_size
        rate = keras.optimizers.schedules.CosineDecay(
            0.0,
            self.args.epochs * len(inputs) // size,
            warmup_target=self.args.learning_rate,
            warmup_steps=100,
        )
        model.compile(
            keras.optimizers.Adam(rate, global_clipnorm=1.0),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        model.fit(
            inputs,
            targets,
            batch_size=size,
            epochs=self.args.epochs,
            verbose=2,
        )
        for row in rows:
            yield self.figures(row, model, inputs, seed)

    def figures(self, row, model, inputs, seed):
        small = model
        if row.method:
            small = kc.compress_model(
                model,
                METHODS[row.method],
                # Also a tiny one.
                layers=[TABLE[row.model]],
                sample_inputs=inputs,
                seed=seed,
                verbose=0,
            )
        figures = {
            "bytes": kc.size_report(small).embedding_bytes,
            **self.measures(small, model),
        }
        if row.method in (None, "int4"):
            # Rows of int4 are not trained.
            return figures
        inputs = inputs[: self.args.distilled]
        steps = len(inputs) // self.args.batch_size
        rate = keras.optimizers.schedules.CosineDecay(
            self.args.distill_rate, steps
        )
        kc.compression.distill(
            small,
            model,
            inputs,
            epochs=1,
            optimizer=keras.optimizers.Adam(rate),
            batch_size=self.args.batch_size,
            seed=seed,
            verbose=2,
        )
        after = self.measures(small, model)
        return figures | {f"distilled_{x}": y for x, y in after.items()}

    def measures(self, small, model):
        """Perplexity of the test part, and divergence from the model."""
        inputs, targets = self.segments("test")
        figures = []
        for start in range(0, len(inputs), 64):
            part = slice(start, start + 64)
            given, found = (
                keras.ops.log_softmax(x(inputs[part])) for x in (model, small)
            )
            losses = keras.losses.sparse_categorical_crossentropy(
                targets[part], found, from_logits=True
            )
            apart = keras.ops.sum(keras.ops.exp(given) * (given - found), -1)
            figures.append(np.stack([losses, apart], axis=-1))
        loss, divergence = np.concatenate(figures).mean(axis=(0, 1))
        return {"test": float(np.exp(loss)), "divergence": float(divergence)}


def make_model(kind, num_words, args):
    """A model from ids to the logits of the next ids."""
    ids = keras.Input((None,), dtype="int32")
    if kind == "gpt2":
        import keras_hub

        backbone = keras_hub.models.GPT2Backbone(
            vocabulary_size=num_words,
            num_layers=4,
            num_heads=4,
            hidden_dim=args.width,
            intermediate_dim=4 * args.width,
            max_sequence_length=args.steps,
        )
        mask = keras.ops.ones_like(ids)
        states = backbone({"token_ids": ids, "padding_mask": mask})
        table = backbone.token_embedding
    else:
        table = keras.layers.ReversibleEmbedding(
            num_words,
            args.width,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=0.1),
            name=TABLE[kind],
        )
        states = keras.layers.Dropout(0.2)(table(ids))
        states = keras.layers.LSTM(args.width, return_sequences=True)(states)
        states = keras.layers.Dropout(0.2)(states)
        # States are below 1, and the table has no bias.
        states = keras.layers.Dense(args.width)(states)
    return keras.Model(ids, table(states, reverse=True))


main = functools.partial(run, Tied)
