"""How well is German translated with compressed tables of words?

Table 4 of Shu & Nakayama, 2018 (https://arxiv.org/abs/1711.01068), on Multi30k:
a model is trained, its two tables are compressed, and the rest is trained again
from random weights with these tables fixed. It needs `pip install sacrebleu`.
"""

import dataclasses
import functools
import hashlib
import pathlib
import sys
import tempfile
import time

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.common.arguments import Flag
from benchmarks.common.arguments import code_shape
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.litert import File
from benchmarks.common.translator import build
from benchmarks.common.translator import with_search
from benchmarks.data.sentence_pairs import PAD
from benchmarks.data.sentence_pairs import TESTS
from benchmarks.data.sentence_pairs import Batches
from benchmarks.data.sentence_pairs import Texts
from benchmarks.data.sentence_pairs import generated
from benchmarks.data.sentence_pairs import read
from keras_compembed.utils.files import replacing

TABLES = ("source_words", "target_words")
MODELS = ("LSTM", "transformer")


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table; without a method, tables are not compressed."""

    name: str
    model: str
    fixed: bool = True
    codes: str | None = None
    gumbel_steps: int | None = None
    sparsity: float | None = None
    bits: int | None = None

    @property
    def method(self):
        if self.sparsity:
            return kc.methods.Pruned(self.sparsity)
        if self.bits:
            return kc.methods.Quantized(self.bits)
        if self.codes:
            learner = self.gumbel_learner if self.gumbel_steps else None
            return kc.methods.Codes(*code_shape(self.codes), learner=learner)
        return None

    def gumbel_learner(self, num_codebooks, codebook_size, seed=None):
        """The paper's learner."""
        return kc.learners.GumbelCodeLearner(
            num_codebooks,
            codebook_size,
            training=kc.learners.Training(self.gumbel_steps),
            seed=seed,
            verbose=0,
        )


class Translation(Benchmark):
    settings = {
        "batch_size": 64,
        "epochs": 10,
        "learning_rate": 1e-3,
        "dropout": 0.1,
        "pieces": Flag((8000, 4000), "of words, German and English"),
        "width": Flag(256, "of the tables, and of transformers"),
        "units": Flag(128, "of LSTMs, and before the scores"),
        "layers": Flag(2, "of transformers, on each side"),
    }
    choices = {
        "codes": Flag(("32x16", "64x16"), "MxK,MxK,..."),
        "gumbel_steps": Flag(50_000, "of GumbelCodeLearner"),
        "cache": Flag(
            pathlib.Path("build", "translation"), "folder of trained tables"
        ),
    }
    quick = {
        "batch_size": 16,
        "pieces": (200, 200),
        "width": 16,
        "units": 8,
        "layers": 1,
        "codes": ("4x4",),
        "epochs": 1,
        "gumbel_steps": 40,
    }

    def rows(self):
        return [row for model in MODELS for row in self.rows_of(model)]

    def rows_of(self, model):
        def row(name, **options):
            return Row(f"{model}, {name}", model, **options)

        codes, steps = self.args.codes, self.args.gumbel_steps
        return [
            row("table", fixed=False),
            row("table, fixed"),
            *(row(f"codes {x}", codes=x) for x in codes),
            *(row(f"pruned {x:.0%}", sparsity=x) for x in (0.9, 0.95)),
            *(row(f"int{x}", bits=x) for x in (4, 2)),
            *(
                row(f"Gumbel codes {x}", codes=x, gumbel_steps=steps)
                for x in codes
            ),
        ]

    @functools.cached_property
    def texts(self):
        lines = generated() if self.args.quick else read(self.folder)
        return Texts(lines, self.args.pieces)

    def measure(self, row, seed):
        import_sacrebleu()
        start = time.process_time()
        tables = self.tables(row, seed)
        learned = time.process_time()
        model, losses = self.train(row, seed, tables)
        trained = time.process_time()
        search = with_search(model)
        found = {part: self.translate(search, part) for part in TESTS}
        return {
            **{part: self.bleu(found[part], part) for part in TESTS},
            "valid_loss": min(losses),
            "valid_losses": losses,
            "counted_bytes": sum(self.count_bytes(row)),
            "cpu_seconds_tables": round(learned - start),
            "cpu_seconds_training": round(trained - learned),
            "cpu_seconds_translation": round(time.process_time() - trained),
            **self.in_litert(search, found[TESTS[0]]),
        }

    def tables(self, row, seed):
        """Layers of both tables."""
        keras.utils.set_random_seed(seed)
        model = self.two_tables()
        if row.fixed:
            model.set_weights(self.trained_tables(row.model, seed))
            if row.method is not None:
                model = kc.compress_model(
                    model, row.method, list(TABLES), seed, verbose=0
                )
        return [model.get_layer(name) for name in TABLES]

    def two_tables(self):
        """A model of nothing but both tables."""
        ids, vectors = [], []
        for size, name in zip(self.texts.sizes, TABLES, strict=True):
            table = keras.layers.Embedding(size, self.args.width, name=name)
            ids.append(keras.Input((None,), dtype="int32"))
            vectors.append(table(ids[-1]))
        return keras.Model(ids, vectors)

    def trained_tables(self, model, seed):
        """Tables of the model that is trained with them."""
        row = self.rows_of(model)[0]
        path = self.path_of_tables(row, seed)
        if not path.exists():
            self.train(row, seed, self.tables(row, seed))
        with np.load(path) as file:
            return [file[name] for name in TABLES]

    def path_of_tables(self, row, seed):
        text = str([row.model, *self.recorded.values(), seed])
        name = f"{row.model}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        return self.args.cache / f"{name}.npz"

    def train(self, row, seed, tables):
        """A model that reads these tables, and its losses of validation."""
        keras.utils.set_random_seed(seed)
        for layer in tables:
            layer.trainable = not row.fixed
        model = build(row.model, tables, self.args)
        train = Batches(self.texts.ids["train"], self.args.batch_size, seed)
        rate = self.args.learning_rate
        rate = keras.optimizers.schedules.CosineDecay(
            rate,
            self.args.epochs * len(train),
            warmup_target=rate,
            warmup_steps=len(train) // 2,
        )
        model.compile(
            # With dense Adam, a step takes a third longer.
            kc.optimizers.SparseRowOptimizer(
                keras.optimizers.Adam(rate, global_clipnorm=1.0)
            ),
            keras.losses.SparseCategoricalCrossentropy(True, ignore_class=PAD),
            # Each pair of lengths would be compiled apart.
            jit_compile=False,
        )
        stopping = keras.callbacks.EarlyStopping(
            patience=self.args.epochs, restore_best_weights=True
        )
        history = model.fit(
            train.dataset(),
            epochs=self.args.epochs,
            validation_data=Batches(self.texts.ids["val"], 256).dataset(),
            callbacks=[stopping],
            shuffle=False,
            verbose=2,
        )
        if not row.fixed:
            arrays = [layer.get_weights()[0] for layer in tables]
            path = self.path_of_tables(row, seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path, overwrite=True) as beside:
                np.savez(beside, **dict(zip(TABLES, arrays, strict=True)))
        return model, history.history["val_loss"]

    def translate(self, search, part):
        """English lines, found by greedy search."""
        found = {}
        for places, (source, _), _ in Batches(self.texts.ids[part], 256):
            ids = search.predict_on_batch(source)
            found |= dict(zip(places, ids, strict=True))
        return [self.texts.english(found[place]) for place in sorted(found)]

    def bleu(self, lines, part):
        """BLEU of lower-case lines."""
        right = [line.lower() for line in self.texts.lines[part][1]]
        return import_sacrebleu().corpus_bleu(lines, [right]).score

    def in_litert(self, search, lines, count=200):
        """How the first lines are translated by a LiteRT file."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.tflite")
            sources = [source for source, _ in self.texts.ids[TESTS[0]]]
            export = kc.export_litert(
                search,
                path,
                # The longer they are, the longer it takes.
                sample_inputs=min(sources, key=len)[None],
                quantize=None,
                verbose=0,
            )
            # Each length has its own interpreter.
            file_of = functools.cache(
                lambda length: File(path, {None: (1, length)})
            )
            same = 0
            for source, line in zip(sources[:count], lines, strict=False):
                file = file_of(len(source))
                file.run(source[None])
                (ids,) = file.outputs().values()
                same += self.texts.english(ids[0]) == line
        return {
            "litert_bytes": export.file_bytes,
            "litert_same": same / min(count, len(lines)),
        }

    def count_bytes(self, row):
        """Bytes of each table, as the paper counts."""
        for rows in self.texts.sizes:
            size = rows, self.args.width
            if row.method is None:
                yield 4 * size[0] * size[1]
            else:
                yield row.method.litert_bytes(*size)


def import_sacrebleu():
    try:
        import sacrebleu
    except ImportError:
        sys.exit("BLEU needs sacrebleu: pip install sacrebleu")
    return sacrebleu


main = functools.partial(run, Translation)
