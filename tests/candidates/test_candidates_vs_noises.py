import itertools

import cane_reference as reference
import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.candidates import CandidateGroups
from keras_compembed.candidates import ClassScores
from keras_compembed.candidates import Selector
from keras_compembed.candidates.candidates_vs_noises import CandidatesVsNoises
from keras_compembed.candidates.candidates_vs_noises import Draw
from keras_compembed.candidates.candidates_vs_noises import joint_losses
from keras_compembed.candidates.candidates_vs_noises import separate_losses
from keras_compembed.noises import LearnedNoise
from keras_compembed.noises import UniformNoise
from keras_compembed.noises import UnigramNoise
from keras_compembed.noises.random_bits import random_order

FORMS = {"joint": joint_losses, "separate": separate_losses}
ROWS, CLASSES = 8, 9
NOTHING = float("-inf")


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


def draws():
    """Candidates, noises and labels, with padding, in and out of candidates."""
    rng = np.random.default_rng(0)
    candidates = np.array([rng.permutation(CLASSES)[:3] for _ in range(ROWS)])
    candidates[::3, 2] = -1
    noises = rng.integers(CLASSES, size=(ROWS, 4))
    noises[1, :2] = -1
    labels = candidates[:, 0].copy()
    labels[4:] = [
        next(c for c in range(CLASSES) if c not in row)
        for row in candidates[4:]
    ]
    q = rng.random(CLASSES)
    return candidates, noises, labels, q / q.sum()


def estimate(form, scores, candidates, noises, labels, q):
    """Losses by the package, from scores of all classes."""
    label = tf.gather(scores, labels, batch_dims=1)
    of_candidates = tf.gather(scores, np.maximum(candidates, 0), batch_dims=1)
    of_candidates = tf.where(candidates >= 0, of_candidates, NOTHING)
    of_noises = tf.gather(scores, np.maximum(noises, 0), batch_dims=1)
    log_q = np.log(q)
    if form == "joint":
        log_q += np.log(noises.shape[1])
    of_noises -= log_q[noises].astype("float32")
    counts = noises >= 0
    counts &= ~(noises[:, :, None] == candidates[:, None, :]).any(axis=2)
    of_noises = tf.where(counts, of_noises, NOTHING)
    label_noise = label - log_q[labels].astype("float32")
    hit = (candidates == labels[:, None]).any(axis=1)
    # In two parts, one of which may be empty.
    of_candidates = tf.split(of_candidates, [1, -1], axis=1)
    of_noises = of_noises[:, :-1], of_noises[:, -1:]
    return FORMS[form](label, of_candidates, of_noises, label_noise, hit)


def losses_and_gradients(form, scores, *drawn):
    scores = tf.constant(scores, "float32")
    with tf.GradientTape() as tape:
        tape.watch(scores)
        losses = estimate(form, scores, *drawn)
        total = tf.reduce_sum(losses)
    return losses.numpy(), tape.gradient(total, scores).numpy()


def expected(form, scores, candidates, noises, labels, q):
    parts = []
    for row, label, inside, drawn in zip(
        scores.astype("float64"), labels, candidates, noises, strict=True
    ):
        if label not in inside:
            drawn = drawn[:-1] if form == "joint" else drawn[:0]
        # The reference divides by the largest score, even if not drawn.
        others = np.setdiff1d(np.arange(CLASSES), [*inside, *drawn, label])
        row[others] = row[label]
        drawn = [*drawn, -1][: noises.shape[1]]
        parts.append(
            reference.loss_and_gradient(row, label, inside, drawn, q, form)
        )
    losses, gradients = zip(*parts, strict=True)
    return np.array(losses), np.array(gradients)


@pytest.mark.parametrize("size", [0.0, 1.0, 80.0])
def test_reference(form, size):
    scores = size * np.random.default_rng(1).normal(size=(ROWS, CLASSES))
    scores = scores.astype("float32")
    losses, gradients = losses_and_gradients(form, scores, *draws())
    right, slopes = expected(form, scores, *draws())
    # Differences of scores of up to 300, rounded to 24 bits.
    np.testing.assert_allclose(losses, right, rtol=1e-5, atol=1e-6 * (1 + size))
    np.testing.assert_allclose(gradients, slopes, atol=1e-6 + size * 1e-6)


def test_one_noise_is_the_same_in_both_forms():
    scores = np.random.default_rng(2).normal(size=(ROWS, CLASSES))
    candidates, noises, labels, q = draws()
    drawn = candidates, noises[:, :1], labels, q
    joint, separate = (losses_and_gradients(f, scores, *drawn) for f in FORMS)
    for a, b in zip(joint, separate, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_all_classes_are_the_softmax(form):
    """With all classes as candidates, noises of no weight do not matter."""
    scores = np.random.default_rng(3).normal(size=(ROWS, CLASSES))
    _, noises, labels, q = draws()
    candidates = np.tile(np.arange(CLASSES), (ROWS, 1))
    losses, gradients = losses_and_gradients(
        form, scores, candidates, np.full_like(noises, -1), labels, q
    )
    right = [
        reference.softmax_loss(row, label)
        for row, label in zip(scores, labels, strict=True)
    ]
    np.testing.assert_allclose(losses, right, atol=1e-6)
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    shares[np.arange(ROWS), labels] -= 1
    np.testing.assert_allclose(gradients, shares, atol=1e-6)


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_huge_scores(form, size):
    """Nothing overflows: what is far above all others is all there is."""
    scores = np.zeros((ROWS, CLASSES), "float32")
    scores[np.arange(ROWS), np.arange(ROWS)] = size
    scores[:, -1] = -size
    candidates, noises, labels, q = draws()
    # The reference takes the largest over all noises, not over one.
    noises = noises[:, : 1 if form == "separate" else 4]
    drawn = candidates, noises, labels, q
    losses, gradients = losses_and_gradients(form, scores, *drawn)
    right, slopes = expected(form, scores, *drawn)
    np.testing.assert_allclose(losses, right, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(gradients, slopes, atol=1e-3)


def test_infinite_scores(form):
    """A class of a score of minus infinity is as one that is not there."""
    scores = np.random.default_rng(4).normal(size=(ROWS, CLASSES))
    candidates, noises, labels, q = draws()
    for row in range(4):
        scores[row, candidates[row, 1]] = NOTHING
        scores[row + 4, noises[row + 4]] = NOTHING
        scores[row + 4, labels[row + 4]] = 0.5
    losses, gradients = losses_and_gradients(
        form, scores, candidates, noises, labels, q
    )
    right, slopes = expected(
        form, np.maximum(scores, -1e3), candidates, noises, labels, q
    )
    np.testing.assert_allclose(losses, right, atol=1e-6)
    np.testing.assert_allclose(gradients, slopes, atol=1e-6)


def test_a_label_of_minus_infinity(form):
    scores = np.zeros((ROWS, CLASSES), "float32")
    candidates, noises, labels, q = draws()
    scores[np.arange(ROWS), labels] = NOTHING
    losses, _ = losses_and_gradients(
        form, scores, candidates, noises, labels, q
    )
    assert (losses == np.inf).all()


def test_nan_stays_in_its_rows(form):
    scores = np.random.default_rng(5).normal(size=(ROWS, CLASSES))
    candidates, noises, labels, q = draws()
    drawn = candidates, noises, labels, q
    right = losses_and_gradients(form, scores, *drawn)
    scores[2, candidates[2, 1]] = np.nan
    scores[5, labels[5]] = np.nan
    losses, gradients = losses_and_gradients(form, scores, *drawn)
    assert np.isnan(losses[[2, 5]]).all()
    others = np.setdiff1d(np.arange(ROWS), [2, 5])
    np.testing.assert_array_equal(losses[others], right[0][others])
    np.testing.assert_array_equal(gradients[others], right[1][others])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_no_nan_where_nothing_is_drawn(form, jit_compile):
    """No candidates for one row, no noises for another: finite gradients."""
    candidates, noises, labels, q = draws()
    candidates[4:6] = -1
    noises[[0, 4]] = -1
    drawn = candidates, noises, labels, q

    @tf.function(jit_compile=jit_compile)
    def run(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            losses = estimate(form, scores, *drawn)
        return losses, tape.gradient(losses, scores)

    scores = np.random.default_rng(6).normal(size=(ROWS, CLASSES))
    losses, gradients = run(tf.constant(scores, "float32"))
    right, slopes = expected(form, scores, *drawn)
    np.testing.assert_allclose(losses, right, atol=1e-6)
    np.testing.assert_allclose(gradients, slopes, atol=1e-6)


class Given(Selector):
    """Candidates from a table by the order of examples."""

    table = learned = None

    def select(self, scores, features, context=None):
        parts = self.table if isinstance(self.table, list) else [self.table]
        parts = [
            CandidateGroups(*(tf.constant(each, "int32") for each in part))
            if isinstance(part, tuple)
            else tf.constant(part, "int32")
            for part in parts
        ]
        return parts if isinstance(self.table, list) else parts[0]

    def after_step(self, scores, labels, hit):
        self.learned = labels, hit


MANY, WIDTH = 60, 8
COUNTS = 1 + 600 // np.arange(1, MANY + 1)


def make_parts(table, noise=None, **kwargs):
    """A built `CandidatesVsNoises`, and `ClassScores` to draw from."""
    rng = np.random.default_rng(2)
    scores = ClassScores(
        keras.Variable(rng.normal(size=(MANY, WIDTH)), dtype="float32"),
        keras.Variable(rng.normal(size=MANY), dtype="float32"),
    )
    selector = Given()
    selector.table = table
    selector.attach(MANY, 20)
    noise = noise or UnigramNoise(COUNTS, power=1)
    noise.attach(MANY)
    noise.build()
    return CandidatesVsNoises(selector, noise, **kwargs), scores


def batch(rows):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, WIDTH)).astype("float32")
    return tf.constant(x), tf.constant(rng.integers(MANY, size=rows), "int32")


def take_step(estimation, scores, x, y, monkeypatch, jit_compile, **kwargs):
    """A `Draw`, gradients of the mean loss, and what the noise drew."""
    drawn = {}
    sample = estimation.noise.sample

    def recording(*arguments):
        drawn["noises"] = sample(*arguments)
        return drawn["noises"]

    monkeypatch.setattr(estimation.noise, "sample", recording)

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            draw = estimation.draw(scores, x, y, tf.constant([3, 4]), **kwargs)
            loss = tf.reduce_mean(draw.losses)
        sources = [x, scores.table.value, scores.bias.value]
        gradients = tape.gradient(loss, sources)
        gradients = [tf.convert_to_tensor(part) for part in gradients]
        parts = draw.losses, draw.hit, draw.best
        return parts, gradients, drawn["noises"]

    if jit_compile:
        step = tf.function(step, jit_compile=True)
    parts, gradients, noises = step(x)
    return Draw(*parts), gradients, noises.numpy()


@pytest.mark.parametrize(
    ("estimate", "share_noises", "groups", "shared_candidates", "jit_compile"),
    [
        *[
            (estimate, *share, shared, False)
            for estimate in ("joint", "separate")
            for share in ((False, 1), (True, 1), (True, 4), (4, 1))
            for shared in (False, True)
        ],
        # Each kind of candidates and of noises once.
        ("joint", False, 1, False, True),
        ("joint", True, 1, True, True),
        ("joint", True, 4, True, True),
        ("joint", 4, 1, False, True),
    ],
)
def test_algorithm_1(
    estimate, share_noises, groups, shared_candidates, jit_compile, monkeypatch
):
    """Losses and gradients against the paper in NumPy."""
    rows, noises = 30, 3
    rng = np.random.default_rng(0)
    table = np.array([rng.permutation(MANY)[:20] for _ in range(rows)])
    table = table[0] if shared_candidates else table
    estimation, scores = make_parts(
        table,
        num_noises=noises,
        share_noises=share_noises,
        noise_groups=groups,
        estimate=estimate,
    )
    x, y = batch(rows)
    draw, gradients, drawn = take_step(
        estimation, scores, x, y, monkeypatch, jit_compile
    )
    if share_noises == 4:
        # 30 rows are 7 blocks of 4, and one of 2.
        assert drawn.shape == (8, noises)
        drawn = np.repeat(drawn, 4, axis=0)[:rows]
    elif groups > 1:
        # 30 rows are dealt to 4 groups in turn.
        drawn = drawn.reshape(groups, noises)[np.arange(rows) % groups]
    assert 0 < np.mean(draw.hit) < 1
    q = COUNTS / COUNTS.sum()
    if share_noises and not shared_candidates:
        q_of_rows = q
    else:
        every = np.broadcast_to(table, (rows, 20))
        q_of_rows = np.array([reference.outside(q, row) for row in every])
    expected = reference.head(
        x.numpy(),
        scores.table.numpy(),
        scores.bias.numpy(),
        y.numpy(),
        table,
        drawn,
        q_of_rows,
        form=estimate,
    )
    # Weights of noises are integers of 38 bits in all.
    np.testing.assert_allclose(draw.losses, expected["losses"], rtol=1e-4)
    for name, gradient in zip(
        ("features", "kernel", "bias"), gradients, strict=True
    ):
        np.testing.assert_allclose(
            gradient, expected[name], rtol=1e-4, atol=1e-6
        )


def in_parts(rows):
    """Parts of candidates by name, which overlap and have -1 among them."""
    rng = np.random.default_rng(5)

    def sets(number, size):
        table = [rng.permutation(MANY)[:size] for _ in range(number)]
        table = np.array(table)
        table[::2, -1] = -1
        return table

    groups = rng.integers(5, size=rows)
    # One group without rows, and one of most rows.
    groups[groups == 3] = 0
    others = rng.integers(3, size=rows)
    return {
        "groups": (groups, sets(5, 12)),
        "more groups": (others, sets(3, 9)),
        "shared": sets(1, 15)[0],
        "more shared": sets(1, 4)[0],
        "own": sets(rows, 6),
    }


def union(parts, rows):
    """What each row considers, and what all do, in plain Python."""
    alike = [part for part in parts if not isinstance(part, tuple)]
    alike = [part for part in alike if part.ndim == 1]
    shared = {int(k) for part in alike for k in part if k >= 0}
    of_rows = []
    for row in range(rows):
        own = set(shared)
        for part in parts:
            if isinstance(part, tuple):
                part = part[1][part[0]]
            if np.ndim(part) == 2:
                own |= {int(k) for k in part[row] if k >= 0}
        of_rows.append(sorted(own))
    return of_rows, sorted(shared)


@pytest.mark.parametrize(
    ("names", "share_noises", "rows", "jit_compile"),
    [
        ("groups", False, 30, False),
        ("groups", True, 3, False),
        ("shared, groups", 4, 30, False),
        ("groups, shared", True, 30, True),
        ("shared, own", True, 30, False),
        ("shared, more shared, groups, more groups, own", True, 30, False),
        ("own, groups", False, 3, True),
    ],
)
def test_candidates_in_parts(
    names, share_noises, rows, jit_compile, monkeypatch
):
    """What comes in several parts counts once, and so do noises."""
    known = in_parts(rows)
    names = names.split(", ")
    parts = [known[name] for name in names]
    table = parts[0] if len(parts) == 1 else parts
    estimation, scores = make_parts(
        table, num_noises=6, share_noises=share_noises
    )
    x, y = batch(rows)
    draw, gradients, noises = take_step(
        estimation, scores, x, y, monkeypatch, jit_compile
    )
    if share_noises == 4:
        noises = np.repeat(noises, 4, axis=0)[:rows]
    of_rows, shared = union(parts, rows)
    expected = reference.head(
        x.numpy(),
        scores.table.numpy(),
        scores.bias.numpy(),
        y.numpy(),
        [
            np.pad(row, (0, 60 - len(row)), constant_values=-1)
            for row in of_rows
        ],
        noises,
        reference.outside(COUNTS / COUNTS.sum(), shared),
        form="joint",
    )
    # Weights of noises are integers of 38 bits in all.
    np.testing.assert_allclose(draw.losses, expected["losses"], rtol=1e-4)
    for name, gradient in zip(
        ("features", "kernel", "bias"), gradients, strict=True
    ):
        np.testing.assert_allclose(
            gradient, expected[name], rtol=1e-4, atol=1e-6
        )
    hits = [label in own for label, own in zip(y.numpy(), of_rows, strict=True)]
    np.testing.assert_array_equal(draw.hit, hits)
    every = x.numpy() @ scores.table.numpy().T + scores.bias.numpy()
    highest = [
        max(row[own]) <= row[label] + 1e-6
        for row, label, own in zip(every, y.numpy(), of_rows, strict=True)
    ]
    np.testing.assert_array_equal(draw.best, np.logical_and(hits, highest))


def test_blocks_larger_than_the_batch():
    """They are the batch, as the last one of an epoch may be small."""
    x, y = batch(5)
    table = np.arange(MANY)[:20]
    losses = []
    for share_noises in (5, 64):
        estimation, scores = make_parts(table, share_noises=share_noises)
        draw = estimation.draw(scores, x, y, tf.constant([3, 4]))
        losses.append(draw.losses)
    np.testing.assert_array_equal(*losses)


@pytest.mark.parametrize(
    ("names", "rows", "num_noises", "groups", "jit_compile"),
    [
        # More labels than noises, as many, and fewer.
        ("shared", 30, 12, 1, False),
        ("shared", 12, 13, 1, True),
        ("shared", 5, 12, 1, False),
        ("own", 30, 31, 1, False),
        ("shared, groups, own", 12, 20, 1, True),
        ("shared", 30, 5, 3, False),
        ("shared", 13, 7, 4, True),
        ("shared", 2, 4, 3, False),
        ("shared, groups, own", 12, 20, 2, True),
    ],
)
def test_labels_as_noises(
    names, rows, num_noises, groups, jit_compile, monkeypatch
):
    known = in_parts(rows)
    parts = [known[name] for name in names.split(", ")]
    table = parts[0] if len(parts) == 1 else parts
    estimation, scores = make_parts(
        table,
        num_noises=num_noises,
        share_noises="labels",
        noise_groups=groups,
    )
    x, y = batch(rows)
    counted = np.arange(rows) % 5 != 3
    draw, gradients, noises = take_step(
        estimation, scores, x, y, monkeypatch, jit_compile, counted=counted
    )
    of_rows, shared = union(parts, rows)
    labels = np.where(counted, y.numpy(), -1)
    are_noises = (labels >= 0) & ~np.isin(labels, shared)
    # XLA draws other numbers by the same seed.
    draw_order = tf.function(random_order, jit_compile=jit_compile)
    order = draw_order(tf.constant([3, 4]), tf.constant(are_noises)).numpy()
    np.testing.assert_array_equal(np.sort(order), range(rows))
    noises = noises.reshape(groups, num_noises)
    expected = [
        reference.head(
            x.numpy()[[row]],
            scores.table.numpy(),
            scores.bias.numpy(),
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
            reference.outside(COUNTS / COUNTS.sum(), shared),
            form="joint",
        )
        for row in range(rows)
    ]
    right = np.concatenate([each["losses"] for each in expected])
    # Weights of noises are integers of 38 bits in all.
    np.testing.assert_allclose(draw.losses, right, rtol=1e-4)
    features = np.concatenate([each["features"] for each in expected]) / rows
    np.testing.assert_allclose(gradients[0], features, rtol=1e-4, atol=1e-6)
    for name, gradient in zip(("kernel", "bias"), gradients[1:], strict=True):
        right = np.mean([each[name] for each in expected], axis=0)
        np.testing.assert_allclose(gradient, right, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("row", [0, 2])
@pytest.mark.parametrize(
    "candidates, num_noises", [([], 3), ([0, 3], 2), ([0, 3], 3)]
)
def test_labels_as_noises_tend_to_the_truth(row, candidates, num_noises):
    """No gradient in expectation where scores are log probabilities."""
    p = np.array([0.3, 0.1, 0.15, 0.25, 0.2])
    q = reference.outside(p, candidates)
    total, size = np.zeros(5), np.zeros(5)
    for labels in itertools.product(range(5), repeat=3):
        for drawn in itertools.product(np.flatnonzero(q), repeat=num_noises):
            noises = reference.labels_as_noises(
                row, range(3), labels, drawn, candidates
            )
            _, gradient = reference.loss_and_gradient(
                np.log(p), labels[row], candidates, noises, q, "joint"
            )
            chance = np.prod(p[list(labels)]) * np.prod(q[list(drawn)])
            total += chance * gradient
            size += chance * np.abs(gradient)
    np.testing.assert_allclose(total, 0, atol=1e-12)
    assert (size > 0.05).all()


@pytest.mark.parametrize("share_noises", [True, "labels"])
def test_groups_of_no_rows(share_noises):
    """A batch may have fewer examples than groups, or none."""
    for rows in (0, 2):
        estimation, scores = make_parts(
            np.arange(20), share_noises=share_noises, noise_groups=5
        )
        x, y = batch(rows)
        draw = estimation.draw(scores, x, y, tf.constant([3, 4]))
        assert draw.losses.shape == (rows,)
        assert np.isfinite(draw.losses).all()


def test_classes_that_were_never_counted_are_no_noises():
    """Weighted as what is drawn next to never, one would be all there is."""
    counts = np.where(np.arange(MANY) < 5, 0, COUNTS)
    x, y = batch(12)
    losses = []
    for labels in (y, tf.where(tf.range(12) < 3, 2, y)):
        estimation, scores = make_parts(
            np.arange(8, 28),
            UnigramNoise(counts, power=1),
            num_noises=13,
            share_noises="labels",
        )
        draw = estimation.draw(scores, x, labels, tf.constant([3, 4]))
        losses.append(draw.losses.numpy()[3:])
    assert np.abs(losses[1] - losses[0]).max() < 3


@pytest.mark.parametrize("learn", [False, True])
def test_a_step_teaches_the_selector_and_the_noise(learn):
    x, y = batch(8)
    # The labels of the first half are candidates, and scored by themselves.
    labels = y.numpy()
    table = np.where(np.arange(8) < 4, labels, (labels + 1) % MANY)[:, None]
    noise = LearnedNoise(decay=1.0)
    estimation, scores = make_parts(table, noise)
    draw = estimation.draw(scores, x, y, tf.constant([0, 1]), learn=learn)
    np.testing.assert_array_equal(draw.hit, np.arange(8) < 4)
    # The only candidate is the label itself.
    np.testing.assert_array_equal(draw.best, np.arange(8) < 4)
    misses = np.bincount(labels[4:], minlength=MANY)
    np.testing.assert_array_equal(noise.misses, learn * misses)
    assert (estimation.selector.learned is not None) == learn


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_noises": 0}, "`num_noises` must be a positive integer"),
        ({"share_noises": 0}, "`share_noises` must be a positive integer"),
        ({"share_noises": 2.5}, "`share_noises` must be a positive integer"),
        ({"share_noises": "label"}, "`share_noises` must be a positive int"),
        ({"estimate": "both"}, "`estimate` must be one of 'joint', 'separate'"),
        ({"noise_groups": 0}, "`noise_groups` must be a positive integer"),
        (
            {"noise_groups": 2, "share_noises": 8},
            "must be 1 unless.*noise_groups=2, share_noises=8",
        ),
        ({"noise_groups": 2}, "noise_groups=2, share_noises=False"),
        ({"share_noises": "labels"}, "UnigramNoise with power=0.75"),
        (
            {"share_noises": "labels", "num_noises": 1},
            "`num_noises` must be an integer of at least 2",
        ),
        (
            {
                "share_noises": "labels",
                "noise": UniformNoise(),
            },
            "Received: a UniformNoise with power=None",
        ),
        (
            {
                "share_noises": "labels",
                "noise": UnigramNoise(COUNTS, 1.0),
                "estimate": "separate",
            },
            "Received: estimate='separate'",
        ),
    ],
)
def test_bad_arguments(kwargs, message):
    kwargs = {"noise": UnigramNoise(COUNTS), **kwargs}
    with pytest.raises(ValueError, match=message):
        CandidatesVsNoises(Given(), **kwargs)
