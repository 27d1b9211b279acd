"""Codes of rows, for codebooks as they are."""

import numpy as np

from keras_compembed.codes.packing import code_dtype
from keras_compembed.learners import coordinate_search as search

_BEAM = 16
_SWEEPS = 4
_CHUNK_SCORES = 1 << 22


def encode_rows(table, codebooks, rng):
    """Codes by beam search, each subcode then chosen anew a few times."""
    num_codebooks, codebook_size, _ = codebooks.shape
    codes = np.empty((len(table), num_codebooks), code_dtype(codebook_size))
    blocks = search.row_blocks(len(table), num_codebooks, codebook_size)
    seed = int(rng.integers(1 << 62))
    found = search.in_order(
        _encode_block, ((table[part], codebooks, seed) for part in blocks)
    )
    for part, of_block in zip(blocks, found, strict=True):
        codes[part] = of_block
    return codes


def _encode_block(table, codebooks, seed):
    num_codebooks, codebook_size, width = codebooks.shape
    beam, rng = _Beam(codebooks), np.random.default_rng(seed)
    sweeps = [search.Sweep(codebooks, rng) for _ in range(_SWEEPS)]
    codes = np.empty((len(table), num_codebooks), code_dtype(codebook_size))
    few = max(1, _CHUNK_SCORES // (_BEAM * max(codebook_size, width)))
    offset = np.float32(0)
    for part, rows in search.centred_chunks(table, offset, codebook_size):
        found = [
            beam.search(rows[start : start + few])
            for start in range(0, len(rows), few)
        ]
        codes[part] = np.concatenate(found)
        residual = rows
        search.subtract_codewords(residual, codes[part], codebooks)
        for sweep in sweeps:
            sweep.run(residual, codes[part], 0.0, None, None)
    return codes


class _Beam:
    """Beam search over codebooks, the most varied first."""

    def __init__(self, codebooks):
        means = codebooks.mean(axis=1, keepdims=True)
        self._offset = means.sum(axis=(0, 1))
        self._codebooks = codebooks - means
        self._squares = np.einsum(
            "mkd,mkd->mk", self._codebooks, self._codebooks
        )
        self._order = np.argsort(-self._squares.sum(axis=1), kind="stable")

    def search(self, rows):
        """Codes `(rows, num_codebooks)` of the best of `_BEAM` candidates."""
        count, width = rows.shape
        residuals = (rows - self._offset)[:, None]
        codes = np.zeros((count, 1, len(self._order)), "intp")
        distances = np.zeros((count, 1), "float32")
        each = np.arange(count)[:, None]
        for m in self._order:
            codebook = self._codebooks[m]
            scores = residuals.reshape(-1, width) @ codebook.T
            scores *= -2
            scores += self._squares[m]
            scores = scores.reshape(count, -1, len(codebook))
            scores += distances[..., None]
            scores = scores.reshape(count, -1)
            kept = min(_BEAM, scores.shape[1])
            best = np.argpartition(scores, kept - 1, axis=1)[:, :kept]
            distances = np.take_along_axis(scores, best, axis=1)
            source, subcodes = np.divmod(best, len(codebook))
            residuals = residuals[each, source] - codebook[subcodes]
            codes = codes[each, source]
            codes[..., m] = subcodes
        return codes[np.arange(count), distances.argmin(axis=1)]
