"""Candidate settings of methods for a table."""

import dataclasses
import math

import numpy as np

from keras_compembed.codes.packing import bytes_per_row
from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.learners.coordinate_search import level_of_variances
from keras_compembed.methods.anchors import Anchors
from keras_compembed.methods.codes import Codes
from keras_compembed.methods.method import Method
from keras_compembed.methods.pruned import Pruned
from keras_compembed.methods.quantized import Quantized
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import float_chunks

# Subcodes of 1, 2, 4 and 8 bits.
_SIZES = (2, 4, 16, 256)
_SAMPLE_ROWS = 256
_NUM_CODEBOOKS = (*range(1, 17), *range(18, 33, 2), *range(36, 65, 4))
_CODEBOOK_SIZES = (4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256)
_CODE_RANKS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_RANKS = (*range(1, 25), *range(26, 129, 2), *range(132, 513, 4))
_BLOCK_SIZES = (None, 64, 32, 16)
_NUM_ANCHORS = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_NUMBERS = (0.5, 1, 1.5, 2, 2.5, 3, 3.5, *range(4, 9), 10, 12, 16)
# Relative squared error by bits, measured on tables of classifiers and on
# normally distributed values. They differ little.
_ROUNDING = {8: 2e-5, 4: 0.006, 2: 0.11}
# Information in the weight of an anchor, beyond the choice of anchor.
_VALUE_BITS = 4
# The least share of loss that large codebooks keep.
_LEAST_SHARE = 0.05
# Limits of quick fits: `_MOST_CODEWORDS`, or `_CODEWORDS` above `_MOST_NUMBERS`
# parameters. Above `_EASY_NUMBERS`, fits get less effort.
_MOST_CODEWORDS, _MOST_NUMBERS = 3072, 300_000
_CODEWORDS, _EASY_NUMBERS = 1024, 160_000


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """A method, its kind, and its estimated relative error."""

    method: Method
    kind: str
    estimate: float | None = None

    @property
    def family(self):
        return self.kind.partition(" of ")[0]


def settings_by_default(table, sample_weight=None, is_quick=True):
    """A list of `Setting`s for a table that are fitted in seconds."""
    spectrum = Spectrum(table, sample_weight)
    input_dim, output_dim = table.shape
    settings = [
        *_rounded(output_dim, spectrum),
        *_codes(output_dim, spectrum, is_quick),
        *_anchors(input_dim, output_dim, spectrum),
    ]
    return [
        setting
        for setting in settings
        if setting.method.reason_against(input_dim, output_dim) is None
    ]


def settings_of(methods):
    """`Setting`s of given methods, without estimates."""
    return [Setting(x, f"{type(x).__name__} {x.name}") for x in methods]


def _rounded(output_dim, spectrum):
    for bits, lost in _ROUNDING.items():
        for block_size in _BLOCK_SIZES:
            if block_size is None or block_size < output_dim:
                # Smaller blocks have smaller peaks.
                share = 1 if block_size is None else 0.9
                method = Quantized(bits, block_size)
                yield Setting(method, f"int{bits}", share * lost)
        # int8 is left out: int4 of twice the rank loses less.
        for rank in _RANKS if bits < 8 else ():
            if rank < output_dim:
                cut = spectrum.cut(rank)
                lost_in_all = cut + lost * (1 - cut)
                method = Quantized(bits, rank=rank)
                yield Setting(method, f"int{bits} rank", lost_in_all)


def _codes(output_dim, spectrum, is_quick):
    ranks = [rank for rank in _CODE_RANKS if rank < 0.6 * output_dim]
    for num_codebooks in _NUM_CODEBOOKS:
        for codebook_size in _CODEBOOK_SIZES:
            shape = num_codebooks, codebook_size
            # Skips codes above the size of int8 rows.
            if bytes_per_row(*shape) > output_dim:
                continue
            bits = num_codebooks * math.log2(codebook_size)
            size = "few" if codebook_size < 12 else "some"
            size = "many" if codebook_size > 32 else size
            codewords = num_codebooks * codebook_size
            if codewords > spectrum.num_rows:
                continue
            for rank in (None, *ranks):
                numbers, effort = codewords * (rank or output_dim), 1.0
                if is_quick:
                    effort = min(1.0, _EASY_NUMBERS / numbers)
                    is_dear = numbers > _MOST_NUMBERS
                    if codewords > (_CODEWORDS if is_dear else _MOST_CODEWORDS):
                        continue
                yield Setting(
                    Codes(*shape, rank=rank, effort=effort),
                    f"codes of {size}" + (" rank" if rank else ""),
                    spectrum.coded(bits, codewords, rank),
                )


def _anchors(input_dim, output_dim, spectrum):
    for num_anchors in _NUM_ANCHORS:
        if num_anchors > min(input_dim, spectrum.num_rows):
            continue
        for number in _NUMBERS:
            # Skips more weights than half the columns.
            if number <= output_dim // 2:
                bits = number * (math.log2(num_anchors) + _VALUE_BITS)
                method = Anchors(num_anchors, number)
                lost = spectrum.coded(bits, num_anchors)
                yield Setting(method, "anchors", lost)


class Spectrum:
    """The variance of rows along their principal axes."""

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
        # Avoids division by 0 for a table of equal rows.
        tiny = np.finfo("float64").tiny
        self.variances = variances / max(variances.sum(), tiny)
        self.num_rows = len(table)
        if weight is not None:
            self.num_rows /= float(np.square(weight, dtype="float64").mean())

    def cut(self, rank):
        """The share of variance beyond the first `rank` axes."""
        return float(self.variances[rank:].sum())

    def coded(self, bits, num_codewords, rank=None):
        """The share of variance that codes lose."""
        coded = self.variances[:rank]
        level = level_of_variances(coded, bits)
        lost = float(np.minimum(coded, level).sum())
        share = 1 - num_codewords / self.num_rows
        lost *= max(share, _LEAST_SHARE)
        return lost + (0.0 if rank is None else self.cut(rank))


def exact_methods(table):
    """Methods that shrink a table without loss, smallest first."""
    found, zeros = [], float(np.mean(table == 0))
    if 0.5 <= zeros < 1:
        found.append(Pruned(zeros))
    if len(np.unique(table[:_SAMPLE_ROWS])) <= _SIZES[-1]:
        number = len(np.unique(table))
        size = next((size for size in _SIZES if size >= number), None)
        if size:
            found.append(Codes(table.shape[1], size, "concat", _FewNumbers))
    sizes = {x: x.litert_bytes(*table.shape) for x in found}
    return sorted(
        (x for x in sizes if sizes[x] < 4 * table.size), key=sizes.get
    )


class _FewNumbers(CodeLearner):
    """Gives each distinct value of the table a subcode."""

    composition = "concat"

    def __init__(self, num_codebooks, codebook_size):
        self.num_codebooks = num_codebooks
        self.codebook_size = codebook_size

    def train(self, table, sample_weight=None):
        self._numbers = np.unique(table).astype("float32")
        column = np.resize(self._numbers, (self.codebook_size, 1))
        self.codebooks = np.tile(column, self.num_codebooks)
        self.codes = self.encode(table)
        return self

    def encode(self, table):
        return np.searchsorted(self._numbers, table).astype("uint8")
