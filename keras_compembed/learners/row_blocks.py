"""Blocks of rows of a table, one after the other or several at a time."""

import itertools

import joblib

from keras_compembed.learners.coordinate_search import chunk_rows

_CHUNKS = 32
# Rows of a block for each codeword: sums by codeword are made for each block.
_ROWS_PER_CODEWORD = 4


def row_blocks(num_rows, num_codebooks, codebook_size):
    """Slices of rows that are worth a task of their own."""
    chunk = chunk_rows(codebook_size)
    least = _ROWS_PER_CODEWORD * num_codebooks * codebook_size
    size = chunk * max(_CHUNKS, -(-least // chunk))
    return [
        slice(start, min(start + size, num_rows))
        for start in range(0, num_rows, size)
    ]


def in_order(function, arguments):
    """Yields `function(*each)` of all arguments, in their order."""
    # Rows are sent as they are: files of them would be made again and again.
    parallel = joblib.Parallel(
        return_as="generator", batch_size=1, max_nbytes=None
    )
    if parallel.n_jobs == 1:
        return itertools.starmap(function, arguments)
    task = joblib.delayed(function)
    return parallel(itertools.starmap(task, arguments))
