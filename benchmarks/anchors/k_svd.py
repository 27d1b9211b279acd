"""K-SVD, of Aharon, Elad & Bruckstein, 2006.

It takes one power iteration for each singular vector, as in Rubinstein,
Zibulevsky & Elad, 2008. Its pursuit is ours.
"""

import numpy as np

from keras_compembed.anchors.sparse_coding import sparse_code


def learn_by_k_svd(table, num_anchors, max_nonzeros, iterations, seed):
    """Same as `learn_dictionary`: a sparse transform, and anchors."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(table), num_anchors, replace=False)
    anchors = _of_length_1(table[rows])
    for _ in range(iterations):
        transform = sparse_code(table, anchors, max_nonzeros, False)
        weights = transform.dense_rows()
        left = table - weights @ anchors
        for place in range(num_anchors):
            rows = np.flatnonzero(weights[:, place])
            if not len(rows):
                worst = np.argmax(np.einsum("ij,ij->i", left, left))
                anchors[place] = _of_length_1(table[worst])
                continue
            old = weights[rows, place]
            without = left[rows] + old[:, None] * anchors[place]
            anchors[place] = _of_length_1(old @ without)
            weights[rows, place] = without @ anchors[place]
            left[rows] = without - np.outer(
                weights[rows, place], anchors[place]
            )
    return sparse_code(table, anchors, max_nonzeros, False), anchors


def _of_length_1(rows):
    """Rows of zeros stay: no row of the table then takes such an anchor."""
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.where(length > 0, length, 1)
