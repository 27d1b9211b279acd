"""Alternating improvement of codes and codebooks."""

import numpy as np

from keras_compembed.codes.packing import code_dtype
from keras_compembed.compositions.composition import COMPOSITIONS
from keras_compembed.compositions.composition import ConcatComposition
from keras_compembed.compositions.composition import LinearComposition
from keras_compembed.compositions.composition import SumComposition
from keras_compembed.compositions.composition import part_of_column
from keras_compembed.learners import coordinate_search as search
from keras_compembed.utils.workers import one_thread

_SWEEPS = 3
# Sweeps of parts cost num_codebooks times less than those of sums.
_SWEEPS_OF_PARTS = 10


def can_refine(composition):
    kind = type(composition)
    if kind is str:
        kind = COMPOSITIONS[composition]
    return kind in (SumComposition, ConcatComposition, LinearComposition)


def refine_composed(table, codes, composition, codebooks, sample_weight=None):
    """Improves codes, codebooks and the composition's weights in turn."""
    if isinstance(composition, ConcatComposition):
        parts = composition.num_codebooks
        steps = refine_parts(table, codebooks, parts, sample_weight)
        for codes, codebooks, loss in steps:
            yield codes, codebooks, [], loss
        return
    folded, weights = np.asarray(composition.fold(codebooks)), []
    for sweep in range(_SWEEPS):
        ((codes, folded, loss),) = refine_codes(
            table, codes, folded, sample_weight, sweeps=1, seed=sweep
        )
        codebooks = folded
        if isinstance(composition, LinearComposition):
            codebooks, kernel = factor_codebooks(
                folded, codes, composition.code_dim, sample_weight
            )
            folded, weights = codebooks @ kernel, [kernel]
        yield codes, codebooks, weights, loss


def refine_until_stopped(table, codes, composition, codebooks, weight):
    """Codes, codebooks, weights and losses of all sweeps until Ctrl-C."""
    found = codes, codebooks, composition.get_weights(), []
    try:
        with one_thread():
            for *parts, loss in refine_composed(
                table, codes, composition, codebooks, weight
            ):
                found = *parts, [*found[-1], loss]
    except KeyboardInterrupt:
        print("\nInterrupted: keeping the last full sweep.")
    return found


def nearest_composed(table, composition, codebooks, codes=None):
    """Codes of rows for fixed codebooks."""
    if isinstance(composition, ConcatComposition):
        num_codebooks = composition.num_codebooks
        shape = len(table), num_codebooks
        codes = np.empty(shape, code_dtype(len(codebooks)))
        for part, chunk, _ in _nearest_parts(table, codebooks, num_codebooks):
            codes[part] = chunk
        return codes
    folded = np.asarray(composition.fold(codebooks), "float32")
    with one_thread():
        if codes is None:
            return search.encode_rows(table, folded, np.random.default_rng(0))
        codes = codes.copy()
        for sweep in range(_SWEEPS):
            for _ in _swept_chunks(table, codes, folded, sweep):
                pass
        return codes


def codeword_of_row(row, composition):
    """The codeword that gives a row if all codebooks have it."""
    if isinstance(composition, ConcatComposition):
        return row
    if isinstance(composition, LinearComposition):
        row = np.linalg.lstsq(
            composition.kernel.numpy().astype("float32").T, row, rcond=None
        )[0]
    return row / composition.num_codebooks


def factor_codebooks(codebooks, codes, code_dim, sample_weight=None):
    """Low-rank codebooks and a matrix that best approximate codebooks."""
    num_codebooks, codebook_size, width = codebooks.shape
    flat = codebooks.reshape(-1, width).astype("float64")
    counts = search.co_occurrence(codes, codebook_size, sample_weight)
    # Second moments of rows; the largest axes are last.
    _, axes = np.linalg.eigh(flat.T @ counts @ flat)
    axes = axes[:, ::-1][:, :code_dim]
    unused = code_dim - axes.shape[1]
    kernel = np.pad(axes.T, ((0, unused), (0, 0)))
    narrow = np.pad(flat @ axes, ((0, 0), (0, unused)))
    shape = num_codebooks, codebook_size, code_dim
    return narrow.reshape(shape).astype("float32"), kernel.astype("float32")


def refine_parts(
    table, codebooks, num_codebooks, sample_weight=None, sweeps=_SWEEPS_OF_PARTS
):
    """k-means in each part of the rows, from concatenated codebooks."""
    codebook_size = len(codebooks)
    part_of = part_of_column(codebooks.shape[1], num_codebooks)
    for _ in range(sweeps):
        codes = np.empty((len(table), num_codebooks), code_dtype(codebook_size))
        counts = np.zeros((codebook_size, num_codebooks))
        sums = np.zeros_like(codebooks)
        loss = 0.0
        for part, chunk, residual in _nearest_parts(
            table, codebooks, num_codebooks
        ):
            codes[part] = chunk
            weighted, weight = residual, None
            if sample_weight is not None:
                weight = sample_weight[part]
                weighted = residual * weight[:, None]
            loss += float(np.vdot(weighted, residual))
            for m, columns in _parts(part_of):
                counts[:, m] += np.bincount(
                    chunk[:, m], weight, minlength=codebook_size
                )
                search.sums_by_subcode(
                    weighted[:, columns],
                    chunk[:, m : m + 1],
                    codebook_size,
                    sums[None, :, columns],
                )
        counts = counts[:, part_of]
        codebooks = codebooks + np.divide(
            sums, counts, out=np.zeros_like(sums), where=counts > 0
        )
        yield codes, codebooks, loss / len(table)


def _nearest_parts(table, codebooks, num_codebooks):
    """Yields `(slice, codes, residual)` of each chunk of rows."""
    codebook_size, width = codebooks.shape
    part_of = part_of_column(width, num_codebooks)
    for part, residual in search.centred_chunks(
        table, np.float32(0), codebook_size
    ):
        codes = np.empty((len(residual), num_codebooks), "intp")
        for m, columns in _parts(part_of):
            codewords = codebooks[:, columns]
            scores = residual[:, columns] @ (-2 * codewords.T)
            scores += np.einsum("kd,kd->k", codewords, codewords)
            codes[:, m] = scores.argmin(axis=1)
            residual[:, columns] -= codewords[codes[:, m]]
        yield part, codes, residual


def _parts(part_of):
    """Pairs of a part and the slice of its columns."""
    edges = np.flatnonzero(np.diff(part_of, prepend=-1, append=part_of[-1] + 1))
    return enumerate(map(slice, edges[:-1], edges[1:]))


def refine_codes(table, codes, codebooks, sample_weight=None, sweeps=3, seed=0):
    """Improves codes and codebooks in turn; the loss falls at each step."""
    for sweep in range(sweeps):
        # The yielded codes belong to the caller.
        codes = codes.copy()
        sums = np.zeros_like(codebooks)
        loss = 0.0
        for part, residual in _swept_chunks(
            table, codes, codebooks, seed + sweep
        ):
            weighted = residual
            if sample_weight is not None:
                weighted = residual * sample_weight[part, None]
            loss += float(np.vdot(weighted, residual))
            search.sums_by_subcode(
                weighted, codes[part], codebooks.shape[1], sums
            )
        codebooks = codebooks + search.least_squares_step(
            codes, codebooks, sums, sample_weight
        )
        yield codes, codebooks, loss / len(table)


def _swept_chunks(table, codes, codebooks, seed):
    """Sweeps `codes` in place; yields `(slice, residual)` of each chunk."""
    rng = np.random.default_rng(seed)
    sweep = search.Sweep(codebooks, rng)
    for part, residual in search.centred_chunks(
        table, np.float32(0), codebooks.shape[1]
    ):
        search.subtract_codewords(residual, codes[part], codebooks)
        sweep.run(residual, codes[part], 0.0, None, rng)
        yield part, residual
