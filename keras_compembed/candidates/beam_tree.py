"""Candidates by beam search over a tree of classes."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.candidates.selector import Selector
from keras_compembed.candidates.selector import best_of
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.trees.beam_search import beam_search
from keras_compembed.trees.beam_search import find_frontier
from keras_compembed.trees.class_tree import ClassTree
from keras_compembed.trees.tree_arrays import TreeArrays
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class BeamTree(Selector):
    """Searches a tree for the classes of the highest scores.

    The vector of a class is the sum of vectors along its path from the root
    (equation 9), so that inner nodes have scores of their own, and only what
    is under the best of them is looked at: Algorithm 2. Both training and
    prediction then take a time that grows with the depth of the tree.

    The top of the tree is not searched but scored whole, as far down as that
    is a small product: it is as fast, and overlooks nothing. A tree of up to
    `max_frontier` classes is never searched at all.

    Example:

    >>> tree = kc.trees.ClassTree.random(10_000, branching=10, seed=0)
    >>> head = kc.CANESoftmax(10_000, selector=BeamTree(tree))

    Args:
        tree: `ClassTree`.
        beam_width: Optional integer, inner nodes that are followed at a
            time, in prediction at least as many as classes are asked for.
            Defaults to `None`: `num_candidates` of the layer. Time grows with
            it. In training, a width below `num_candidates` makes steps faster
            and candidates miss more labels: with some 100 shared noises,
            models are nearly as good. For prediction,
            `keras_compembed.candidates.calibrate_beam` finds what a recall
            takes. May be set later, before the model is compiled.
        max_frontier: Integer. Entries of the tree that are scored for every
            example. Defaults to `1024`.
        **kwargs: `name` of `keras.layers.Layer`.

    Raises:
        ValueError: if a number is not positive, or `tree` is not a
            `ClassTree`.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), Algorithm 2
    """

    def __init__(self, tree, beam_width=None, max_frontier=1024, **kwargs):
        super().__init__(**kwargs)
        if isinstance(tree, ClassTree):
            tree = TreeArrays(tree)
        if not isinstance(tree, TreeArrays):
            raise ValueError(
                "`tree` must be a `keras_compembed.trees.ClassTree`. "
                f"Received: tree={tree!r}."
            )
        if beam_width is not None:
            check_positive_int("beam_width", beam_width)
        self.tree = tree
        self.beam_width = beam_width
        self.max_frontier = check_positive_int("max_frontier", max_frontier)
        start, self._frontier_depth = find_frontier(
            tree.class_tree, max_frontier
        )
        self._start = np.sort(start)
        self._frontier_nodes = int(np.sum(start < tree.num_nodes))

    def attach(self, num_classes, num_candidates):
        if num_classes != self.tree.num_classes:
            raise ValueError(
                "`tree` must have one leaf for each class, "
                f"num_classes={num_classes}. Received: a tree of "
                f"{self.tree.num_classes} classes."
            )
        super().attach(num_classes, num_candidates)

    def build(self, input_shape=None):
        if self.built:
            return
        self.tree.build()
        self.start = self.add_weight(
            name="start",
            shape=self._start.shape,
            dtype="int32",
            initializer=lambda shape, dtype: self._start,
            trainable=False,
        )
        self.built = True

    def select(self, scores, features, context=None):
        width = self.beam_width or self.num_candidates
        found = beam_search(_Search(self, scores), features, width)
        ids, _, _ = best_of(*found, self.num_candidates)
        return ids

    def top_k(self, scores, features, k):
        width = max(self.beam_width or self.num_candidates, k)
        search = _Search(self, scores)
        return best_of(*beam_search(search, features, width), k)

    def frontier(self, scores):
        """What is scored for every example.

        Args:
            scores: `ClassScores`.

        Returns:
            Tensors: int32 entries `(entries,)` in the numbers of
            `ClassTree.children`, inner nodes first, and their vectors
            `(entries, width)` and biases, summed over paths.
        """
        entries = self.start.value
        number, depth = self._frontier_nodes, self._frontier_depth
        vectors, biases = [], []
        if number:
            # The inner nodes of a frontier are all of their depth.
            vectors.append(scores.node_vectors(depth))
            biases.append(scores.node_biases(depth))
        if number < len(self._start):
            classes = entries[number:] - self.tree.num_nodes
            vectors.append(scores.class_vectors(classes))
            biases.append(scores.class_biases(classes))
        return entries, tf.concat(vectors, axis=0), tf.concat(biases, axis=0)

    def get_config(self):
        return {
            **super().get_config(),
            "tree": keras.saving.serialize_keras_object(self.tree),
            "beam_width": self.beam_width,
            "max_frontier": self.max_frontier,
        }

    @classmethod
    def from_config(cls, config):
        tree = keras.saving.deserialize_keras_object(config["tree"])
        return cls(**{**config, "tree": tree})


class _Search:
    """A tree and its `ClassScores`, as `beam_search` wants them."""

    def __init__(self, selector, scores):
        self.selector = selector
        self.scores = scores
        self.tree = selector.tree
        self.num_nodes = self.tree.num_nodes
        self.frontier_nodes = selector._frontier_nodes
        self.kinds = ()
        if self.frontier_nodes:
            self.kinds = self.tree.kinds[selector._frontier_depth :]

    def frontier(self):
        return self.selector.frontier(self.scores)

    def children(self, entries):
        return self.tree.under(entries)

    def entries(self, entries, kind):
        flat = tf.reshape(entries, (-1,))
        of_class = flat >= self.num_nodes
        nodes = tf.clip_by_value(flat, 0, max(0, self.num_nodes - 1))
        classes = tf.maximum(flat - self.num_nodes, 0)
        scores = self.scores
        if kind == "nodes":
            vectors = gather_rows(scores.nodes, nodes)
        elif kind == "classes":
            vectors = scores.own_vectors(classes)
        else:
            vectors = tf.where(
                of_class[:, None],
                scores.own_vectors(classes),
                gather_rows(scores.nodes, nodes),
            )
        shape = (-1, entries.shape[1])
        vectors = tf.reshape(vectors, (*shape, scores.width))
        if scores.bias is None:
            return vectors, 0.0
        if kind == "nodes":
            biases = gather_rows(scores.node_bias, nodes)
        elif kind == "classes":
            biases = gather_rows(scores.bias, classes)
        else:
            biases = tf.where(
                of_class,
                gather_rows(scores.bias, classes),
                gather_rows(scores.node_bias, nodes),
            )
        return vectors, tf.reshape(biases, shape)
