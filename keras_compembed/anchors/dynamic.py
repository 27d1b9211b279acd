"""Anchors that stand for no object."""

import keras

from keras_compembed.anchors.anchor_initializer import AnchorInitializer


@keras.saving.register_keras_serializable(package="keras_compembed")
class Dynamic(AnchorInitializer):
    """Anchors start as a random basis and stand for no object.

    For objects of which nothing is known. Relations have no effect on such
    anchors.

    Example:

    >>> initializer = Dynamic(seed=0)
    >>> initializer.choose(input_dim=1000, num_anchors=3)
    array([-1, -1, -1])
    >>> vectors = initializer.vectors(num_anchors=3, output_dim=8)
    >>> np.allclose(vectors @ vectors.T, 8 * np.eye(3), atol=1e-5)
    True

    Args:
        seed: Optional integer. Defaults to one drawn at random.

    Raises:
        ValueError: if `seed` is not an integer of at least 0.

    References:
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), section 3.1
    """
