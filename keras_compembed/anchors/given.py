"""Anchors that the user brings."""

import keras
import numpy as np

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.utils.packed_arrays import pack_array
from keras_compembed.utils.packed_arrays import unpack_array
from keras_compembed.utils.validation import check_table


@keras.saving.register_keras_serializable(package="keras_compembed")
class Given(AnchorInitializer):
    """Anchors start from vectors given, or stand for ids given, or both.

    Example:

    >>> initializer = Given(np.eye(3), ids=[20, 4, 7])
    >>> initializer.choose(input_dim=100, num_anchors=3)
    array([20,  4,  7])

    Args:
        anchors: Array `(num_anchors, output_dim)` of finite numbers, or None
            for a random basis. Defaults to `None`.
        ids: Integer array `(num_anchors,)`, the object that each anchor
            stands for, -1 for none, or None if all stand for none. Defaults
            to `None`.
        seed: Optional integer. Defaults to one drawn at random.

    Raises:
        ValueError: if neither is given, anchors are not a finite matrix, ids
            are not distinct integers of at least -1, one for each anchor, or
            `seed` is not an integer of at least 0; by `choose` and `vectors`,
            if the number of anchors, `input_dim` or `output_dim` is another.
    """

    def __init__(self, anchors=None, ids=None, seed=None):
        super().__init__(seed)
        if anchors is None and ids is None:
            raise ValueError(
                "`anchors`, `ids` or both must be given. Received: none."
            )
        self.anchors, self.ids = anchors, ids
        if anchors is not None:
            self.anchors = check_table(anchors, "anchors").astype("float32")
        if ids is not None:
            self.ids = _check_ids(ids)
        both = anchors is not None and ids is not None
        if both and len(self.ids) != len(self.anchors):
            raise ValueError(
                "`ids` must hold one id for each of the anchors. "
                f"Received: {len(self.ids)} ids, {len(self.anchors)} anchors."
            )

    def choose(self, input_dim, num_anchors):
        if self.ids is None:
            _check_number("anchors", self.anchors, num_anchors)
            return super().choose(input_dim, num_anchors)
        _check_number("ids", self.ids, num_anchors)
        if self.ids.max(initial=-1) >= input_dim:
            raise ValueError(
                f"`ids` must be below input_dim={input_dim}. "
                f"Received: id {self.ids.max()}."
            )
        return self.ids.copy()

    def vectors(self, num_anchors, output_dim):
        if self.anchors is None:
            return super().vectors(num_anchors, output_dim)
        _check_number("anchors", self.anchors, num_anchors)
        if self.anchors.shape[1] != output_dim:
            raise ValueError(
                f"`anchors` must have output_dim={output_dim} columns. "
                f"Received: an array of shape {self.anchors.shape}."
            )
        return self.anchors.copy()

    def get_config(self):
        config = super().get_config()
        if self.anchors is not None:
            config["anchors"] = pack_array(self.anchors)
        if self.ids is not None:
            config["ids"] = self.ids.tolist()
        return config

    @classmethod
    def from_config(cls, config):
        anchors = unpack_array(config.get("anchors"))
        return cls(**{**config, "anchors": anchors})


def _check_ids(ids):
    array = np.asarray(ids)
    if (
        array.ndim != 1
        or not array.size
        or array.dtype.kind not in "iu"
        or array.min() < -1
    ):
        raise ValueError(
            "`ids` must hold one integer of at least -1 for each anchor. "
            f"Received: an array of shape {array.shape} and dtype "
            f"{array.dtype}, {array.ravel()[:5]}."
        )
    found, times = np.unique(array[array >= 0], return_counts=True)
    if (times > 1).any():
        raise ValueError(
            "`ids` must be distinct. Received: id "
            f"{found[np.argmax(times)]} {times.max()} times."
        )
    return array.astype("int64")


def _check_number(name, values, num_anchors):
    if len(values) != num_anchors:
        raise ValueError(
            f"`{name}` must be for num_anchors={num_anchors}. "
            f"Received: {name} for {len(values)}."
        )
