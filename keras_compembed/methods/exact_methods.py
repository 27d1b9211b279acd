"""Methods that hold a table of few different numbers as it is."""

import numpy as np

from keras_compembed.learners.few_numbers import FewNumbers
from keras_compembed.methods.codes import Codes
from keras_compembed.methods.pruned import Pruned

# Subcodes that files store in whole bits of a byte.
_SIZES = (2, 4, 16, 256)
_SAMPLE_ROWS = 256


def exact_methods(table):
    """Methods by which a table loses nothing and gets smaller, best first.

    Args:
        table: Array `(input_dim, output_dim)`. If half of it is 0, as when it
            was pruned, or if it has at most 256 different numbers, as when it
            was clustered, there are such methods.
    """
    found = []
    zeros = float(np.mean(table == 0))
    if 0.5 <= zeros < 1:
        found.append(Pruned(zeros))
    if len(np.unique(table[:_SAMPLE_ROWS])) <= _SIZES[-1]:
        number = len(np.unique(table))
        sizes = [size for size in _SIZES if size >= number]
        found += [
            Codes(table.shape[1], size, "concat", FewNumbers)
            for size in sizes[:1]
        ]
    sizes = {x: x.litert_bytes(*table.shape) for x in found}
    found = [x for x in found if sizes[x] < 4 * table.size]
    return sorted(found, key=sizes.get)
