"""Base of the ways to choose anchors."""

import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require


class AnchorInitializer:
    """Chooses the objects that anchors stand for, and where anchors start.

    To choose in another way, override `choose`, and `vectors` if the anchors
    start from something better than a random basis. Layers save what was
    chosen, not what it was chosen from: no class needs a config.

    Example:

    >>> class FirstIds(kc.anchors.AnchorInitializer):
    ...     def choose(self, input_dim, num_anchors):
    ...         return np.arange(num_anchors)
    >>> layer = kc.ANTEmbedding(1000, 64, num_anchors=3, anchors=FirstIds())
    >>> layer.anchor_ids
    array([0, 1, 2])

    Args:
        seed: Optional integer. What is random follows from it: the same
            instance gives the same answers at every call. Defaults to one
            drawn when the instance is made, which
            `keras.utils.set_random_seed` makes repeatable.
    """

    def __init__(self, seed=None):
        if seed is None:
            seed = random.randint(0, 2**31 - 1)
        self.seed = check_positive_int("seed", seed, minimum=0)

    def sizes(self, num_anchors):
        """Tuple of the sizes of the sets that `num_anchors` fall into."""
        return (num_anchors,)

    def choose(self, input_dim, num_anchors):
        """The ids that anchors stand for.

        Args:
            input_dim: Integer, the number of objects.
            num_anchors: Integer.

        Returns:
            int64 array `(num_anchors,)`, distinct within a set of anchors. -1
            where an anchor stands for no object, as all do by default.
        """
        del input_dim
        return np.full(num_anchors, -1, "int64")

    def vectors(self, num_anchors, output_dim):
        """The anchor embeddings to start from.

        Args:
            num_anchors: Integer.
            output_dim: Integer.

        Returns:
            float32 array `(num_anchors, output_dim)`. By default a random
            basis: orthogonal vectors, as far as there is room.
        """
        return random_basis(num_anchors, output_dim, self.seed)

    def __call__(self, shape, dtype=None):
        return tf.convert_to_tensor(self.vectors(*shape), dtype=dtype)


@keras.saving.register_keras_serializable(package="keras_compembed")
class Dynamic(AnchorInitializer):
    """Anchors start as a random basis and stand for no object."""

    def get_config(self):
        return {"seed": self.seed}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def random_basis(num_anchors, output_dim, seed):
    """Random vectors, orthogonal as far as there is room."""
    rng = np.random.default_rng(seed)
    basis = np.empty((num_anchors, output_dim), "float32")
    for start in range(0, num_anchors, output_dim):
        block = basis[start : start + output_dim]
        normal = rng.normal(size=block.T.shape)
        columns, triangle = np.linalg.qr(normal)
        # The signs that make the distribution uniform.
        block[:] = (columns * np.sign(np.diag(triangle))).T
    return basis * np.float32(np.sqrt(output_dim))


def check_num_anchors(num_anchors, input_dim):
    """Raises if there are fewer objects than anchors that stand for one."""
    require(
        num_anchors <= input_dim,
        "`num_anchors` must be at most `input_dim`, for anchors that stand "
        "for distinct objects.",
        num_anchors=num_anchors,
        input_dim=input_dim,
    )


def check_rows(name, values, input_dim):
    """Raises unless `values` has one entry or row for each object."""
    require(
        len(values) == input_dim,
        f"`{name}` must have one entry for each of {input_dim} objects "
        "(`input_dim`).",
        entries=len(values),
    )


def highest(scores, number):
    """Ids of the highest scores, from the highest down; ties by id."""
    return np.argsort(-scores, kind="stable")[:number].astype("int64")
