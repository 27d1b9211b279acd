"""A class tree as weights of a layer."""

import keras
import tensorflow as tf

from keras_compembed.candidates.beam_search import find_kinds
from keras_compembed.candidates.class_tree import ClassTree
from keras_compembed.optimizers.device_writes import gather_rows


@keras.saving.register_keras_serializable(package="keras_compembed")
class TreeArrays(keras.layers.Layer):
    """A `ClassTree` as integer weights, saved with the model.

    Args:
        tree: `ClassTree`.

    Attributes:
        num_classes, num_nodes, branching, depth, level_sizes: As of
            `ClassTree`.
        level_starts: Tuple of integers, the first inner node of each level.
        kinds: Tuple of strings, what stands at each depth: `"nodes"`,
            `"classes"` or `"both"`.
        class_tree: The `ClassTree` itself, or None after a reload.
    """

    def __init__(self, tree=None, **kwargs):
        sizes = kwargs.pop("sizes", None)
        super().__init__(**kwargs)
        self.class_tree = tree
        if tree is not None:
            sizes = {
                "num_classes": tree.num_classes,
                "num_nodes": tree.num_nodes,
                "branching": tree.branching,
                "level_sizes": tree.level_sizes,
                "kinds": find_kinds(tree),
            }
        self.num_classes = sizes["num_classes"]
        self.num_nodes = sizes["num_nodes"]
        self.branching = sizes["branching"]
        self.level_sizes = tuple(sizes["level_sizes"])
        # Nodes are numbered level by level.
        self.level_starts = tuple(
            sum(self.level_sizes[:level])
            for level in range(len(self.level_sizes))
        )
        self.kinds = tuple(sizes["kinds"])
        self.depth = len(self.kinds)

    def build(self, input_shape=None):
        if self.built:
            return
        tree = self.class_tree
        self.children = self._add_array(
            "children",
            (self.num_nodes + 1, self.branching),
            None if tree is None else tree.children,
        )
        self.class_parents = self._add_array(
            "class_parents",
            (self.num_classes,),
            None if tree is None else tree.class_parents,
        )
        self.node_parents = self._add_array(
            "node_parents",
            (self.num_nodes,),
            None if tree is None else tree.node_parents,
        )
        self.built = True

    def _add_array(self, name, shape, array):
        return self.add_weight(
            name=name,
            shape=shape,
            dtype="int32",
            initializer=(
                "zeros" if array is None else lambda shape, dtype: array
            ),
            trainable=False,
        )

    def ancestors(self, classes):
        """Inner nodes above classes.

        Args:
            classes: Integer tensor `(ids,)`.

        Returns:
            int32 tensor `(ids, depth - 1)`, from the class up, with -1 where
            there are no more.
        """
        if not self.num_nodes:
            return tf.zeros((tf.size(classes), 0), "int32")
        nodes = gather_rows(self.class_parents, classes)
        path = [nodes]
        for _ in self.level_sizes[1:]:
            above = gather_rows(self.node_parents, tf.maximum(nodes, 0))
            nodes = tf.where(nodes >= 0, above, -1)
            path.append(nodes)
        return tf.stack(path, axis=1)

    def under(self, entries):
        """Entries under entries, of any shape; -1 under classes and -1."""
        inner = (entries >= 0) & (entries < self.num_nodes)
        places = tf.where(inner, entries + 1, 0)
        below = gather_rows(self.children, places)
        return tf.where(inner[..., None], below, -1)

    def to_class_tree(self):
        """The `ClassTree`, read from the weights."""
        if self.class_tree is None:
            children = self.children.numpy()
            self.class_tree = ClassTree(children, self.num_classes)
        return self.class_tree

    def get_config(self):
        return {
            **super().get_config(),
            "sizes": {
                "num_classes": self.num_classes,
                "num_nodes": self.num_nodes,
                "branching": self.branching,
                "level_sizes": list(self.level_sizes),
                "kinds": list(self.kinds),
            },
        }
