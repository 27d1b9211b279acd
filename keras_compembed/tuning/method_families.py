"""The ways to store a table that are tuned by default."""

from keras_compembed.methods.codes import Codes

_CODEBOOKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def method_families():
    """Ways to store a table, in families whose members differ in size.

    A starting point: take out or put in what you like, and pass it to
    `CompressedHyperModel`.

    Example:

    >>> families = method_families()
    >>> [method.name for method in families["codes"][:2]]
    ['codes 1x4', 'codes 1x16']
    >>> del families["codes"]

    Returns:
        Dict from the name of a family to a list of
        `keras_compembed.methods.Method`.
    """
    return {
        "codes": [Codes(m, k) for m in _CODEBOOKS for k in (4, 16, 256)],
    }
