"""Anchors that the user brings."""

import keras
import numpy as np

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.utils.saving import pack_array
from keras_compembed.utils.saving import unpack_array
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require


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
        ids: Array `(num_anchors,)` of distinct integers, the object that each
            anchor stands for, -1 for none, or None if all stand for none.
            Defaults to `None`.
        seed: Optional integer. Defaults to one drawn at random.
    """

    def __init__(self, anchors=None, ids=None, seed=None):
        super().__init__(seed)
        self.anchors, self.ids = anchors, ids
        if anchors is not None:
            self.anchors = check_table(anchors, "anchors").astype("float32")
        if ids is not None:
            self.ids = _check_ids(ids)
        is_one_given = anchors is not None or ids is not None
        require(is_one_given, "`anchors` or `ids` must be given.", ids=ids)
        if anchors is not None and ids is not None:
            _check_number("ids", self.ids, len(self.anchors))

    def choose(self, input_dim, num_anchors):
        if self.ids is None:
            _check_number("anchors", self.anchors, num_anchors)
            return super().choose(input_dim, num_anchors)
        _check_number("ids", self.ids, num_anchors)
        rule = f"`ids` must be below input_dim={input_dim}."
        require(self.ids.max() < input_dim, rule, id=int(self.ids.max()))
        return self.ids.copy()

    def vectors(self, num_anchors, output_dim):
        if self.anchors is None:
            return super().vectors(num_anchors, output_dim)
        _check_number("anchors", self.anchors, num_anchors)
        check_table(self.anchors, "anchors", width=output_dim)
        return self.anchors.copy()

    def get_config(self):
        config = {"seed": self.seed}
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
    named = array[array >= 0] if array.dtype.kind in "iu" else array
    require(
        array.ndim == 1
        and array.size
        and array.dtype.kind in "iu"
        and array.min() >= -1
        and len(np.unique(named)) == len(named),
        "`ids` must hold distinct integers of at least 0, or -1, one for each "
        "anchor.",
        ids=ids,
    )
    return array.astype("int64")


def _check_number(name, values, num_anchors):
    require(
        len(values) == num_anchors,
        f"`{name}` must be for {num_anchors} anchors.",
        number=len(values),
    )
