"""A class tree as weights of a layer."""

import keras
import tensorflow as tf

from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.trees.beam_search import find_kinds
from keras_compembed.trees.class_tree import ClassTree
from keras_compembed.utils.packed_arrays import pack_array
from keras_compembed.utils.packed_arrays import unpack_array
from keras_compembed.utils.whole_load import WholeLoad


@keras.saving.register_keras_serializable(package="keras_compembed")
class TreeArrays(WholeLoad, keras.layers.Layer):
    """A `ClassTree` as integer weights, saved with the model."""

    def __init__(self, tree, means_width=None, **kwargs):
        super().__init__(**kwargs)
        self.class_tree = tree
        self.means_width = means_width
        if tree.class_means is not None:
            self.means_width = int(tree.class_means.shape[1])
        self.num_classes = tree.num_classes
        self.num_nodes = tree.num_nodes
        self.branching = tree.branching
        self.level_sizes = tuple(tree.level_sizes)
        # Nodes are numbered level by level.
        self.level_starts = tuple(
            sum(self.level_sizes[:level])
            for level in range(len(self.level_sizes))
        )
        self.kinds = tuple(find_kinds(tree))
        self.depth = len(self.kinds)

    def build(self, input_shape=None):
        if self.built:
            return
        tree = self.class_tree
        self.children = self._add_array(
            "children",
            (self.num_nodes + 1, self.branching),
            tree.children,
        )
        self.class_parents = self._add_array(
            "class_parents",
            (self.num_classes,),
            tree.class_parents,
        )
        self.node_parents = self._add_array(
            "node_parents",
            (self.num_nodes,),
            tree.node_parents,
        )
        self.built = True

    def _add_array(self, name, shape, array):
        return self.add_weight(
            name=name,
            shape=shape,
            dtype="int32",
            initializer=lambda shape, dtype: array,
            trainable=False,
        )

    def ancestors(self, classes):
        """Inner nodes above classes."""
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

    def get_config(self):
        return {
            **super().get_config(),
            "tree": {
                "children": pack_array(self.class_tree.children),
                "num_classes": self.num_classes,
            },
            "means_width": self.means_width,
        }

    @classmethod
    def from_config(cls, config):
        tree = dict(config["tree"])
        tree["children"] = unpack_array(tree["children"])
        return cls(**{**config, "tree": ClassTree(**tree)})
