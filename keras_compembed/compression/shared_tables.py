"""Tables of a model that share one set of codebooks."""

import numpy as np

from keras_compembed.codes.packing import bytes_per_row
from keras_compembed.codes.packing import pack_codes
from keras_compembed.compositions.registry import is_same_composition
from keras_compembed.compression.replaced_table import read_tables
from keras_compembed.layers.codebooks import Codebooks
from keras_compembed.learners import coordinate_search as search
from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.methods.codes import Codes
from keras_compembed.utils.sizes import format_bytes

# Rows of a table, and the part of the usual effort, by which codebooks of two
# shapes are compared.
_SAMPLE_ROWS, _SAMPLE_EFFORT = 6000, 0.2


class SharedTables:
    """A group of tables with one set of codebooks."""

    def __init__(self, names):
        self.names = names
        self.tables = []
        self._first = None
        self.codebooks = None

    def settle(self, name, layer, settings, dtype):
        """Gives the settings of a layer the codebooks of the group."""
        method = settings["method"]
        if not isinstance(method, Codes) or method.learner is not None:
            raise ValueError(
                "`share_codebooks` must name layers whose method is codes, "
                "without a `learner`: one `AdditiveQuantizer` learns them for "
                f"all. Received: {name!r} with {method.name}"
                + ("." if not isinstance(method, Codes) else " and a learner.")
            )
        if not is_same_composition(method.composition or "sum", "sum"):
            raise ValueError(
                "`share_codebooks` must name layers of composition 'sum'. "
                f"Received: {name!r} with {method.name}. With other "
                "compositions, learn codes of the tables stacked with a "
                "`KDCodeLearner`, and pass a `Codebooks` to each layer."
            )
        shape = {
            "output_dim": layer.output_dim,
            "num_codebooks": method.num_codebooks,
            "codebook_size": method.codebook_size,
        }
        mine = {**shape, "seed": settings["seed"], "effort": method.effort}
        if self.codebooks is None:
            self._first = name, mine
            self.codebooks = Codebooks(**shape, dtype=dtype, name="codebooks")
        first, common = self._first
        for what, got in mine.items():
            if got != common[what]:
                raise ValueError(
                    "`share_codebooks` must name layers of the same "
                    f"`{what}`. Received: {first!r} with "
                    f"{what}={common[what]} and {name!r} with {what}={got}."
                )
        if dtype.variable_dtype != self.codebooks.variable_dtype:
            raise ValueError(
                "`share_codebooks` must name layers of the same variable "
                f"dtype. Received: {first!r} with "
                f"{self.codebooks.variable_dtype} and {name!r} with "
                f"{dtype.variable_dtype}."
            )
        settings["codebooks"] = self.codebooks

    def check(self):
        """Raises if there are not two tables, or they become no smaller."""
        names = ", ".join(map(repr, self.names))
        number = sum(len(table.small_parts()) for table in self.tables)
        if number < 2:
            raise ValueError(
                "`share_codebooks` must name at least two tables. Received: "
                f"{names}."
            )
        before = sum(table.bytes_before for table in self.tables)
        if self._bytes(*self._shape) >= before:
            raise ValueError(
                "`share_codebooks` must name tables that become smaller. "
                f"Received: {names}, which take {format_bytes(before)}, and "
                f"codes of {self._shape[0]} x {self._shape[1]} take "
                f"{format_bytes(self._bytes(*self._shape))}."
            )

    @property
    def _shape(self):
        return self.codebooks.num_codebooks, self.codebooks.codebook_size

    def _bytes(self, num_codebooks, codebook_size, sets=1):
        """What codes of all tables and so many sets of codebooks take."""
        parts = [x for table in self.tables for x in table.small_parts()]
        rows = sum(part.input_dim for part in parts)
        numbers = num_codebooks * codebook_size * self.codebooks.output_dim
        codes = rows * bytes_per_row(num_codebooks, codebook_size)
        return codes + 4 * sets * numbers

    def learn(self, verbose):
        """Learns codebooks for all tables, and their codes."""
        names = ", ".join(table.name for table in self.tables)
        seed, effort = (self._first[1][what] for what in ("seed", "effort"))
        parts = [x for table in self.tables for x in table.small_parts()]
        originals = [read_tables(table.layer) for table in self.tables]
        arrays = [x for each in originals for x in each]
        weights = [
            table.sample_weight
            for table in self.tables
            for _ in table.small_parts()
        ]
        if verbose:
            for table in self.tables:
                table.say_what_is_lost()
            print(f"{names}: learning codes that share codebooks")
            print(f"{names}: {self._compare(arrays, weights, seed)}")
        learner = AdditiveQuantizer(
            *self._shape, effort=effort, seed=seed, verbose=verbose
        )
        codes = learn_together(learner, arrays, weights)
        self.codebooks.values.assign(learner.codebooks)
        for part, own in zip(parts, codes, strict=True):
            part.packed_codes.assign(pack_codes(own, learner.codebook_size))
        for table, tables in zip(self.tables, originals, strict=True):
            if table.small.learn_codes is not None:
                table.small.learn_codes.restart(tables[0])
            if verbose:
                table.say_what_was_done(tables)

    def _compare(self, tables, weights, seed):
        """A sentence on what sharing saves, and what it costs."""
        num_codebooks, size = self._shape
        shared = self._bytes(num_codebooks, size)
        saved = self._bytes(num_codebooks, size, len(tables)) - shared
        fewer = [
            m
            for m in range(1, num_codebooks)
            if self._bytes(m, size, len(tables)) <= shared
        ]
        text = (
            f"{format_bytes(shared)} in codes and codebooks, "
            f"{format_bytes(saved)} less than with codebooks of their own"
        )
        if not fewer:
            return text
        rng = np.random.default_rng(seed)
        samples, kept = [], []
        for table, weight in zip(tables, weights, strict=True):
            rows = rng.permutation(len(table))[:_SAMPLE_ROWS]
            samples.append(table[np.sort(rows)])
            kept.append(None if weight is None else weight[np.sort(rows)])

        def errors(number, groups):
            found = []
            for group in groups:
                learner = AdditiveQuantizer(
                    number, size, effort=_SAMPLE_EFFORT, seed=seed, verbose=0
                )
                part = [samples[i] for i in group]
                codes = learn_together(learner, part, [kept[i] for i in group])
                found += [
                    relative_error(table, learner.decode(own))
                    for table, own in zip(part, codes, strict=True)
                ]
            return found

        together = errors(num_codebooks, [range(len(tables))])
        apart = errors(max(fewer), [[i] for i in range(len(tables))])
        rows = [len(table) for table in tables]
        costs = np.average(together, weights=rows)
        other = np.average(apart, weights=rows)
        text += (
            f". On a sample, the error is {costs:.3f} of the variance "
            f"({_listed(together)}), and {other:.3f} ({_listed(apart)}) with "
            f"{max(fewer)} x {size} codes of each table's own, in as many bytes"
        )
        if other < costs:
            text += (
                ": sharing costs more error than it saves bytes here. Leave "
                "out `share_codebooks` and lower `num_codebooks`"
            )
        return text


def learn_together(learner, tables, sample_weights):
    """Trains a learner on several tables at once."""
    weights = []
    for table, weight in zip(tables, sample_weights, strict=True):
        own = np.ones(len(table)) if weight is None else np.asarray(weight)
        own = own * (len(own) / max(own.sum(), np.finfo("float64").tiny))
        weights.append(own / (variance(table) or 1.0))
    stacked = np.concatenate([np.asarray(x, "float32") for x in tables])
    learner.train(stacked, sample_weight=np.concatenate(weights))
    ends = np.cumsum([len(table) for table in tables])
    return np.split(learner.codes, ends[:-1])


def variance(table):
    """Mean squared distance of rows from their mean."""
    total, mean = 0.0, search.mean_row(table)
    for _, rows in search.centred_chunks(table, mean, 1):
        total += float(np.vdot(rows, rows))
    return total / len(table)


def relative_error(table, rows):
    """Mean squared distance of rows from a table's, over its variance."""
    distance = np.square(np.asarray(table, "float32") - rows)
    return float(distance.sum(axis=1).mean() / (variance(table) or 1.0))


def _listed(numbers):
    return " and ".join(f"{number:.3f}" for number in numbers)
