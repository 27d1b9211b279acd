"""Statistics of codes: balance, and words with the same code."""

import numpy as np


def code_balance(codes, codebook_size):
    """Share of each subcode (columns) in each codebook (rows)."""
    counts = [
        np.bincount(subcodes, minlength=codebook_size) for subcodes in codes.T
    ]
    return np.stack(counts) / len(codes)


def code_usage(codes, codebook_size):
    """How evenly codes use codebooks."""
    balance = code_balance(codes, codebook_size)
    logarithms = np.log2(np.where(balance > 0, balance, 1))
    entropy = np.abs(np.sum(balance * logarithms, axis=1))
    unused = np.argwhere(balance == 0)
    return {
        "entropy_bits": entropy.tolist(),
        "perplexity": (2**entropy).tolist(),
        "largest_share": balance.max(axis=1).tolist(),
        "unused": unused.tolist(),
        "num_unused": len(unused),
    }


def words_sharing_codes(codes, vocabulary, codebook_size):
    """Codes of at least two words, and these words, the largest groups first.

    Codes are hexadecimal numbers as in Table 6 of Shu & Nakayama.
    """
    if vocabulary is None:
        vocabulary = range(len(codes))
    distinct, group, counts = np.unique(
        codes, axis=0, return_inverse=True, return_counts=True
    )
    # Stable sorts keep words in row order, and equal groups in code order.
    members = np.split(
        np.argsort(group.ravel(), kind="stable"), np.cumsum(counts)[:-1]
    )
    largest_first = np.argsort(-counts, kind="stable")
    width = len(f"{codebook_size - 1:X}")
    return [
        (
            " ".join(f"{subcode:0{width}X}" for subcode in distinct[place]),
            [vocabulary[row] for row in members[place]],
        )
        for place in largest_first[counts[largest_first] > 1]
    ]
