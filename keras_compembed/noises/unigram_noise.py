"""Noise classes drawn by how often they occur."""

import keras
import numpy as np

from keras_compembed.noises.table_noise import TOTAL_WEIGHT
from keras_compembed.noises.table_noise import TableNoise
from keras_compembed.noises.table_noise import check_fraction
from keras_compembed.utils.validation import check_scores


@keras.saving.register_keras_serializable(package="keras_compembed")
class UnigramNoise(TableNoise):
    """Classes are drawn in proportion to a power of their counts.

    Counts to the power are scaled to integers that add up to 2 ** 38, at least
    1 each. Classes that were never counted are never drawn; to have them
    drawn, add something to all counts.

    Example:

    >>> labels = np.random.default_rng(0).integers(1000, size=5000)
    >>> noise = UnigramNoise(counts=np.bincount(labels, minlength=1000))
    >>> layer = kc.CANESoftmax(num_classes=1000, noise=noise)

    Args:
        counts: Array `(num_classes,)` of numbers of at least 0: how often
            each class is a label.
        power: Number from 0, all that were counted alike, to 1, as often as
            counted. Defaults to `0.75`.

    Raises:
        ValueError: if `counts` is not one finite number of at least 0 for each
            class, or holds only zeros, or `power` is out of range; by
            `attach`, if there are not `num_classes` counts.

    References:
        - [Mikolov et al., 2013](https://arxiv.org/abs/1310.4546), section 2.2
        - [Ji et al., 2015](https://arxiv.org/abs/1511.06909), section 3
    """

    def __init__(self, counts, power=0.75, **kwargs):
        super().__init__(check_scores("counts", counts), **kwargs)
        self.power = check_fraction("power", power, zero=True)
        if not self.counts.any():
            raise ValueError(
                "`counts` must not be zero for every class. Received: all "
                "zeros."
            )

    def first_table(self):
        # Of the largest count, so that no power overflows.
        shares = (self.counts / self.counts.max()) ** self.power
        # 0 ** 0 is 1.
        shares = np.where(self.counts > 0, shares, 0)
        weights = np.rint(shares * (TOTAL_WEIGHT / shares.sum()))
        weights = np.where(self.counts > 0, np.maximum(weights, 1), 0)
        return np.append(0, np.cumsum(weights.astype("int64")))

    def load_own_variables(self, store):
        """Leaves the table: counts are settings, of the config."""

    def get_config(self):
        return {**super().get_config(), "power": self.power}
