"""Kinds of storage for the rows of a table, one file each."""

from keras_compembed.stores.anchors import AnchorRows
from keras_compembed.stores.codes import CodeRows
from keras_compembed.stores.integers import IntegerRows

# Kinds of rows in files of vectors, by their name in the file.
KINDS = {each.kind: each for each in (CodeRows, IntegerRows, AnchorRows)}
