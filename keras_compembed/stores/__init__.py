"""Ways to keep the rows of a table, one file each."""

from keras_compembed.stores.anchors import AnchorRows
from keras_compembed.stores.codes import CodeRows
from keras_compembed.stores.integers import IntegerRows
from keras_compembed.stores.store import LowRank
from keras_compembed.stores.store import Store
from keras_compembed.stores.store import WeightSpec

# What files of vectors may hold, by the word in the file.
KINDS = {each.kind: each for each in (CodeRows, IntegerRows, AnchorRows)}

__all__ = [
    "LowRank",
    "Store",
    "WeightSpec",
]
