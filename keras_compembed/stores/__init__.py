"""Ways to keep the rows of a table, one file each."""

from keras_compembed.stores.anchors import AnchorRows
from keras_compembed.stores.codes import CodeRows
from keras_compembed.stores.integers import IntegerRows

# What files of vectors may hold, by the word in the file.
KINDS = {each.kind: each for each in (CodeRows, IntegerRows, AnchorRows)}
