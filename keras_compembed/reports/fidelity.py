"""How near a reconstructed table is to the original."""

import dataclasses

import numpy as np

from keras_compembed.reports.table_rows import TableRows
from keras_compembed.reports.table_rows import directions
from keras_compembed.reports.table_rows import nearest_rows
from keras_compembed.reports.table_rows import row_parts
from keras_compembed.reports.word_lines import check_words
from keras_compembed.reports.word_tests import check_word_tests
from keras_compembed.utils.validation import check_positive_int


@dataclasses.dataclass(frozen=True)
class Fidelity:
    """How near a reconstructed table is to the original; see `fidelity`."""

    mean_squared_distance: float
    relative_squared_error: float | None
    centred_relative_squared_error: float | None
    mean_cosine: float | None
    neighbor_overlap: float | None
    num_neighbors: int
    num_queries: int
    word_scores: tuple = ()
    original_word_scores: tuple = ()


def fidelity(
    table,
    reconstruction,
    num_neighbors=10,
    num_queries=1000,
    seed=0,
    words=None,
    word_tests=(),
):
    """Compares a table with its reconstruction.

    Both are read a part at a time. Neighbours are by cosine, among all rows
    but the row itself, for a random sample of rows. Rows that are zero in the
    table are left out of the mean cosine and of the sample; a row that is
    zero only in the reconstruction has cosine 0 and overlap 0. Which of
    equally near rows counts as a neighbour is arbitrary.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> fidelity(table, table).mean_squared_distance
    0.0

    Args:
        table: Array of shape `(rows, columns)`, or a built layer that maps
            ids to vectors.
        reconstruction: Array of the same shape, or a built `CodeEmbedding`
            or other layer that maps ids to vectors.
        num_neighbors: Integer. Neighbours to compare; fewer if there are
            not as many other rows. Defaults to `10`.
        num_queries: Integer. Rows whose neighbours are compared. Defaults to
            `1000`.
        seed: Integer. Seed of the sample of rows. Defaults to `0`.
        words: Optional list of strings, the word of each row, for
            `word_tests`. Defaults to `None`.
        word_tests: List of `WordPairs` and `WordAnalogies`, which both are
            asked. Defaults to `()`.

    Returns:
        A `Fidelity`.

    Raises:
        ValueError: if a table is not a finite matrix, the shapes differ, a
            layer is not built, or there is not a word for each row.
    """
    original = TableRows("table", table)
    rebuilt = TableRows("reconstruction", reconstruction)
    if original.shape != rebuilt.shape:
        raise ValueError(
            "`reconstruction` must have the shape of `table`, "
            f"{original.shape}. Received: shape {rebuilt.shape}."
        )
    check_positive_int("num_neighbors", num_neighbors)
    check_positive_int("num_queries", num_queries)
    check_word_tests(word_tests, table, words, "table")
    if words is not None:
        check_words(words, original)
    num_rows = original.shape[0]
    mean = sum(
        original[part].sum(axis=0, dtype="float64")
        for part in row_parts(original.shape)
    )
    mean /= num_rows
    error = energy = centred = cosines = 0.0
    directed = []
    for part in row_parts(original.shape):
        rows = original[part].astype("float64")
        others = rebuilt[part].astype("float64")
        error += np.sum((rows - others) ** 2)
        energy += np.sum(rows**2)
        centred += np.sum((rows - mean) ** 2)
        cosines += np.sum(directions(rows) * directions(others))
        directed.append(part.start + np.flatnonzero(rows.any(axis=1)))
    directed = np.concatenate(directed)
    num_neighbors = min(num_neighbors, num_rows - 1)
    num_queries = min(num_queries, len(directed)) if num_neighbors else 0
    queries = np.sort(
        np.random.default_rng(seed).choice(directed, num_queries, replace=False)
    )
    # Below the rounding of float32 rows, spread about the mean is noise.
    varies = centred > 1e-14 * energy
    return Fidelity(
        mean_squared_distance=float(error / num_rows),
        relative_squared_error=float(error / energy) if energy else None,
        centred_relative_squared_error=(
            float(error / centred) if varies else None
        ),
        mean_cosine=float(cosines / len(directed)) if len(directed) else None,
        neighbor_overlap=(
            _overlap(original, rebuilt, queries, num_neighbors)
            if num_queries
            else None
        ),
        num_neighbors=num_neighbors,
        num_queries=num_queries,
        word_scores=_scores(word_tests, reconstruction, words),
        original_word_scores=_scores(word_tests, table, words),
    )


def _scores(word_tests, table, words):
    return tuple(test.evaluate(table, words) for test in word_tests)


def _overlap(original, rebuilt, queries, num_neighbors):
    near, _ = nearest_rows(original, queries, num_neighbors)
    also_near, has_direction = nearest_rows(rebuilt, queries, num_neighbors)
    shared = (near[:, :, None] == also_near[:, None, :]).any(axis=2)
    return float(np.mean(shared.mean(axis=1) * has_direction))
