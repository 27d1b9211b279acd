"""What a step draws and its losses, against the paper in NumPy."""

import warnings

import cane_reference as reference
import keras
import numpy as np
import pytest
import tensorflow as tf
from class_models import cane
from errors import refused

import keras_compembed as kc
from keras_compembed.classes import AllClasses
from keras_compembed.classes import BeamTree
from keras_compembed.classes import ClassTree
from keras_compembed.classes import FrequentClasses
from keras_compembed.classes import LearnedNoise
from keras_compembed.classes import Selector
from keras_compembed.classes import UnigramNoise
from keras_compembed.classes.sampling import MOST_SCORED
from keras_compembed.classes.sampling import SCORED
from keras_compembed.classes.sampling import enough_scored
from keras_compembed.classes.sampling import worthy_candidates

MANY, WIDTH = 60, 8
COUNTS = 1 + 600 // np.arange(1, MANY + 1)
Q = COUNTS / COUNTS.sum()
# Of nearly a million labels.
ZIPF = 1e5 / np.arange(1, 10_001)


class Given(Selector):
    """Candidates from a table by the order of examples."""

    table = learned = None

    def select(self, scores, features, context=None):
        return tf.constant(self.table, "int32")

    def after_step(self, scores, labels, hit):
        self.learned = labels, hit


class GivenInATree(Given, BeamTree):
    """Vectors of classes are sums over paths."""


class Seen(UnigramNoise):
    """Keeps the ids whose probabilities a step asks for."""

    def log_prob(self, ids, excluded=None):
        self.asked.append(ids)
        return super().log_prob(ids, excluded)


def make_head(table, noise=None, vectors=None, **kwargs):
    """A built layer, with weights of size 1."""
    selector = Given()
    if vectors == "tree":
        tree = ClassTree.random(MANY, branching=4, seed=0)
        selector = GivenInATree(tree)
    if vectors == "embedding":
        kwargs["class_embedding"] = keras.layers.Embedding(MANY, WIDTH)
    selector.table = table
    noise = noise or Seen(COUNTS, power=1)
    noise.asked = []
    kwargs = {"num_candidates": 20, "num_noises": 10, **kwargs}
    return cane(MANY, WIDTH, 2, selector=selector, noise=noise, **kwargs)


def batch(rows, distinct=False):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, WIDTH)).astype("float32")
    y = rng.permutation(MANY)[:rows]
    if not distinct:
        y = rng.integers(MANY, size=rows)
    return tf.constant(x), tf.constant(y, "int32")


def losses_of(head, x, y, **kwargs):
    return kc.CANELoss(reduction=None)(y, head(x, training=True), **kwargs)


def take_step(head, x, y, weight=None, jit_compile=False):
    """Losses and gradients of their mean, and the noises drawn."""

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = head(x, training=True)
            losses = kc.CANELoss(reduction=None)(y, outputs, weight)
            loss = tf.reduce_mean(losses)
        rows = head.kernel
        if rows is None:
            rows = head.class_embedding.embeddings
        sources = [x, rows.value, head.bias.value]
        gradients = map(tf.convert_to_tensor, tape.gradient(loss, sources))
        names = "features", "kernel", "bias"
        found = dict(zip(names, gradients, strict=True))
        number = head.sampling.num_noises
        noises = [ids for ids in head.noise.asked if ids.shape[-1] == number]
        return {"losses": losses, **found}, noises[0]

    if jit_compile:
        step = tf.function(step, jit_compile=True)
    found, noises = step(x)
    return found, noises.numpy()


def by_paper(head, x, y, *args, **kwargs):
    ids = tf.range(MANY)
    weights = head.scores.class_vectors(ids), head.scores.class_biases(ids)
    return reference.head(x.numpy(), *weights, y.numpy(), *args, **kwargs)


def check(found, right, rtol=1e-4, atol=1e-6):
    """Against `reference.head`; weights of noises are integers of 38 bits."""
    for name in ("losses", "features", "kernel", "bias"):
        np.testing.assert_allclose(
            found[name], right[name], rtol, atol, err_msg=name
        )


def table_of(kind, rows, size=None):
    """What a selector gives, what each row considers, and what all do."""
    rng = np.random.default_rng(5)
    number = 1 if kind == "shared" else rows
    # Of one's own, more than are compared one by one, in some.
    size = size or (15 if kind == "shared" else 40 if rows == 30 else 6)
    table = np.array([rng.permutation(MANY)[:size] for _ in range(number)])
    table[::2, -1] = -1
    if kind == "shared":
        own = np.tile(table, (rows, 1))
        return table[0], own, [k for k in table[0] if k >= 0]
    return table, table, []


@pytest.mark.parametrize(
    ("estimate", "kind", "vectors", "shared", "groups", "jit_compile"),
    [
        *[
            (*each, *share, False)
            for each in (
                ("joint", "own", None),
                ("separate", "shared", None),
                ("joint", "shared", "tree"),
                ("separate", "own", "embedding"),
            )
            for share in ((False, 1), (True, 1), (True, 4), ("neighbors", 4))
        ],
        # Groups of neighbors have a form of their own.
        pytest.param(
            *("joint", "own", None, "neighbors", 4, True),
            marks=pytest.mark.apart,
        ),
    ],
)
def test_algorithm_1(estimate, kind, vectors, shared, groups, jit_compile):
    """Noises that are candidates of a row count as 0 in it."""
    rows = 30
    table, of_rows, common = table_of(kind, rows)
    kwargs = {"shared": shared, "groups": groups, "estimate": estimate}
    head = make_head(table, vectors=vectors, num_noises=3, **kwargs)
    x, y = batch(rows)
    found, drawn = take_step(head, x, y, jit_compile=jit_compile)
    if shared == "neighbors":
        # 30 rows are 7 groups of 4, and one of 2.
        assert drawn.shape == (8, 3)
        drawn = np.repeat(drawn, 4, axis=0)[:rows]
    elif groups > 1:
        # 30 rows are dealt to 4 groups in turn.
        assert drawn.shape == (groups, 3)
        drawn = drawn[np.arange(rows) % groups]
    q = reference.outside(Q, common)
    if not shared:
        q = np.array([reference.outside(Q, row) for row in of_rows])
    check(found, by_paper(head, x, y, of_rows, drawn, q, form=estimate))


@pytest.mark.parametrize("size", [1.0, 1e4, 1e30])
@pytest.mark.parametrize("estimate", ["joint", "separate"])
def test_extreme_scores_and_nothing_drawn(estimate, size):
    """What is far above all others is all there is, and nothing is NaN."""
    rows = 12
    table = table_of("own", rows, 20)[0]
    # No candidates for two rows; no noises are left for three more.
    table[[0, 5]] = -1
    table[[1, 2, 6]] = np.arange(20)
    counts = np.where(np.arange(MANY) < 20, COUNTS, 0)
    noise = Seen(counts, power=1)
    head = make_head(table, noise, num_noises=3, estimate=estimate)
    head.kernel.assign(head.kernel * size)
    # A class of a score of minus infinity is as one that is not there.
    head.bias.assign(np.where(np.arange(MANY) == 3, -np.inf, head.bias))
    x, y = batch(rows)
    y = tf.where(tf.range(rows) % 2 == 0, y % 20, y)
    y = tf.where(y == 3, 4, y)
    found, drawn = take_step(head, x, y)
    assert (drawn[[1, 2, 6]] == -1).all() and (drawn[0] >= 0).all()
    # Labels that are never drawn have the least weight, 1 of 2^38 in all.
    q = head.noise.log_prob(tf.range(MANY)[None], table).numpy()
    q = np.exp(q.astype("float64"))
    right = by_paper(head, x, y, table, drawn, q, form=estimate)
    check(found, right, atol=1e-4 * (1 + size))
    # A label without a score; and features that are NaN spoil their row.
    x = x.numpy()
    x[4] = np.nan
    losses = losses_of(head, x, tf.where(tf.range(rows) == 7, 3, y)).numpy()
    assert losses[7] == np.inf and np.isnan(losses[4])
    assert np.isfinite(np.delete(losses, [4, 7])).all()


@pytest.mark.parametrize(
    ("kind", "rows", "num_noises", "groups", "jit_compile"),
    [
        # More labels than noises, as many, and fewer.
        ("shared", 30, 12, 1, False),
        ("own", 30, 31, 1, False),
        ("shared", 30, 5, 3, False),
        ("shared", 2, 4, 3, False),
        pytest.param("own", 12, 20, 2, True, marks=pytest.mark.apart),
    ],
)
def test_labels_as_noises(kind, rows, num_noises, groups, jit_compile):
    """Of those examples that count, and each without its own."""
    table, of_rows, common = table_of(kind, rows)
    kwargs = {"num_noises": num_noises, "groups": groups, "shared": "labels"}
    head = make_head(table, **kwargs)
    places = groups * (num_noises - 1)
    # Labels say whose they are, where that matters.
    x, y = batch(rows, distinct=groups > 1 or places < rows)
    weight = 1.0 * (np.arange(rows) % 5 != 3)
    found, noises = take_step(head, x, y, weight, jit_compile)
    noises = noises.reshape(groups, num_noises)
    labels = np.where(weight, y.numpy(), -1)
    are_noises = (labels >= 0) & ~np.isin(labels, common)
    # Groups get labels in turn, as far as there are, but for the last place.
    taken = min(are_noises.sum(), places)
    turns = noises[:, :-1].T.ravel()
    assert set(turns[:taken]) <= set(labels[are_noises])
    left = list(np.flatnonzero(are_noises))
    order = []
    for label in turns[:taken]:
        order.append(next(row for row in left if labels[row] == label))
        left.remove(order[-1])
    if rows > places:
        # Those without room are not always the last.
        assert sorted(order) != list(np.flatnonzero(are_noises)[:taken])
    every = []
    for row in range(rows):
        # Those of a group are every so many.
        own = order[row % groups :: groups], labels, noises[row % groups]
        own = reference.labels_as_noises(row, *own, common)
        part = x[row : row + 1], y[row : row + 1], [of_rows[row]], [own]
        q = reference.outside(Q, common)
        share = {"form": "joint", "sample_weight": weight[[row]]}
        every.append(by_paper(head, *part, q, **share))
    right = {
        "losses": weight * [each["losses"][0] for each in every],
        "features": np.concatenate([each["features"] for each in every]) / rows,
        "kernel": np.mean([each["kernel"] for each in every], axis=0),
        "bias": np.mean([each["bias"] for each in every], axis=0),
    }
    check(found, right)


@pytest.mark.parametrize(
    ("rows", "number", "later"),
    [(0, 999, 999), (499, 999, 999), (600, 600, 999), (1200, 999, 999)],
)
def test_noises_grow_with_the_examples_seen(rows, number, later):
    """With even counts, by default; labels in lists are no noise samples."""
    x = tf.random.stateless_normal((rows, WIDTH), (0, 1))
    y = tf.range(rows) % 7

    def ten_steps(labels, **kwargs):
        counts = np.ones(5000)
        head = cane(5000, WIDTH, 2, class_counts=counts, **kwargs)
        step = tf.function(lambda: losses_of(head, x, labels))
        return [step().numpy() for _ in range(10)]

    lists = tf.stack([y, -tf.ones_like(y)], axis=1)
    for labels, *numbers in ((y, number, later), (lists, 999, 999)):
        found = ten_steps(labels)
        for step, noises in zip((0, 9), numbers, strict=True):
            given = {"num_noises": noises, "num_candidates": 1}
            right = ten_steps(labels, shared="labels", **given)
            np.testing.assert_array_equal(found[step], right[step])


@pytest.mark.parametrize(
    ("shared", "groups"), [(True, 5), ("labels", 5), ("neighbors", 4)]
)
def test_groups_of_no_rows(shared, groups):
    """A batch may have fewer examples than groups, or none."""
    for rows in (0, 2):
        head = make_head(np.arange(20), shared=shared, groups=groups)
        losses = losses_of(head, *batch(rows))
        assert losses.shape == (rows,)
        assert np.isfinite(losses).all()


def test_classes_that_were_never_counted_are_no_noises():
    """Weighted as what is drawn next to never, one would be all there is."""
    counts = np.where(np.arange(MANY) < 5, 0, COUNTS)
    x, y = batch(12)
    losses = []
    for labels in (y, tf.where(tf.range(12) < 3, 2, y)):
        noise = UnigramNoise(counts, power=1)
        kwargs = {"num_noises": 13, "shared": "labels"}
        head = make_head(np.arange(8, 28), noise, **kwargs)
        losses.append(losses_of(head, x, labels).numpy()[3:])
    assert np.abs(losses[1] - losses[0]).max() < 3


@pytest.mark.parametrize("learn", [False, True])
def test_a_step_of_training_teaches_the_selector_and_the_noise(learn):
    x, y = batch(8)
    # The labels of the first half are candidates, and scored by themselves.
    labels = y.numpy()
    table = np.where(np.arange(8) < 4, labels, (labels + 1) % MANY)[:, None]
    head = make_head(table, LearnedNoise(decay=1.0))
    outputs = head(x, training=learn)
    kc.CANELoss(evaluation="sampled")(y, outputs)
    misses = np.bincount(labels[4:], minlength=MANY)
    np.testing.assert_array_equal(head.noise.misses, learn * misses)
    assert (head.selector.learned is not None) == learn
    if learn:
        hits = head.selector.learned[1]
        np.testing.assert_array_equal(hits, np.arange(8) < 4)


@pytest.mark.parametrize(
    ("argument", "received", "kwargs"),
    [
        ("selector", "beam", {"selector": "beam"}),
        ("num_candidates", 0, {"num_candidates": 0}),
        ("class_counts", None, {"noise": None, "shared": "labels"}),
        ("shared", "label", {"shared": "label"}),
        ("groups", 2, {"groups": 2}),
        ("groups", None, {"shared": "neighbors"}),
        ("estimate", "both", {"estimate": "both"}),
        ("noise", "unigram", {"noise": "unigram"}),
        ("noise", 0.75, {"shared": "labels"}),
        ("num_noises", 1, {"shared": "labels", "num_noises": 1}),
        ("num_noises", "growing", {"shared": True, "num_noises": "growing"}),
        ("num_noises", "few", {"num_noises": "few"}),
    ],
)
def test_wrong_arguments(argument, received, kwargs):
    kwargs = {"noise": UnigramNoise(COUNTS), "selector": Given(), **kwargs}
    with refused(argument, received):
        kc.CANESoftmax(MANY, sampling=kc.Sampling(**kwargs))
    with refused("sampling"):
        kc.CANESoftmax(MANY, sampling="beam")


# What is chosen where nothing is said.


@pytest.mark.parametrize("counts", [None, ZIPF[:MOST_SCORED]])
def test_few_classes_are_all_scored(counts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        head = kc.CANESoftmax(MOST_SCORED, counts)
        labels = cane(1500, class_counts=ZIPF[:1500], shared="labels")
    for each in (head, head.from_config(head.get_config()), labels):
        assert isinstance(each.selector, AllClasses)
        assert not each.samples


def test_many_classes():
    head = kc.CANESoftmax(10_000, ZIPF, name="head")
    scored = enough_scored(ZIPF, SCORED)
    number = head.sampling.num_candidates
    assert number == worthy_candidates(ZIPF, scored)
    # Another group would be further from a thousand classes.
    noises = scored - number
    assert abs(number + 3 * noises - SCORED) < noises / 2
    lines = []
    head.summary(lines.append)
    assert lines == [
        "head: 10,000 classes",
        f"candidates: {number}, by FrequentClasses",
        f"noise classes: {noises} for each of 3 groups, "
        "labels of the batch first, by UnigramNoise",
    ]


@pytest.mark.parametrize(
    "given, chosen",
    [
        ({"selector": FrequentClasses(ZIPF)}, (10, 10, False, 1)),
        ({"num_candidates": 300}, (300, 700, "labels", 1)),
        ({"num_candidates": 9_900}, (9_900, 99, False, 1)),
        ({"noise": UnigramNoise(ZIPF)}, (149, 289, True, 3)),
        ({"shared": "neighbors", "groups": 16}, (394, 606, "neighbors", 16)),
        ({"shared": False}, (394, 606, False, 1)),
        ({"num_noises": 400, "groups": 2}, (600, 400, "labels", 2)),
        ({"num_candidates": 20, "num_noises": 10}, (20, 10, False, 1)),
    ],
)
def test_what_is_given(given, chosen):
    head = cane(10_000, class_counts=ZIPF, **given)
    for each in (head, kc.CANESoftmax.from_config(head.get_config())):
        sampling = each.sampling
        numbers = sampling.num_candidates, sampling.num_noises
        assert chosen == (*numbers, sampling.shared, sampling.groups)


@pytest.mark.parametrize(
    "share, shared, groups",
    [(False, False, 1), (True, True, 3), ("labels", "labels", 2)]
    + [(20, "neighbors", 20)],
)
def test_configs_of_earlier_versions(share, shared, groups):
    """They have what is of `Sampling` as arguments of the layer."""
    config = cane(MANY, class_counts=COUNTS, selector=Given()).get_config()
    old = config.pop("sampling")["config"]
    old.update(estimate="joint", num_candidates=7, num_noises=5)
    old["noise"]["config"]["power"] = 1.0
    del old["shared"], old["groups"]
    old.update(share_noises=share, noise_groups=1 if share == 20 else groups)
    with tf.keras.utils.custom_object_scope({"Given": Given}):
        head = kc.CANESoftmax.from_config({**config, **old})
    assert isinstance(head.selector, Given) and head.noise.power == 1
    sampling = head.sampling
    assert (sampling.num_candidates, sampling.num_noises) == (7, 5)
    assert (sampling.shared, sampling.groups) == (shared, groups)
