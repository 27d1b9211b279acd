import cane_reference as reference
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc
from keras_compembed.classes import CandidateGroups
from keras_compembed.classes import LearnedNoise
from keras_compembed.classes import Selector
from keras_compembed.classes import UnigramNoise
from keras_compembed.classes.noise import UniformNoise


class Given(Selector):
    """Candidates from a table by the order of examples."""

    table = learned = None

    def select(self, scores, features, context=None):
        if isinstance(self.table, tuple):
            return CandidateGroups(*(tf.constant(each) for each in self.table))
        return tf.constant(self.table, "int32")

    def after_step(self, scores, labels, hit):
        self.learned = labels, hit


class Seen(UnigramNoise):
    """Keeps the ids whose probabilities a step asks for."""

    def log_prob(self, ids, excluded=None):
        self.asked.append(ids)
        return super().log_prob(ids, excluded)


MANY, WIDTH = 60, 8
COUNTS = 1 + 600 // np.arange(1, MANY + 1)
Q = COUNTS / COUNTS.sum()


def make_head(table, noise=None, num_noises=10, **kwargs):
    """A built layer, with weights of size 1."""
    selector = Given()
    selector.table = table
    noise = noise or Seen(COUNTS, power=1)
    noise.asked = []
    head = kc.CANESoftmax(
        MANY, selector, 20, num_noises, noise=noise, seed=0, **kwargs
    )
    head.build((None, WIDTH))
    rng = np.random.default_rng(2)
    head.kernel.assign(rng.normal(size=(MANY, WIDTH)))
    head.bias.assign(rng.normal(size=MANY))
    return head


def batch(rows, distinct=False):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, WIDTH)).astype("float32")
    y = (
        rng.permutation(MANY)[:rows]
        if distinct
        else rng.integers(MANY, size=rows)
    )
    return tf.constant(x), tf.constant(y, "int32")


def losses_of(head, x, y, **kwargs):
    return kc.CANELoss(reduction=None)(y, head(x, training=True), **kwargs)


def take_step(head, x, y, weight=None, jit_compile=False):
    """What a step gives, and the noises of each row or of all.

    Returns:
        Dict of `losses`, gradients of their mean by `features`, `kernel` and
        `bias` and, without XLA, what metrics say; and the noises, an array.
    """

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = head(x, training=True)
            losses = kc.CANELoss(reduction=None)(y, outputs, weight)
            loss = tf.reduce_mean(losses)
        sources = [x, head.kernel.value, head.bias.value]
        gradients = tape.gradient(loss, sources)
        found = dict(
            zip(("features", "kernel", "bias"), gradients, strict=True)
        )
        found = {k: tf.convert_to_tensor(part) for k, part in found.items()}
        if not jit_compile:
            for metric in (kc.Coverage(), kc.ClassAccuracy()):
                metric.update_state(y, outputs)
                found[metric.name] = metric.result()
        number = head.estimation.num_noises
        noises = [ids for ids in head.noise.asked if ids.shape[-1] == number]
        return {"losses": losses, **found}, noises[0]

    if jit_compile:
        step = tf.function(step, jit_compile=True)
    found, noises = step(x)
    return found, noises.numpy()


def check(found, right):
    """Against `reference.head`; weights of noises are integers of 38 bits."""
    np.testing.assert_allclose(found["losses"], right["losses"], rtol=1e-4)
    for name in ("features", "kernel", "bias"):
        np.testing.assert_allclose(
            found[name], right[name], rtol=1e-4, atol=1e-6, err_msg=name
        )


@pytest.mark.parametrize(
    ("estimate", "share_noises", "groups", "shared_candidates", "jit_compile"),
    [
        *[
            (estimate, *share, shared, False)
            for estimate in ("joint", "separate")
            for share in ((False, 1), (True, 1), (True, 4), (4, 1))
            for shared in (False, True)
        ],
        # Blocks of examples, which have a form of their own.
        pytest.param("joint", 4, 1, False, True, marks=pytest.mark.apart),
    ],
)
def test_algorithm_1(
    estimate, share_noises, groups, shared_candidates, jit_compile
):
    """Losses and gradients against the paper in NumPy."""
    rows, noises = 30, 3
    rng = np.random.default_rng(0)
    table = np.array([rng.permutation(MANY)[:20] for _ in range(rows)])
    table = table[0] if shared_candidates else table
    head = make_head(
        table,
        num_noises=noises,
        share_noises=share_noises,
        noise_groups=groups,
        estimate=estimate,
    )
    x, y = batch(rows)
    found, drawn = take_step(head, x, y, jit_compile=jit_compile)
    if share_noises == 4:
        # 30 rows are 7 blocks of 4, and one of 2.
        assert drawn.shape == (8, noises)
        drawn = np.repeat(drawn, 4, axis=0)[:rows]
    elif groups > 1:
        # 30 rows are dealt to 4 groups in turn.
        assert drawn.shape == (groups, noises)
        drawn = drawn[np.arange(rows) % groups]
    q_of_rows = Q
    if shared_candidates or not share_noises:
        every = np.broadcast_to(table, (rows, 20))
        q_of_rows = np.array([reference.outside(Q, row) for row in every])
    right = reference.head(
        x.numpy(),
        head.kernel.numpy(),
        head.bias.numpy(),
        y.numpy(),
        table,
        drawn,
        q_of_rows,
        form=estimate,
    )
    check(found, right)


@pytest.mark.parametrize("size", [0.0, 1.0, 80.0, 1e4, 1e30])
@pytest.mark.parametrize("estimate", ["joint", "separate"])
def test_extreme_scores_and_nothing_drawn(estimate, size):
    """What is far above all others is all there is, and nothing is NaN."""
    rows = 12
    rng = np.random.default_rng(0)
    table = np.array([rng.permutation(MANY)[:20] for _ in range(rows)])
    counts = np.where(np.arange(MANY) < 20, COUNTS, 0)
    # No candidates for two rows; no noises are left for three more.
    table[[0, 5]] = -1
    table[[1, 2, 6]] = np.arange(20)
    noise = Seen(counts, power=1)
    head = make_head(table, noise, 3, estimate=estimate)
    head.kernel.assign(head.kernel * size)
    # A class of a score of minus infinity is as one that is not there.
    head.bias.assign(np.where(np.arange(MANY) == 3, -np.inf, head.bias))
    x, y = batch(rows)
    y = tf.where(tf.range(rows) % 2 == 0, y % 20, y)
    y = tf.where(y == 3, 4, y)
    found, drawn = take_step(head, x, y)
    assert (drawn[[1, 2, 6]] == -1).all() and (drawn[0] >= 0).all()
    # Labels that are never drawn have the least weight, 1 of 2^38 in all.
    log_q = head.noise.log_prob(tf.range(MANY)[None], table).numpy()
    kernel = head.kernel.numpy()
    right = reference.head(
        x.numpy(),
        kernel,
        head.bias.numpy(),
        y.numpy(),
        table,
        drawn,
        np.exp(log_q.astype("float64")),
        form=estimate,
    )
    close = dict(rtol=1e-4, atol=1e-4 * (1 + size))
    np.testing.assert_allclose(found["losses"], right["losses"], **close)
    for name in ("features", "kernel", "bias"):
        np.testing.assert_allclose(found[name], right[name], **close)
    # A label without a score; and features that are NaN spoil their row.
    x = x.numpy()
    x[4] = np.nan
    losses = losses_of(head, x, tf.where(tf.range(rows) == 7, 3, y)).numpy()
    assert losses[7] == np.inf and np.isnan(losses[4])
    assert np.isfinite(np.delete(losses, [4, 7])).all()


def table_of(kind, rows):
    """What a selector gives, what each row considers, and what all do."""
    rng = np.random.default_rng(5)

    def sets(number, size):
        table = np.array([rng.permutation(MANY)[:size] for _ in range(number)])
        table[::2, -1] = -1
        return table.astype("int32")

    if kind == "shared":
        table = sets(1, 15)[0]
        own = np.tile(table, (rows, 1))
        return table, own, [k for k in table if k >= 0]
    if kind == "own":
        # More than are compared one by one, in some.
        table = sets(rows, 40 if rows == 30 else 6)
        return table, table, []
    groups = rng.integers(5, size=rows).astype("int32")
    # One group without rows, and one of most rows.
    groups[groups == 3] = 0
    table = sets(5, 12)
    return (groups, table), table[groups], []


@pytest.mark.parametrize(
    ("kind", "share_noises", "rows", "jit_compile"),
    [
        ("groups", False, 30, False),
        ("groups", True, 3, False),
        ("groups", 4, 30, False),
        pytest.param("groups", True, 30, True, marks=pytest.mark.apart),
        ("own", True, 30, False),
        ("own", True, 3, False),
        ("shared", True, 30, False),
    ],
)
def test_candidates_that_rows_share(kind, share_noises, rows, jit_compile):
    """Noises that are candidates of a row count as 0 in it."""
    table, of_rows, shared = table_of(kind, rows)
    head = make_head(table, num_noises=6, share_noises=share_noises)
    x, y = batch(rows)
    found, noises = take_step(head, x, y, jit_compile=jit_compile)
    if share_noises == 4:
        noises = np.repeat(noises, 4, axis=0)[:rows]
    right = reference.head(
        x.numpy(),
        head.kernel.numpy(),
        head.bias.numpy(),
        y.numpy(),
        of_rows,
        noises,
        reference.outside(Q, shared),
        form="joint",
    )
    check(found, right)
    if jit_compile:
        return
    hits = (of_rows == y.numpy()[:, None]).any(axis=1)
    assert found["coverage"] == np.float32(np.mean(hits))
    every = x.numpy() @ head.kernel.numpy().T + head.bias.numpy()
    highest = [
        max(row[own[own >= 0]]) <= row[label] + 1e-6
        for row, label, own in zip(every, y.numpy(), of_rows, strict=True)
    ]
    best = np.mean(np.logical_and(hits, highest))
    assert found["accuracy"] == np.float32(best)


@pytest.mark.parametrize(
    ("kind", "rows", "num_noises", "groups", "jit_compile"),
    [
        # More labels than noises, as many, and fewer.
        ("shared", 30, 12, 1, False),
        ("shared", 12, 13, 1, False),
        ("own", 30, 31, 1, False),
        ("groups", 12, 20, 1, False),
        ("shared", 30, 5, 3, False),
        ("shared", 2, 4, 3, False),
        pytest.param("groups", 12, 20, 2, True, marks=pytest.mark.apart),
    ],
)
def test_labels_as_noises(kind, rows, num_noises, groups, jit_compile):
    """Of those examples that count, and each without its own."""
    table, of_rows, shared = table_of(kind, rows)
    head = make_head(
        table, num_noises=num_noises, share_noises="labels", noise_groups=groups
    )
    places = groups * (num_noises - 1)
    # Labels say whose they are, where that matters.
    x, y = batch(rows, distinct=groups > 1 or places < rows)
    weight = 1.0 * (np.arange(rows) % 5 != 3)
    found, noises = take_step(head, x, y, weight, jit_compile)
    noises = noises.reshape(groups, num_noises)
    labels = np.where(weight, y.numpy(), -1)
    are_noises = (labels >= 0) & ~np.isin(labels, shared)
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
    every = [
        reference.head(
            x.numpy()[[row]],
            head.kernel.numpy(),
            head.bias.numpy(),
            y.numpy()[[row]],
            [of_rows[row]],
            [
                reference.labels_as_noises(
                    row,
                    # Those of a group are every so many.
                    order[row % groups :: groups],
                    labels,
                    noises[row % groups],
                    shared,
                )
            ],
            reference.outside(Q, shared),
            form="joint",
            sample_weight=weight[[row]],
        )
        for row in range(rows)
    ]
    losses = weight * [each["losses"][0] for each in every]
    features = np.concatenate([each["features"] for each in every]) / rows
    right = {"losses": losses, "features": features}
    for name in ("kernel", "bias"):
        right[name] = np.mean([each[name] for each in every], axis=0)
    check(found, right)


@pytest.mark.parametrize("share_noises", [True, "labels"])
def test_groups_of_no_rows(share_noises):
    """A batch may have fewer examples than groups, or none."""
    for rows in (0, 2):
        head = make_head(
            np.arange(20), share_noises=share_noises, noise_groups=5
        )
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
        head = make_head(np.arange(8, 28), noise, 13, share_noises="labels")
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
        np.testing.assert_array_equal(
            head.selector.learned[1], np.arange(8) < 4
        )
        # The only candidate is the label itself.
        assert kc.ClassAccuracy()(y, outputs) == 0.5


LABELS = {"share_noises": "labels"}
LIKE_LABELS = UnigramNoise(COUNTS, 1.0)


@pytest.mark.parametrize(
    ("argument", "received", "kwargs"),
    [
        ("num_noises", 0, {"num_noises": 0}),
        *[("share_noises", v, {"share_noises": v}) for v in (0, 2.5, "label")],
        ("estimate", "both", {"estimate": "both"}),
        ("noise_groups", 0, {"noise_groups": 0}),
        ("noise_groups", 2, {"noise_groups": 2, "share_noises": 8}),
        ("share_noises", False, {"noise_groups": 2}),
        ("noise", 0.75, LABELS),
        ("noise", "UniformNoise", {**LABELS, "noise": UniformNoise()}),
        ("num_noises", 1, {**LABELS, "num_noises": 1}),
        (
            "estimate",
            "separate",
            {**LABELS, "noise": LIKE_LABELS, "estimate": "separate"},
        ),
    ],
)
def test_wrong_arguments(argument, received, kwargs):
    kwargs = {"noise": UnigramNoise(COUNTS), **kwargs}
    with refused(argument, received):
        kc.CANESoftmax(MANY, Given(), **kwargs)
