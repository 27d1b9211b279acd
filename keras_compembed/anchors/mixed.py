"""Several sets of anchors."""

import keras
import numpy as np

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class Mixed(AnchorInitializer):
    """Several sets of anchors, each chosen in its own way.

    Example:

    >>> frequent = kc.anchors.Frequency([5, 9, 0, 7])
    >>> initializer = Mixed([frequent, kc.anchors.Dynamic()], sizes=[2, 6])
    >>> initializer.choose(input_dim=4, num_anchors=8)
    array([ 1,  3, -1, -1, -1, -1, -1, -1])

    Args:
        initializers: Sequence of `AnchorInitializer`, one for each set. Give
            sets of random anchors an instance each: the same instance
            chooses the same anchors again.
        sizes: Optional sequence of positive integers, how many anchors are
            in each set. Defaults to sets of equal size, the first ones of one
            more where the number of anchors does not divide.

    Raises:
        ValueError: if there are no initializers, one of them is none or is
            itself `Mixed`, or sizes are not a positive integer for each; by
            `sizes`, if they do not add up to the number of anchors, or there
            are fewer anchors than sets.

    References:
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), section
          3.1 and Figure 3
    """

    def __init__(self, initializers, sizes=None):
        super().__init__(seed=0)
        self.initializers = list(initializers)
        if not self.initializers:
            raise ValueError(
                "`initializers` must hold at least one. Received: none."
            )
        for initializer in self.initializers:
            if not isinstance(initializer, AnchorInitializer) or isinstance(
                initializer, Mixed
            ):
                raise ValueError(
                    "`initializers` must be instances of `AnchorInitializer`, "
                    f"none of them `Mixed`. Received: {initializer!r}."
                )
        self.given_sizes = sizes
        if sizes is not None:
            self.given_sizes = tuple(
                check_positive_int("sizes", size) for size in sizes
            )
            if len(self.given_sizes) != len(self.initializers):
                raise ValueError(
                    "`sizes` must hold one number for each initializer. "
                    f"Received: {len(self.given_sizes)} sizes, "
                    f"{len(self.initializers)} initializers."
                )

    def sizes(self, num_anchors):
        number = len(self.initializers)
        if self.given_sizes is not None:
            if sum(self.given_sizes) != num_anchors:
                raise ValueError(
                    "`sizes` must add up to the number of anchors. Received: "
                    f"sizes={self.given_sizes}, num_anchors={num_anchors}."
                )
            return self.given_sizes
        if num_anchors < number:
            raise ValueError(
                "`num_anchors` must be at least the number of sets. "
                f"Received: num_anchors={num_anchors}, {number} initializers."
            )
        each, more = divmod(num_anchors, number)
        return (each + 1,) * more + (each,) * (number - more)

    def choose(self, input_dim, num_anchors):
        return np.concatenate(
            [
                initializer.choose(input_dim, size)
                for initializer, size in self._sets(num_anchors)
            ]
        )

    def vectors(self, num_anchors, output_dim):
        return np.concatenate(
            [
                initializer.vectors(size, output_dim)
                for initializer, size in self._sets(num_anchors)
            ]
        )

    def get_config(self):
        return {
            "initializers": [
                keras.saving.serialize_keras_object(initializer)
                for initializer in self.initializers
            ],
            "sizes": self.given_sizes,
        }

    @classmethod
    def from_config(cls, config):
        initializers = [
            keras.saving.deserialize_keras_object(initializer)
            for initializer in config["initializers"]
        ]
        return cls(initializers, config["sizes"])

    def _sets(self, num_anchors):
        return zip(self.initializers, self.sizes(num_anchors), strict=True)
