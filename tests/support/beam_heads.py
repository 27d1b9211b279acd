"""Trees of all kinds, layers over them, and beam search in plain NumPy."""

import numpy as np
from class_models import cane

from keras_compembed.classes import BeamTree
from keras_compembed.classes import ClassTree

WIDTH = 5
TREES = {
    "even": lambda: ClassTree.random(64, branching=4, seed=0),
    "uneven": lambda: ClassTree.random(61, branching=3, seed=1),
    "huffman": lambda: ClassTree.from_frequencies(
        1000 // np.arange(1, 31), branching=2
    ),
    "taxonomy": lambda: ClassTree.from_taxonomy(
        [
            *[("a", "x", "1", str(i)) for i in range(3)],
            *[("a", "x", str(i)) for i in range(2, 4)],
            *[("a", str(i)) for i in range(3)],
            *[("b", str(i)) for i in range(4)],
            ("c",),
            ("d",),
        ]
    ),
    "groups": lambda: ClassTree.from_groups(np.arange(23) ** 2 % 5),
    "one level": lambda: ClassTree.random(9, branching=10, seed=2),
    "chain": lambda: ClassTree.from_frequencies(2.0 ** -np.arange(8)),
}


def make_head(tree, beam_width=None, max_frontier=1, **kwargs):
    """A built layer with weights of size 1, `tree` being one or its name."""
    tree = TREES[tree]() if isinstance(tree, str) else tree
    kwargs = {"num_candidates": 3, "num_noises": 2, **kwargs}
    every = kwargs.pop("refresh_every", None)
    selector = BeamTree(tree, beam_width, max_frontier, every)
    return cane(tree.num_classes, WIDTH, 3, selector=selector, **kwargs)


def make_features(rows=6):
    features = np.random.default_rng(4).normal(size=(rows, WIDTH))
    return features.astype("float32")


def part_scores(head, features):
    """Scores that entries of the tree have for themselves, `(rows, all)`."""
    parts = [
        features.astype("float64") @ weight.numpy().T + bias.numpy()
        for weight, bias in (
            (head.nodes, head.node_bias),
            (head.kernel, head.bias),
        )
        if weight is not None
    ]
    return np.concatenate(parts, axis=1)


def all_scores(head, tree, features):
    """Scores of all classes, from the paths of the tree."""
    parts = part_scores(head, features)
    scores = parts[:, tree.num_nodes :].copy()
    for nodes in tree.paths().T:
        scores += np.where(nodes >= 0, parts[:, nodes], 0)
    return scores


def score_all_classes(head, features):
    """The same by the layer's own vectors and biases of classes."""
    ids = np.arange(head.num_classes)
    vectors = head.scores.class_vectors(ids).numpy().astype("float64")
    return features @ vectors.T + head.scores.class_biases(ids).numpy()


def search(head, tree, features, beam_width, start_depth=1):
    """For each row, a dict of the classes that the beam meets to scores.

    Above `start_depth` all inner nodes are followed.
    """
    met = []
    for parts in part_scores(head, features):
        found, beam, depth = {}, [(0.0, -1)], 0
        while beam:
            depth += 1
            reached = [
                (score + parts[entry], entry)
                for score, node in beam
                for entry in tree.children[1 + node]
                if entry >= 0
            ]
            for score, entry in reached:
                if entry >= tree.num_nodes:
                    found[entry - tree.num_nodes] = score
            beam = [item for item in reached if item[1] < tree.num_nodes]
            if depth >= start_depth:
                beam = sorted(beam, reverse=True)[:beam_width]
        met.append(found)
    return met


def best(found, k):
    """Ids and scores of the best of each row, -1 and -inf for no more."""
    ids = np.full((len(found), k), -1)
    scores = np.full((len(found), k), -np.inf)
    for row, classes in enumerate(found):
        order = sorted(classes, key=classes.get, reverse=True)[:k]
        ids[row, : len(order)] = order
        scores[row, : len(order)] = [classes[i] for i in order]
    return ids, scores
