"""Codebooks by k-means, each of what codes of those before leave of rows."""

import numpy as np

from keras_compembed.learners import coordinate_search as search

# Rows to learn from at most.
MOST_ROWS = 1 << 15
_BEAM, _ITERATIONS = 5, 10
# Least points for a codeword.
_POINTS = 256
_CHUNK = 1 << 13


def residual_codebooks(rows, codebooks, rng, sample_weight=None, effort=1.0):
    """Fills `codebooks` in their order; yields after each of them.

    Each is fitted to what the best few codes of a row leave. With the best
    alone, large codebooks are worse for new rows.
    """
    num_codebooks, codebook_size, width = codebooks.shape
    step = search.rows_at_once(codebook_size, width, _BEAM)
    parts = [slice(x, x + step) for x in range(0, len(rows), step)]
    beams = [search.Beams(rows[x], num_codebooks, codebook_size) for x in parts]
    iterations = max(2, round(_ITERATIONS * min(effort, 2)))
    most = max(len(rows), _POINTS * codebook_size)
    for place in range(num_codebooks):
        number = beams[0].rests.shape[1]
        share = min(1.0, most / (len(rows) * number))
        chosen = [
            np.flatnonzero(rng.random(number * len(each.rests)) < share)
            for each in beams
        ]
        points = np.concatenate(
            [
                each.rests.reshape(-1, width)[places]
                for each, places in zip(beams, chosen, strict=True)
            ]
        )
        weight = None
        if sample_weight is not None:
            weight = np.concatenate(
                [
                    sample_weight[part][places // number]
                    for part, places in zip(parts, chosen, strict=True)
                ]
            )
        codebooks[place] = k_means(
            points, codebook_size, rng, weight, iterations
        )
        for each in beams:
            each.extend(codebooks[place], place, _BEAM)
        yield place


def k_means(points, number, rng, weight=None, iterations=_ITERATIONS):
    """Codewords from random points; those without any start at far points."""
    if not len(points):
        return np.zeros((number, points.shape[1]), "float32")
    few = len(points) < number
    codewords = points[rng.choice(len(points), number, replace=few)]
    lengths = np.einsum("nd,nd->n", points, points)
    for _ in range(iterations):
        apart = np.zeros(len(points))
        sums, counts = np.zeros_like(codewords), np.zeros(number)
        negative = -2 * codewords.T
        squares = np.einsum("kd,kd->k", codewords, codewords)
        for start in range(0, len(points), _CHUNK):
            chunk = points[start : start + _CHUNK]
            scores = chunk @ negative
            scores += squares
            nearest = scores.argmin(axis=1)
            places = slice(start, start + _CHUNK)
            best = np.take_along_axis(scores, nearest[:, None], axis=1)[:, 0]
            apart[places] = np.maximum(lengths[places] + best, 0)
            own = None
            if weight is not None:
                own = weight[places]
                chunk = chunk * own[:, None]
                apart[places] *= own
            counts += np.bincount(nearest, own, minlength=number)
            search.sums_by_subcode(chunk, nearest[:, None], number, sums[None])
        used = counts > 0
        codewords[used] = sums[used] / counts[used, None].astype("float32")
        spare = number - np.count_nonzero(used)
        if spare:
            odds = apart + 1e-30
            places = rng.choice(len(points), spare, p=odds / odds.sum())
            codewords[~used] = points[places]
    return codewords
