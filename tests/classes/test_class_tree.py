import heapq

import numpy as np
import pytest
from errors import refused

from keras_compembed.classes import ClassTree

# Root: nodes 0 and 1, class 4; node 0: node 2, class 0; node 1: classes 1
# and 5; node 2: classes 2 and 3.
CHILDREN = [[0, 1, 7], [2, 3, -1], [4, 8, -1], [5, 6, -1]]


def walk(tree):
    """Paths of all classes from the top down, by recursion."""
    paths = {}

    def visit(row, path):
        for entry in tree.children[row]:
            if 0 <= entry < tree.num_nodes:
                visit(entry + 1, [*path, int(entry)])
            elif entry >= 0:
                assert entry - tree.num_nodes not in paths
                paths[int(entry) - tree.num_nodes] = path

    visit(0, [])
    return paths


def check(tree):
    """What is true of all trees."""
    paths = walk(tree)
    assert sorted(paths) == list(range(tree.num_classes))
    depths = [len(paths[c]) + 1 for c in range(tree.num_classes)]
    np.testing.assert_array_equal(tree.depths(), depths)
    assert tree.depth == max(depths) == len(tree.level_sizes) + 1
    assert tree.num_nodes == sum(tree.level_sizes) == len(tree.children) - 1
    above = np.full((tree.num_classes, tree.depth - 1), -1)
    for c, path in paths.items():
        above[c, : len(path)] = path
        assert tree.class_parents[c] == (path[-1] if path else -1)
        for node, parent in zip(path, [-1, *path], strict=False):
            assert tree.node_parents[node] == parent
    np.testing.assert_array_equal(tree.paths(), above)
    starts = np.cumsum([0, *tree.level_sizes])
    for level, column in enumerate(above.T):
        nodes = np.unique(column[column >= 0])
        np.testing.assert_array_equal(
            nodes, np.arange(starts[level], starts[level + 1])
        )
    counts = (tree.children >= 0).sum(axis=1)
    assert tree.branching == counts.max() == tree.children.shape[1]
    assert counts.min() >= 1
    arrays = tree.children, tree.class_parents, tree.node_parents
    for array in (*arrays, tree.paths(), tree.depths()):
        assert array.dtype == "int32"
    return tree


def same(one, other):
    return np.array_equal(one.children, other.children)


def nested_clusters(levels=3, branching=4, width=8, seed=0):
    """Shuffled vectors, and the cluster of each at each level."""
    rng = np.random.default_rng(seed)
    size = branching**levels
    vectors = np.zeros((size, width))
    clusters = []
    for level in range(1, levels):
        centres = rng.normal(size=(branching**level, width)) * 20.0 ** (-level)
        cluster = np.arange(size) // branching ** (levels - level)
        vectors += centres[cluster]
        clusters.append(cluster)
    vectors += rng.normal(size=vectors.shape) * 20.0 ** (-levels)
    order = rng.permutation(size)
    return vectors[order], [cluster[order] for cluster in clusters]


def test_by_hand():
    tree = check(ClassTree(CHILDREN, num_classes=6))
    np.testing.assert_array_equal(tree.children, CHILDREN)
    assert tree.level_sizes == (2, 1)
    assert (tree.num_nodes, tree.branching, tree.depth) == (3, 3, 3)
    np.testing.assert_array_equal(tree.class_parents, [0, 1, 2, 2, -1, 1])
    np.testing.assert_array_equal(tree.node_parents, [-1, -1, 0])
    np.testing.assert_array_equal(
        tree.paths(), [[0, -1], [1, -1], [0, 2], [0, 2], [-1, -1], [1, -1]]
    )
    np.testing.assert_array_equal(tree.depths(), [2, 2, 3, 3, 1, 2])
    assert tree.class_means is tree.node_means is tree.root_mean is None


def test_children_in_any_order_and_with_padding():
    tree = ClassTree(CHILDREN, 6)
    # Nodes 0, 1, 2 as 2, 0, 1.
    shuffled = np.array(
        [[2, 0, 7], [4, 8, -1], [5, 6, -1], [1, 3, -1]], "int32"
    )
    wide = np.pad(CHILDREN, ((0, 0), (0, 2)), constant_values=-1)
    others = [ClassTree(each, 6) for each in (shuffled, wide)]
    # They are copied.
    shuffled[:] = 0
    assert all(same(check(other), tree) for other in others)


def test_one_class_and_no_inner_nodes():
    for tree in (
        ClassTree.from_frequencies([3]),
        ClassTree.from_taxonomy([["a", "b"]]),
        ClassTree.from_vectors(np.ones((1, 3)), verbose=0),
    ):
        check(tree)
        assert (tree.num_nodes, tree.branching, tree.depth) == (0, 1, 1)
        assert tree.paths().shape == (1, 0)
    tree = check(ClassTree.random(10, branching=10))
    assert (tree.num_nodes, tree.level_sizes) == (0, ())


@pytest.mark.parametrize("num_classes", [2, 11, 27, 100, 365])
@pytest.mark.parametrize("branching", [2, 3, 10])
def test_random_is_balanced(num_classes, branching):
    tree = check(ClassTree.random(num_classes, branching, seed=1))
    depth = 1
    while branching**depth < num_classes:
        depth += 1
    assert tree.depth == depth
    assert tree.branching <= branching
    depths = np.unique(tree.depths())
    assert len(depths) == 1 or (branching == 2 and len(depths) == 2)
    # Of all levels, sizes differ by 1 at most.
    for column in tree.paths().T:
        sizes = np.unique(np.bincount(column[column >= 0]))
        assert np.ptp(sizes[sizes > 0]) <= 1


def test_seeds():
    vectors = np.random.default_rng(0).normal(size=(300, 6))
    for build in (
        lambda seed: ClassTree.random(100, 4, seed),
        lambda seed: ClassTree.from_vectors(vectors, 4, seed=seed, verbose=0),
    ):
        first, again, other, unknown = map(build, (3, 3, 4, None))
        assert same(first, again)
        assert not same(first, other) and not same(first, unknown)


def huffman_cost(counts, branching):
    """Sum of counts times depths of the best tree, by a heap."""
    heap = [float(count) for count in counts]
    if len(heap) == 1:
        return heap[0]
    while (len(heap) - 1) % (branching - 1):
        heap.append(0.0)
    heapq.heapify(heap)
    cost = 0.0
    while len(heap) > 1:
        total = sum(heapq.heappop(heap) for _ in range(branching))
        cost += total
        heapq.heappush(heap, total)
    return cost


@pytest.mark.parametrize("num_classes", [1, 2, 5, 64, 200])
@pytest.mark.parametrize("branching", [2, 7])
def test_huffman_costs_the_least(num_classes, branching):
    rng = np.random.default_rng(num_classes)
    for counts in (
        rng.integers(0, 5, size=num_classes),
        rng.integers(1, 10**6, size=num_classes),
        1 / (1 + rng.permutation(num_classes)),
    ):
        tree = check(ClassTree.from_frequencies(counts, branching))
        assert counts @ tree.depths() == pytest.approx(
            huffman_cost(counts, branching), rel=1e-12
        )


def test_huffman_of_zeros_and_of_large_counts():
    """Of zeros, it is even and below the rest; sums of counts overflow."""
    tree = ClassTree.from_frequencies([0, 5, 0, 3, 0, 0])
    np.testing.assert_array_equal(tree.depths(), [4, 1, 4, 2, 4, 4])
    check(ClassTree.from_frequencies(np.full(9, 1.7e308)))


@pytest.mark.parametrize(
    "paths, right",
    [
        (
            [
                ("animal", "dog"),
                ("animal", "dog"),
                ("plant",),
                ("animal",),
                (),
                # A plant of that name is no animal; it is an only child.
                ("plant", "dog"),
            ],
            [[0, 2], [0, 2], [1, -1], [0, -1], [-1, -1], [1, -1]],
        ),
        # Groups of one child are left out.
        (["rax1", "rax2", "rb3", "rb4"], [[0], [0], [1], [1]]),
        (np.array([[0, 0], [0, 1], [1, 0]]), [[0], [0], [-1]]),
        # A number as a name is not a class.
        ([(1,), (1,), ()], [[0], [0], [-1]]),
    ],
)
def test_taxonomy(paths, right):
    tree = check(ClassTree.from_taxonomy(map(list, paths)))
    np.testing.assert_array_equal(tree.paths(), right)


def test_groups():
    tree = check(ClassTree.from_groups([5, 2, 5, 9, 2, 5]))
    np.testing.assert_array_equal(tree.class_parents, [1, 0, 1, 2, 0, 1])


def plain_means(tree, vectors, weights):
    paths = tree.paths()
    means = []
    for node in range(tree.num_nodes):
        below = (paths == node).any(axis=1)
        share = weights[below]
        if not share.any():
            share = np.ones_like(share)
        means.append(np.average(vectors[below], axis=0, weights=share))
    return np.asarray(means)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_separate_clusters_stay_together(scale):
    """Nodes of each level hold the classes of one cluster each."""
    vectors, clusters = nested_clusters()
    tree = ClassTree.from_vectors(vectors * scale, 4, seed=0, verbose=0)
    assert check(tree).level_sizes == (4, 16)
    for column, cluster in zip(tree.paths().T, clusters, strict=True):
        pairs = np.unique(np.stack([column, cluster]), axis=1).T
        assert len(pairs) == len(np.unique(cluster))


def test_vectors_of_any_dtype_and_in_files(tmp_path):
    vectors = np.random.default_rng(0).integers(-99, 99, size=(200, 6))
    half = np.lib.format.open_memmap(
        tmp_path / "vectors.npy", "w+", "float16", vectors.shape
    )
    half[:] = vectors
    single = vectors.astype("float32")
    weights = np.random.default_rng(1).random(200)
    expected = ClassTree.from_vectors(vectors, 5, seed=0, verbose=0)
    for table in (half, np.asfortranarray(single), vectors * 1.0, single):
        tree = ClassTree.from_vectors(table, 5, weights, seed=0, verbose=0)
        # Weights change means alone.
        assert same(tree, expected)
        right = plain_means(tree, vectors, weights)
        np.testing.assert_allclose(tree.node_means, right, atol=1e-5)
        np.testing.assert_array_equal(tree.class_means, vectors)
        assert tree.class_means.dtype == "float32"
    assert np.shares_memory(tree.class_means, single)


def test_labels():
    rng = np.random.default_rng(0)
    vectors, _ = nested_clusters()
    y = rng.permutation(np.repeat(np.arange(64), 5))
    y = y[(y != 7) & (y != 63)]
    x = vectors[y] + 1e-7 * rng.normal(size=(len(y), 8))
    tree = check(ClassTree.from_labels(x, y, 4, 64, seed=0, verbose=0))
    counts = np.bincount(y, minlength=64)
    for c in range(64):
        mean = x[y == c].mean(axis=0) if counts[c] else x.mean(axis=0)
        np.testing.assert_allclose(tree.class_means[c], mean, atol=1e-6)
    np.testing.assert_allclose(
        tree.node_means,
        plain_means(tree, tree.class_means, counts.astype("float64")),
        atol=1e-6,
    )
    np.testing.assert_allclose(tree.root_mean, x.mean(axis=0), atol=1e-6)


def test_equal_vectors():
    check(ClassTree.from_vectors(np.ones((365, 4)), 5, seed=0, verbose=0))
    # All ask for the same of 45 clusters, in each round.
    check(ClassTree.from_vectors(np.ones((2000, 2)), 45, seed=0, verbose=0))
    # Half of them equal, and two of them far away.
    vectors = np.ones((365, 4))
    vectors[::2] = np.random.default_rng(0).normal(size=(183, 4))
    vectors[[3, 8]] = 1e18
    check(ClassTree.from_vectors(vectors, 5, seed=0, verbose=0))


@pytest.mark.parametrize(
    "children, num_classes, argument, received",
    [
        ([0, 1], 2, "children", "shape=(2,)"),
        (np.zeros((0, 2), int), 2, "children", "shape=(0, 2)"),
        ([[0.0, 1.0]], 2, "children", "float64"),
        ([[0, 2]], 2, "children", "largest=2"),
        ([[0, 1]], 3, "children", "entry=2, times=0"),
        ([[0, 1, 1]], 2, "children", "entry=1, times=2"),
        ([[0, 1], [-1, -1]], 1, "children", "row=1"),
        ([[0, -1, 1]], 2, "children", "row=0"),
        ([[2, 3], [1, -1], [0, -1]], 2, "children", "lost_nodes=[0]"),
        *[([[0, 1]], x, "num_classes", x) for x in (0, 2.0, 2**31)],
    ],
)
def test_wrong_children(children, num_classes, argument, received):
    with refused(argument, received):
        ClassTree(children, num_classes)


X = np.ones((3, 2))


@pytest.mark.parametrize(
    "argument, build, values",
    [
        ("branching", lambda v: ClassTree.random(10, v), [1, 2.5, None]),
        ("seed", lambda v: ClassTree.from_vectors(X, seed=v), [-1, "a"]),
        ("counts", ClassTree.from_frequencies, [[], [1, -1], [1, np.nan]]),
        ("num_classes", ClassTree.random, [0, 2.0]),
        ("paths", ClassTree.from_taxonomy, [[], [("a",), "animal"], [5]]),
        ("groups", ClassTree.from_groups, [[], [[1, 2]], [0.5, 1.0], 3]),
        ("vectors", ClassTree.from_vectors, [np.ones(3), [[1.0, np.inf]]]),
        ("weights", lambda v: ClassTree.from_vectors(X, weights=v), [[1, 2]]),
        ("y", lambda v: ClassTree.from_labels(X, v), [[0, 1], [0, -1, 2]]),
        ("y", lambda v: ClassTree.from_labels(X, v, 2, 3), [[0, 1, 3]]),
        ("num_classes", lambda v: ClassTree.from_labels(X, v), [[-3, -1, -2]]),
        ("x", lambda v: ClassTree.from_labels(v, [0]), [[[np.nan]]]),
    ],
)
def test_wrong_arguments(argument, build, values):
    for value in values:
        with refused(argument):
            build(value)
