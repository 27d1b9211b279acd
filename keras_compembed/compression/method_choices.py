"""Ways to store a table that a search may choose from, and what they lose."""

import dataclasses
import math

import keras
import numpy as np

from keras_compembed.codes.packing import bytes_per_row
from keras_compembed.learners.coordinate_search import level_of_variances
from keras_compembed.methods.anchors import Anchors
from keras_compembed.methods.codes import Codes
from keras_compembed.methods.method import Method
from keras_compembed.methods.rounded import Rounded
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import float_chunks

_NUM_CODEBOOKS = (*range(1, 17), *range(18, 33, 2), *range(36, 65, 4))
_CODEBOOK_SIZES = (4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256)
_CODE_RANKS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_RANKS = (*range(1, 25), *range(26, 129, 2), *range(132, 513, 4))
_BLOCK_SIZES = (None, 64, 32, 16)
_NUM_ANCHORS = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_NUMBERS = (0.5, 1, 1.5, 2, 2.5, 3, 3.5, *range(4, 9), 10, 12, 16)
# Of rows rounded to so many bits, relative to their squares: measured on
# tables of classifiers and on normal numbers, which differ little.
_ROUNDING = {8: 2e-5, 4: 0.006, 2: 0.11}
# What the number of an anchor tells besides which anchor it is.
_VALUE_BITS = 4
# Least share of the loss that codes of ever larger codebooks keep.
_LEAST_SHARE = 0.05
# Of quick fits: the rows of a sample, and the share of the time.
_SAMPLE_ROWS, _QUICK = 16_384, 0.1


@dataclasses.dataclass(frozen=True, eq=False)
class MethodChoice:
    """A method that may store a table."""

    method: Method
    kind: str
    estimate: float | None = None

    @property
    def name(self):
        return self.method.name


def choices_by_default(table, sample_weight=None):
    """A list of `MethodChoice`s of all settings worth a thought."""
    spectrum = Spectrum(table, sample_weight)
    input_dim, output_dim = table.shape
    choices = [
        *_rounded(output_dim, spectrum),
        *_codes(output_dim, spectrum),
        *_anchors(input_dim, output_dim, spectrum),
    ]
    return [
        choice
        for choice in choices
        if choice.method.reason_against(input_dim, output_dim) is None
    ]


def choices_of(methods):
    """`MethodChoice`s of given methods, of which nothing is known."""
    return [
        MethodChoice(method, f"{type(method).__name__} {method.name}")
        for method in methods
    ]


def _rounded(output_dim, spectrum):
    for bits, lost in _ROUNDING.items():
        for block_size in _BLOCK_SIZES:
            if block_size is None or block_size < output_dim:
                # Smaller blocks have smaller peaks.
                share = 1 if block_size is None else 0.9
                yield MethodChoice(
                    Rounded(bits, block_size), f"int{bits}", share * lost
                )
        if bits == 8:
            # Four bits of twice as many axes lose less.
            continue
        for rank in _RANKS:
            if rank < output_dim:
                cut = spectrum.cut(rank)
                yield MethodChoice(
                    Rounded(bits, rank=rank),
                    f"int{bits} rank",
                    cut + lost * (1 - cut),
                )


def _codes(output_dim, spectrum):
    ranks = [rank for rank in _CODE_RANKS if rank < 0.6 * output_dim]
    for num_codebooks in _NUM_CODEBOOKS:
        for codebook_size in _CODEBOOK_SIZES:
            shape = num_codebooks, codebook_size
            # Rows of eight bits a number lose nothing.
            if bytes_per_row(*shape) > output_dim:
                continue
            bits = num_codebooks * math.log2(codebook_size)
            size = "few" if codebook_size < 12 else "some"
            size = "many" if codebook_size > 32 else size
            codewords = num_codebooks * codebook_size
            if codewords > spectrum.num_rows:
                continue
            for rank in (None, *ranks):
                yield MethodChoice(
                    Codes(*shape, rank=rank),
                    f"codes of {size}" + (" rank" if rank else ""),
                    spectrum.coded(bits, codewords, rank),
                )


def _anchors(input_dim, output_dim, spectrum):
    for num_anchors in _NUM_ANCHORS:
        if num_anchors > min(input_dim, spectrum.num_rows):
            continue
        for number in _NUMBERS:
            # As many numbers as columns are rows themselves.
            if number > output_dim // 2:
                continue
            bits = number * (math.log2(num_anchors) + _VALUE_BITS)
            yield MethodChoice(
                Anchors(num_anchors, number),
                "anchors",
                spectrum.coded(bits, num_anchors),
            )


class Spectrum:
    """How the squares of rows about their mean spread over axes."""

    def __init__(self, table, sample_weight=None):
        weight = check_sample_weight(sample_weight, len(table))
        moments = np.zeros((table.shape[1],) * 2)
        total = np.zeros(table.shape[1])
        for start, rows in float_chunks(table):
            weighted = rows
            if weight is not None:
                weighted = rows * weight[start : start + len(rows), None]
            moments += weighted.T @ rows
            total += weighted.sum(axis=0, dtype="float64")
        mean = total / len(table)
        centred = moments / len(table) - np.outer(mean, mean)
        variances = np.maximum(np.linalg.eigvalsh(centred)[::-1], 0)
        # A table of equal rows loses nothing.
        self.variances = variances / max(
            variances.sum(), np.finfo("float64").tiny
        )
        self.num_rows = len(table)
        if weight is not None:
            self.num_rows /= float(np.square(weight, dtype="float64").mean())

    def cut(self, rank):
        """The share of the squares beyond so many axes."""
        return float(self.variances[rank:].sum())

    def coded(self, bits, num_codewords, rank=None):
        """The share of the squares that codes lose."""
        coded = self.variances[:rank]
        level = level_of_variances(coded, bits)
        lost = float(np.minimum(coded, level).sum())
        share = 1 - num_codewords / self.num_rows
        lost *= max(share, _LEAST_SHARE)
        return lost + (0.0 if rank is None else self.cut(rank))


class MethodErrors:
    """Squared errors of methods, over the squares of rows about their mean."""

    def __init__(self, tables, sample_weight=None, seed=None):
        self._tables = tables
        self._weight = check_sample_weight(sample_weight, len(tables[0]))
        self._means = [np.average(x, 0, self._weight) for x in tables]
        self._seed = seed
        squares = np.square(tables[0] - self._means[0]).sum(axis=1)
        self.energy = float(np.average(squares, weights=self._weight))
        # Errors that were measured, by choice.
        self.known = {}
        # Logarithms of errors measured over errors estimated, by kind.
        self._logs = {}

    def expected(self, choice):
        """The error of a choice: measured, or estimated and corrected."""
        if choice in self.known:
            return self.known[choice]
        if choice.estimate is None:
            # Only a measurement can tell: it is made as soon as it fits.
            return 0.0
        # What was never measured is hoped to be as good as estimated: so it
        # is measured before anything worse is taken.
        logs = self._logs.get(choice.kind)
        return choice.estimate * (float(np.exp(np.mean(logs))) if logs else 1)

    def quick(self, choice):
        """Measures what a short fit to a sample of rows loses."""
        method = choice.method.quicker(_QUICK)
        rows = slice(None)
        num_rows = len(self._tables[0])
        if method.is_by_row and num_rows > _SAMPLE_ROWS:
            rng = np.random.default_rng(0)
            rows = np.sort(rng.choice(num_rows, _SAMPLE_ROWS, replace=False))
        weight = None if self._weight is None else self._weight[rows]
        found = [
            method.start(self._seed, 0)
            .from_table(table[rows], sample_weight=weight)
            .embeddings
            for table in self._tables
        ]
        error = self.known[choice] = self.of(found, rows)
        if choice.estimate:
            log = np.log(max(error, 1e-9) / choice.estimate)
            self._logs.setdefault(choice.kind, []).append(log)
        return error

    def of(self, found, rows=slice(None)):
        """The error of some rows of tables that were made of them."""
        lost = there = 0.0
        weight = None if self._weight is None else self._weight[rows]
        for rebuilt, table, mean in zip(
            found, self._tables, self._means, strict=True
        ):
            table = table[rows].astype("float32")
            rebuilt = keras.ops.convert_to_numpy(
                keras.ops.cast(rebuilt, "float32")
            )
            squares = np.square(table - rebuilt).sum(axis=1, dtype="float64")
            lost += np.average(squares, weights=weight)
            squares = np.square(table - mean).sum(axis=1, dtype="float64")
            there += np.average(squares, weights=weight)
        return float(lost / there) if there else 0.0
