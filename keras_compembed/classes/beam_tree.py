"""Candidates by beam search over a tree of classes."""

import functools

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.classes.class_scores import ClassScores
from keras_compembed.classes.class_scores import best_of
from keras_compembed.classes.class_tree import ClassTree
from keras_compembed.classes.class_tree import differences_of_biases
from keras_compembed.classes.class_tree import differences_of_means
from keras_compembed.classes.selectors import Selector
from keras_compembed.classes.tree_arrays import TreeArrays
from keras_compembed.classes.tree_arrays import beam_search
from keras_compembed.classes.tree_arrays import find_frontier
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import own_value
from keras_compembed.optimizers.device_rows import write
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class BeamTree(Selector):
    """Searches a tree for the classes with the highest scores.

    The vector of a class is the sum of the vectors on its path from the root
    (equation 9). Inner nodes therefore have scores, and the search only
    follows the best of them (Algorithm 2). The time of training and prediction
    grows with the depth of the tree. The top of the tree, up to `max_frontier`
    entries, is scored in full.

    With `refresh_every`, training rebuilds the tree from the class vectors,
    see `ClassTree.from_vectors`. The vectors and biases of classes do not
    change. XLA cannot compile this.

    Example:

    >>> tree = kc.classes.ClassTree.random(10_000, branching=10, seed=0)
    >>> head = kc.CANESoftmax(10_000, sampling=kc.Sampling(BeamTree(tree)))

    Args:
        tree: `ClassTree`.
        beam_width: Optional integer, inner nodes to follow at each level, in
            prediction at least as many as the classes to return. You may set
            it later, before the model is compiled.
            `keras_compembed.classes.calibrate_beam` sets it for a given
            recall. Defaults to `None`: `num_candidates` of the layer.
        max_frontier: Integer. Entries of the tree that are scored for every
            example. Defaults to `1024`.
        refresh_every: Optional integer, training steps between rebuilds of
            the tree. Needs a tree from `ClassTree.random` or
            `ClassTree.from_vectors`, and a layer without `class_embedding`.
            Defaults to `None`: the tree is fixed.
        **kwargs: `name` of `keras.layers.Layer`.

    Raises:
        ValueError: If an argument is invalid, or the tree cannot be rebuilt.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), Algorithm 2
    """

    _settings = "beam_width", "max_frontier", "refresh_every"

    def __init__(
        self,
        tree: ClassTree,
        beam_width: int | None = None,
        max_frontier: int = 1024,
        refresh_every: int | None = None,
        **kwargs: object,
    ):
        super().__init__(**kwargs)
        if isinstance(tree, ClassTree):
            tree = TreeArrays(tree)
        require(
            isinstance(tree, TreeArrays),
            "`tree` must be a `keras_compembed.classes.ClassTree`.",
            tree=tree,
        )
        check_positive_int("beam_width", beam_width, optional=True)
        self.tree = tree
        self.beam_width = beam_width
        self.max_frontier = check_positive_int("max_frontier", max_frontier)
        if refresh_every is not None:
            check_positive_int("refresh_every", refresh_every)
            _check_even(tree)
            # NumPy builds the tree.
            self.supports_jit = False
        self.refresh_every = refresh_every
        start, self._frontier_depth = find_frontier(
            tree.class_tree, max_frontier
        )
        self._start = np.sort(start)
        self._frontier_nodes = int(np.sum(start < tree.num_nodes))

    def attach(self, num_classes, num_candidates):
        require(
            num_classes == self.tree.num_classes,
            "`tree` must have one leaf for each class.",
            num_classes=num_classes,
            tree=self.tree.class_tree,
        )
        super().attach(num_classes, num_candidates)

    def build(self, input_shape=None):
        if self.built:
            return
        self.tree.build()
        self.start = self._add_state("start", self._start)
        if self.refresh_every is not None:
            # Training steps since the tree was built.
            self.age = self._add_state("age", 0)

    def _before_step(self, scores, features):
        if self.refresh_every is not None and self.trainable:
            tf.cond(
                own_value(self.age) >= self.refresh_every,
                lambda: self._refresh(scores),
                lambda: None,
            )

    def select(self, scores, features, context=None):
        width = self.beam_width or self.num_candidates
        return self._search(scores, features, width, self.num_candidates)[0]

    def after_step(self, scores, labels, hit):
        if self.refresh_every is not None:
            write(self.age, own_value(self.age) + 1)

    def _refresh(self, scores):
        """Rebuilds the tree from the current class vectors."""
        require(
            scores.table_is_own,
            "`refresh_every` must be None with a `class_embedding`: a tree can "
            "only be rebuilt over the layer's `kernel`.",
            refresh_every=self.refresh_every,
        )
        variables = [
            self.tree.children,
            self.tree.class_parents,
            self.tree.node_parents,
            self.start,
            scores.table,
            scores.nodes,
            scores.bias,
            scores.node_bias,
        ]
        classes = tf.range(scores.num_classes)
        values = tf.numpy_function(
            functools.partial(
                _parts_of_new_tree, self.tree.branching, self.max_frontier
            ),
            [scores.class_vectors(classes), scores.class_biases(classes)],
            ["int32"] * 4 + ["float32"] * 4,
        )
        for variable, value in zip(variables, values, strict=True):
            if variable is not None:
                value = tf.ensure_shape(value, variable.shape)
                write(variable, value)
        write(self.age, 0)

    def top_k(self, scores, features, k):
        width = max(self.beam_width or self.num_candidates, k)
        return self._search(scores, features, width, k)

    def _search(self, scores, features, width, k):
        tree, number = self.tree, self._frontier_nodes
        found = beam_search(
            tree,
            self.frontier(scores),
            number,
            tree.kinds[self._frontier_depth :] if number else (),
            functools.partial(_read, scores, tree.num_nodes),
            features,
            width,
        )
        return best_of(*found, k)

    def frontier(self, scores: ClassScores) -> tuple:
        """Entries that are always scored, with their vectors and biases."""
        entries, number = self.start.value, self._frontier_nodes
        parts = []
        if number:
            # All inner nodes of a frontier are at the same depth.
            parts.append(scores.of_nodes(self._frontier_depth))
        if number < len(self._start):
            classes = entries[number:] - self.tree.num_nodes
            vectors = scores.class_vectors(classes)
            parts.append((vectors, scores.class_biases(classes)))
        vectors, biases = zip(*parts, strict=True)
        return entries, tf.concat(vectors, axis=0), tf.concat(biases, axis=0)

    def get_config(self):
        tree = keras.saving.serialize_keras_object(self.tree)
        return {**super().get_config(), "tree": tree}

    @classmethod
    def from_config(cls, config):
        tree = keras.saving.deserialize_keras_object(config["tree"])
        return cls(**{**config, "tree": tree})


def _check_even(tree):
    even = TreeArrays(ClassTree.random(tree.num_classes, tree.branching))
    one, other = (
        (each.class_tree.children.shape, each.level_sizes, each.kinds)
        for each in (tree, even)
    )
    require(
        one == other,
        "`tree` must have the shape of a `ClassTree.from_vectors`, with nodes "
        "of even sizes, if `refresh_every` is given.",
        tree=tree.class_tree,
    )


def _parts_of_new_tree(branching, max_frontier, vectors, biases):
    """Arrays of a tree over classes, and the parts of its sums."""
    tree = ClassTree.from_vectors(vectors, branching, seed=0, verbose=0)
    # No common part: the scores of classes must not change.
    tree.root_mean[:] = 0
    start, _ = find_frontier(tree, max_frontier)
    return (
        tree.children,
        tree.class_parents,
        tree.node_parents,
        np.sort(start),
        *differences_of_means(tree),
        *differences_of_biases(tree, biases),
    )


def _read(scores, num_nodes, entries, kind):
    """Vectors and biases of single entries of a tree."""
    flat = tf.reshape(entries, (-1,))
    of_class = flat >= num_nodes
    nodes = tf.clip_by_value(flat, 0, max(0, num_nodes - 1))
    classes = tf.maximum(flat - num_nodes, 0)

    def pick(of_nodes, of_classes, of_class):
        if kind == "nodes":
            return of_nodes(nodes)
        if kind == "classes":
            return of_classes(classes)
        return tf.where(of_class, of_classes(classes), of_nodes(nodes))

    vectors = pick(
        functools.partial(gather_rows, scores.nodes),
        scores.own_vectors,
        of_class[:, None],
    )
    vectors = tf.reshape(vectors, (-1, entries.shape[1], scores.width))
    if scores.bias is None:
        return vectors, 0.0
    biases = pick(
        functools.partial(gather_rows, scores.node_bias),
        functools.partial(gather_rows, scores.bias),
        of_class,
    )
    return vectors, tf.reshape(biases, (-1, entries.shape[1]))
