"""Choosing codewords by scores, so that the choice can be learned."""

import tensorflow as tf

from keras_compembed.compositions.concat_composition import split_columns

# Statistics of the last 100 batches or so.
_KEPT = 0.99
# Scores of small queries are small: 1e-6 and less.
_EPSILON = 1e-9


def pick_best(scores, temperature=1.0):
    """One-hot of the best score, with the gradient of the softmax.

    The hard choice forward; backward as if it had been
    `softmax(scores / temperature)`.

    Args:
        scores: Tensor `(..., codebook_size)`.
        temperature: Number or scalar tensor.

    References:
        - [Chen, Min & Sun, 2018](https://arxiv.org/abs/1806.09464),
          Algorithm 1
    """

    @tf.custom_gradient
    def harden(soft):
        hard = tf.one_hot(
            tf.argmax(soft, axis=-1), soft.shape[-1], dtype=soft.dtype
        )
        return hard, lambda upstream: upstream

    return harden(tf.nn.softmax(scores / temperature))


def key_scores(queries, keys, num_codebooks, nearest):
    """How well each key answers each part of a query.

    Args:
        queries: Tensor `(ids, width)`.
        keys: Tensor `(codebook_size, width)`.
        num_codebooks: Integer, parts that the columns are split into.
        nearest: Boolean. Scores are negative squared distances if true, else
            dot products.

    Returns:
        Tensor `(ids, num_codebooks, codebook_size)`.
    """
    # (M, ids, w) x (M, w, K)
    parts = tf.transpose(split_columns(queries, num_codebooks), (1, 0, 2))
    keys = tf.transpose(split_columns(keys, num_codebooks), (1, 2, 0))
    scores = tf.matmul(parts, keys)
    if nearest:
        scores *= 2
        scores -= tf.reduce_sum(tf.square(parts), axis=2, keepdims=True)
        scores -= tf.reduce_sum(tf.square(keys), axis=1, keepdims=True)
    return tf.transpose(scores, (1, 0, 2))


def score_sums(scores, counts):
    """What mean and variance come from: `(3, num_codebooks, codebook_size)`.

    Taken over the ids of all devices.

    Args:
        scores: Tensor `(ids, num_codebooks, codebook_size)`.
        counts: Float tensor `(ids,)`, how often each id counts.
    """
    weights = counts[:, None, None]
    sums = tf.stack(
        [
            tf.reduce_sum(weights * scores, axis=0),
            tf.reduce_sum(weights * tf.square(scores), axis=0),
            tf.fill(scores.shape[1:], tf.reduce_sum(counts)),
        ]
    )
    sums, _ = _over_devices(sums)
    return sums


def normalize_scores(scores, sums):
    """Scores less their mean, over their standard deviation.

    So that no key is left out because its scores are low for every id.
    """
    first, second, total = tf.unstack(sums)
    # There may be no ids yet, or none but padding.
    mean = tf.math.divide_no_nan(first, total)
    variance = tf.math.divide_no_nan(second, total) - tf.square(mean)
    variance = tf.maximum(variance, 0.0)
    return (scores - mean) * tf.math.rsqrt(variance + _EPSILON)


def keep_sums(kept, sums):
    """Brings the statistics kept, a variable, up to date."""
    kept.assign(_KEPT * kept + tf.stop_gradient(sums))


def mean_over_ids(values, counts):
    """Mean of `values`, `(ids,)`, in which each id counts so often.

    Where there are several devices, their mean is that over the ids of all.
    """
    total, devices = _over_devices(tf.reduce_sum(counts))
    return tf.math.divide_no_nan(
        tf.reduce_sum(counts * values) * devices, total
    )


def _over_devices(values):
    """The sum over devices, and their number."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return values, 1.0
    total = context.all_reduce(tf.distribute.ReduceOp.SUM, values)
    return total, float(context.num_replicas_in_sync)
