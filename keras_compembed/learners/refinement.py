"""Codes found by other means, improved by sweeps and least squares."""

import numpy as np

from keras_compembed.learners import coordinate_search as search


def refine_codes(table, codes, codebooks, sample_weight=None, sweeps=3, seed=0):
    """Improves codes and codebooks in turn; the loss falls at each step.

    Args:
        table: Array `(rows, columns)`.
        codes: Unsigned integer array `(rows, num_codebooks)`.
        codebooks: float32 array `(num_codebooks, codebook_size, columns)`.
        sample_weight: Optional array `(rows,)` of mean 1.
        sweeps: Integer, how many times each subcode is chosen anew. Defaults
            to `3`.
        seed: Integer, for the order of codebooks. Defaults to `0`.

    Yields:
        After each sweep new codes, new codebooks, and the loss (mean squared
        distance of a row) of the codes before codebooks were fitted to them.
    """
    for sweep in range(sweeps):
        # What was yielded is the caller's.
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


def nearest_codes(table, codes, codebooks, sweeps=3):
    """New codes, improved for codebooks as they are."""
    codes = codes.copy()
    for sweep in range(sweeps):
        for _ in _swept_chunks(table, codes, codebooks, sweep):
            pass
    return codes


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
