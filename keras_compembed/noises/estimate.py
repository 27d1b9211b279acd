"""Losses of candidates against noises, from scores."""

import tensorflow as tf

from keras_compembed.utils.scores import log_add_exp
from keras_compembed.utils.scores import log_sum_exp


def joint_losses(label, candidates, noises, label_noise, hit):
    """Losses with all noises of an example in one sum.

    `log(sum_{k in C} e^{s_k} + (1 / n) sum_j e^{s_j} / q(j)) - s_y`, where
    the label takes the place of the last of the n noises if it is not a
    candidate. As with one noise, where it is equation 5, true probabilities
    are what maximizes its expectation; the more noises, the less it varies.

    Args:
        label: Tensor `(rows,)`, the score of the label.
        candidates: Tensor `(rows, candidates)`, scores, minus infinity where
            there is none.
        noises: Tensor `(rows, noises)`, `s_j - log q(j)` of noises, minus
            infinity of those that count as 0.
        label_noise: Tensor `(rows,)`, `s_y - log q(y)`.
        hit: Boolean tensor `(rows,)`, whether the label is a candidate.

    Returns:
        Tensor `(rows,)`.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), equation 5
    """
    noises = tf.concat(
        [
            noises[:, :-1],
            tf.where(hit, noises[:, -1], label_noise)[:, None],
        ],
        axis=1,
    )
    noises -= tf.math.log(tf.cast(tf.shape(noises)[1], noises.dtype))
    total = log_sum_exp(tf.concat([candidates, noises], axis=1))
    return total - label


def separate_losses(label, candidates, noises, label_noise, hit):
    """Losses with a logarithm for each noise: Algorithm 1.

    The mean over noises of `log(sum_{k in C} e^{s_k} + e^{s_j} / q(j)) - s_y`
    or, if the label is not a candidate, with the label as the only noise.

    Args:
        label: As of `joint_losses`.
        candidates: As of `joint_losses`.
        noises: As of `joint_losses`.
        label_noise: As of `joint_losses`.
        hit: As of `joint_losses`.

    Returns:
        Tensor `(rows,)`.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), equations 2, 3,
          7 and 8
    """
    inside = log_sum_exp(candidates)
    noises = tf.where(hit[:, None], noises, label_noise[:, None])
    totals = log_add_exp(inside[:, None], noises)
    return tf.reduce_mean(totals, axis=1) - label
