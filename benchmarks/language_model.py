"""What do codes cost in perplexity? Table 1 and Figure 3 of Chen, Min & Sun.

Trains an LSTM language model on Penn Treebank with a conventional embedding,
then with codes: learned from the conventional model's table in several ways
and fixed, or learned together with the model, with no table. Prints perplexity
and size of each. Results are kept in a JSON file as they come; what stands
there is not run again, and a row that was stopped goes on from its last epoch.

    COMPEMBED_DATA=... python benchmarks/language_model.py

The data folder holds `ptb/ptb.{train,valid,test}.txt.xz`. Rows are chosen by
`--rows`, a regular expression: `--rows 'conventional|linear'`.

The model is the paper's small one, of two LSTMs of 200. How it is trained is
not: a few epochs of Adam with dropout and a sampled softmax, which on two
cores take minutes instead of hours. All rows are trained alike, so compare a
row with the conventional one first, and with the paper's figure after that.
Seconds are of the clock, so other work on the machine counts in.

Paper: https://arxiv.org/abs/1711.03067
"""
# ruff: noqa: E402

import argparse
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import word_lstm

import keras_compembed as kc
from keras_compembed.utils.files import replacing

FOLDER = pathlib.Path(__file__).parent

# Test perplexity of the paper's small model.
PAPER = {
    "conventional": 114.53,
    "random+linear": 144.32,
    "random+lstm": 147.13,
    "linear+linear": 118.40,
    "linear+lstm": 111.13,
    "lstm+linear": 117.21,
    "lstm+lstm": 111.31,
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String, how codes are learned + how vectors are composed.
        num_codebooks: Integer, or None for the conventional embedding.
        codebook_size: Integer, or None.
        composition: String.
        learner: Codes from the conventional model's table, fixed: `"random"`,
            a composition that `KDCodeLearner` learns with, `"additive"`, or
            `"weighted"` (additive, words weighed by the root of how often
            they occur). None: no table.
        warm: Boolean, whether codebooks start from the learner's.
        learn_codes: `"softmax"` or `"nearest"`: codes learned with the model.
        swept: Boolean, whether the row is of Figure 3.
    """

    name: str
    num_codebooks: int | None = None
    codebook_size: int | None = None
    composition: str | None = None
    learner: str | None = None
    warm: bool = False
    learn_codes: str | None = None
    swept: bool = False


def all_rows(args):
    """The table's rows, the most telling first."""
    small, narrow = tuple(args.codes), tuple(args.concat_codes)

    def learned(learner, composition, **kwargs):
        name = f"{learner}+{composition}"
        return Row(name, *small, composition, learner, **kwargs)

    def joint(learn_codes, composition, codes):
        name = f"end to end, {learn_codes}+{composition}"
        return Row(name, *codes, composition, learn_codes=learn_codes)

    rows = [
        Row("conventional"),
        learned("additive", "sum"),
        learned("linear", "linear"),
        joint("softmax", "concat", narrow),
        joint("nearest", "concat", narrow),
        joint("softmax", "sum", small),
        learned("linear", "lstm"),
        learned("lstm", "lstm"),
        Row("concat+concat", *narrow, "concat", "concat"),
        learned("weighted", "sum"),
        dataclasses.replace(
            learned("weighted", "sum", warm=True), name="weighted+sum, warm"
        ),
        learned("random", "linear"),
        learned("lstm", "linear"),
        learned("random", "lstm"),
    ]
    for codes in args.sweep:
        rows.append(
            Row("linear+linear", *codes, "linear", "linear", swept=True)
        )
    return [row for row in rows if re.search(args.rows, row.name)]


def main(arguments=None):
    args = parse(arguments)
    recipe = word_lstm.Recipe(**args.recipe)
    text = word_lstm.Text(pathlib.Path(args.data) / "ptb")
    results = Results(args.output, recipe)
    rows = all_rows(args)
    for row in rows:
        if not results.has(row):
            run = Run(row, text, recipe, args)
            results.add(row, run.measure())
            run.clean()
    results.print()
    return results.rows


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
    parser.add_argument("--codes", default="16x16", type=code_shape, help="MxK")
    parser.add_argument("--concat-codes", default="50x16", type=code_shape)
    parser.add_argument(
        "--sweep",
        default="4x16,8x16,32x16,16x4,16x8,16x32",
        type=lambda text: [
            code_shape(part) for part in text.split(",") if part
        ],
        help="MxK,MxK,..., or nothing",
    )
    parser.add_argument("--learner-steps", type=int, default=5000)
    for field in dataclasses.fields(word_lstm.Recipe):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=field.type,
            default=field.default,
        )
    parser.add_argument(
        "--cache",
        type=pathlib.Path,
        default=FOLDER.parent / "build" / "language_model",
        help="folder of unfinished rows, the conventional table, and codes",
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
        args.codes, args.concat_codes, args.sweep = (4, 4), (4, 4), []
        args.epochs, args.learner_steps = 2, 20
        args.batch_size, args.steps, args.units, args.layers = 4, 3, 8, 1
        args.frequent, args.sampled = 10, 5
    args.recipe = {
        field.name: getattr(args, field.name)
        for field in dataclasses.fields(word_lstm.Recipe)
    }
    return args


def code_shape(text):
    num_codebooks, codebook_size = text.split("x")
    return int(num_codebooks), int(codebook_size)


class Run:
    """Trains and measures one row."""

    def __init__(self, row, text, recipe, args):
        self.row, self.text, self.recipe, self.args = row, text, recipe, args
        digest = hashlib.sha256(repr(recipe).encode()).hexdigest()[:8]
        self.cache = args.cache / digest
        self.name = row.name
        if row.num_codebooks:
            self.name += f" {row.num_codebooks}x{row.codebook_size}"
        self.folder = self.cache / re.sub(r"[^\w+]+", "-", self.name)

    def measure(self):
        row, recipe = self.row, self.recipe
        print(self.name, flush=True)
        keras.utils.set_random_seed(recipe.seed)
        embedding, seconds = self.embedding()
        model = word_lstm.make_model(embedding, self.text, recipe)
        epochs = word_lstm.train(model, self.text, self.folder)
        if row.learn_codes:
            embedding.freeze_codes()
            model.compile()
        if row.name == "conventional":
            save(self.table_path, table=embedding.get_weights()[0])
        return {
            "valid": word_lstm.perplexity(model, self.text, "valid"),
            "test": word_lstm.perplexity(model, self.text, "test"),
            "valid_by_epoch": [round(epoch["valid"], 2) for epoch in epochs],
            "parameters": count_parameters(embedding),
            "bytes": count_bytes(embedding),
            "seconds": round(sum(epoch["seconds"] for epoch in epochs)),
            "seconds_codes": round(seconds),
        }

    def clean(self):
        shutil.rmtree(self.folder)

    @property
    def table_path(self):
        return self.cache / "conventional.npz"

    def embedding(self):
        """The row's embedding, and the seconds its codes took to learn."""
        row, units = self.row, self.recipe.units
        size = len(self.text.vocabulary), units
        if row.name == "conventional":
            return keras.layers.Embedding(
                *size, embeddings_initializer=random_normal()
            ), 0
        codes, seconds = {}, 0
        if row.learner:
            codes = self.codes()
            seconds = codes.pop("seconds")
            if not row.warm:
                codes.pop("codebooks", None)
        # Vectors start at the length of the conventional ones.
        sums = row.composition in ("sum", "linear")
        return kc.CodeEmbedding(
            *size,
            num_codebooks=row.num_codebooks,
            codebook_size=row.codebook_size,
            composition=row.composition,
            codebooks_initializer=random_normal(
                row.num_codebooks if sums else 1
            ),
            learn_codes=row.learn_codes,
            seed=self.recipe.seed,
            **codes,
        ), seconds

    def codes(self):
        """Dict of codes, codebooks and seconds, learned once a learner."""
        row = self.row
        shape = f"{row.num_codebooks}x{row.codebook_size}"
        path = self.cache / f"codes-{row.learner}-{shape}.npz"
        if not path.exists():
            if not self.table_path.exists():
                sys.exit("Run the conventional row first: its table is needed.")
            table = np.load(self.table_path)["table"]
            start = time.time()
            learner = self.learner()
            weighted = row.learner == "weighted"
            learner.train(
                table, sample_weight=self.text.counts**0.5 if weighted else None
            )
            seconds = time.time() - start
            if row.learner == "random":
                save(path, codes=learner.codes, seconds=seconds)
            else:
                error = np.square(table - learner.decode(learner.codes)).sum()
                print(
                    f"  codes in {seconds:.0f} s, relative error "
                    f"{error / np.square(table - table.mean(0)).sum():.3f}",
                    flush=True,
                )
                save(
                    path,
                    codes=learner.codes,
                    codebooks=learner.codebooks,
                    seconds=seconds,
                )
        with np.load(path) as file:
            return dict(file) | {"seconds": float(file["seconds"])}

    def learner(self):
        row = self.row
        shape = row.num_codebooks, row.codebook_size
        seed = self.recipe.seed
        if row.learner == "random":
            return kc.learners.RandomCodes(*shape, seed=seed)
        if row.learner in ("additive", "weighted"):
            return kc.learners.AdditiveQuantizer(*shape, seed=seed, verbose=0)
        return kc.learners.KDCodeLearner(
            *shape,
            composition=row.learner,
            iterations=self.args.learner_steps,
            seed=seed,
            verbose=0,
        )


def random_normal(num_terms=1):
    # Keras's 0.03 is so short that LSTMs need half an epoch to hear it.
    return keras.initializers.RandomNormal(stddev=0.3 * num_terms**-0.5)


def save(path, **arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, overwrite=True) as beside:
        np.savez(beside, **arrays)


def count_parameters(embedding):
    """As the paper counts: codewords and what composes them, no codes."""
    return sum(int(np.prod(weight.shape)) for weight in embedding.weights) - (
        codes_size(embedding)
    )


def codes_size(embedding):
    codes = getattr(embedding, "packed_codes", None)
    return 0 if codes is None else int(np.prod(codes.shape))


def count_bytes(embedding):
    """Codes as packed, and float32 codewords as in an exported file."""
    numbers = count_parameters(embedding)
    composition = getattr(embedding, "composition", None)
    if composition is not None:
        folded = composition.fold(embedding.codebooks.value)
        if folded is not None:
            numbers = min(numbers, int(np.prod(folded.shape)))
    return codes_size(embedding) + 4 * numbers


class Results:
    """Rows of the table, saved as each comes."""

    def __init__(self, path, recipe):
        self.path = pathlib.Path(path)
        self.recipe = dataclasses.asdict(recipe)
        self.rows = []
        if self.path.exists():
            self.rows = json.loads(self.path.read_text())["rows"]

    def find(self, **key):
        key["recipe"] = self.recipe
        found = [row for row in self.rows if key.items() <= row.items()]
        return found[0] if found else None

    def has(self, row):
        return self.find(**dataclasses.asdict(row)) is not None

    def add(self, row, figures):
        line = dataclasses.asdict(row) | {"recipe": self.recipe} | figures
        self.rows.append(line)
        conventional = self.find(name="conventional")
        for name in ("parameters", "bytes"):
            line[f"{name}_ratio"] = line[name] / conventional[name]
        line["ratio"] = line["test"] / conventional["test"]
        paper = None if row.swept else PAPER.get(row.name)
        line["paper"] = paper
        line["above_paper"] = paper and line["test"] / paper - 1
        versions = {
            name: importlib.metadata.version(name)
            for name in ("keras-compembed", "keras", "tensorflow")
        }
        with replacing(self.path, overwrite=True) as path:
            text = json.dumps(
                {"versions": versions, "rows": self.rows}, indent=1
            )
            pathlib.Path(path).write_text(text + "\n")
        print(f"  test {line['test']:.2f}", flush=True)

    def print(self):
        head = (
            "codes + composition",
            "M x K",
            "valid",
            "test",
            "to conventional",
            "paper",
            "above paper",
            "parameters",
            "ratio",
            "bytes",
            "times smaller",
            "epochs",
            "s",
        )
        print("| " + " | ".join(head) + " |")
        print("|" + "---|" * len(head))
        for row in self.rows:
            if row["recipe"] != self.recipe:
                continue
            paper = row["paper"]
            cells = (
                row["name"],
                f"{row['num_codebooks']} x {row['codebook_size']}"
                if row["num_codebooks"]
                else "",
                f"{row['valid']:.2f}",
                f"{row['test']:.2f}",
                f"{row['ratio']:.3f}",
                f"{paper:.2f}" if paper else "",
                f"{row['above_paper']:+.1%}" if paper else "",
                f"{row['parameters']:,}",
                f"{row['parameters_ratio']:.3f}",
                f"{row['bytes']:,}",
                f"{1 / row['bytes_ratio']:.1f}",
                str(self.recipe["epochs"]),
                f"{row['seconds'] + row['seconds_codes']}",
            )
            print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
