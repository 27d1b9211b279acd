"""Trees whose leaves are classes."""

from keras_compembed.trees.class_tree import ClassTree

__all__ = ["ClassTree"]
