import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

from keras_compembed.classes import LearnedNoise
from keras_compembed.classes import UnigramNoise
from keras_compembed.classes.noise import UniformNoise
from keras_compembed.classes.noise import random_bits

NUM_CLASSES = 13
SEED = (3, 4)
COUNTS = np.array([50, 0, 3, 1000, 0.5, 7, 7, 1e-9, 20, 4, 0, 0, 90])
EXCLUDED = np.array(
    [
        [3, 0, 12, -1],
        [-1, -1, -1, -1],
        [11, 12, 10, 9],
        [0, 1, 2, 3],
        [7, -1, 8, 5],
    ],
    "int32",
)
NOISES = {
    "uniform": UniformNoise,
    "unigram": lambda: UnigramNoise(COUNTS),
    "learned": lambda: LearnedNoise(counts=COUNTS, smoothing=0.05),
}
EVERY = pytest.mark.parametrize("name", NOISES)
EAGER_AND_XLA = pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.apart)]
)


def built(noise, num_classes=NUM_CLASSES):
    noise.attach(num_classes)
    noise.build(None)
    return noise


def make(name="unigram"):
    return built(NOISES[name]())


def any_bits(shape, seed=0):
    rng = np.random.default_rng(seed)
    return tf.constant(rng.integers(-(2**63), 2**63 - 1, shape, endpoint=True))


def weights_of(noise):
    """Integer weights of classes, by the noise's own line."""
    ids = tf.range(noise.num_classes + 1)
    return np.diff(noise.weight_below(ids).numpy())


def probabilities(noise):
    weights = weights_of(noise)
    return weights / weights.sum()


def plain_draws(noise, bits, excluded=()):
    """A class has as many places on the line as its weight says."""
    weights = weights_of(noise)
    weights[[i for i in excluded if i >= 0]] = 0
    ends = np.cumsum(weights)
    return np.searchsorted(ends, bits % ends[-1], side="right")


@pytest.mark.parametrize("weights", ["its own", "small"])
@EVERY
def test_draws_are_exact(name, weights):
    """By the places left, whichever numbers are drawn: all of few, too."""
    noise, bits = make(name), any_bits((5, 300))
    if weights == "small":
        bits = tf.tile(tf.range(-50, 50, dtype="int64")[None], (5, 1))
        if name != "uniform":
            noise.table.assign([0, 2, 2, 3, 7, 8, 9, 9, 10, 12, 13, 13, 13, 14])
    ids = noise.sample(bits, tf.constant(EXCLUDED))
    assert ids.dtype == tf.int32
    right = [
        plain_draws(noise, row, excluded)
        for row, excluded in zip(bits.numpy(), EXCLUDED, strict=True)
    ]
    np.testing.assert_array_equal(ids, right)
    # The same are left out for all rows, or none.
    for excluded in EXCLUDED:
        places = tf.constant(excluded)
        for some in (bits, bits[0]):
            drawn = plain_draws(noise, some.numpy(), excluded)
            np.testing.assert_array_equal(noise.sample(some, places), drawn)
    drawn = plain_draws(noise, bits.numpy())
    np.testing.assert_array_equal(noise.sample(bits), drawn)


@pytest.mark.parametrize("num_classes", [1, 2, 3, 4, 5, 64, 65])
@pytest.mark.parametrize("noise_class", [UniformNoise, LearnedNoise])
def test_any_number_of_classes(noise_class, num_classes):
    """The first and the last place of each belong to it."""
    noise = built(noise_class(), num_classes)
    ends = noise.weight_below(tf.range(num_classes + 1))
    for places in (ends[:-1], ends[1:] - 1):
        right = np.arange(num_classes)
        np.testing.assert_array_equal(noise.class_at(places), right)


@EVERY
def test_log_prob(name):
    noise = make(name)
    weights = weights_of(noise)
    ids = np.tile(np.arange(-1, NUM_CLASSES, dtype="int32"), (5, 1))
    given = noise.log_prob(tf.constant(ids), tf.constant(EXCLUDED)).numpy()
    assert given.dtype == "float32"
    assert np.isfinite(given).all()
    np.testing.assert_array_equal(given[:, 0], 0)
    for row, excluded in zip(given, EXCLUDED, strict=True):
        outside = np.setdiff1d(np.arange(NUM_CLASSES), excluded)
        expected = np.log(np.maximum(weights, 1)) - np.log(
            weights[outside].sum()
        )
        # float32 of numbers up to 26.
        np.testing.assert_allclose(
            row[1:][outside], expected[outside], rtol=0, atol=2**-19
        )
        drawn = outside[weights[outside] > 0]
        assert np.exp(row[1:][drawn]).sum() == pytest.approx(1, abs=1e-5)
    for some, excluded, right in (
        (ids[0], EXCLUDED[0], given[0]),
        (ids[0], EXCLUDED, given),
        (ids, EXCLUDED[0], given[[0] * 5]),
    ):
        got = noise.log_prob(tf.constant(some), tf.constant(excluded))
        np.testing.assert_array_equal(got, right)
    alone = noise.log_prob(tf.constant(ids[1]))
    np.testing.assert_array_equal(alone, given[1])


@EVERY
def test_nothing_left_to_draw(name):
    noise = make(name)
    excluded = np.full((3, NUM_CLASSES), -1, "int32")
    excluded[0] = np.random.default_rng(0).permutation(NUM_CLASSES)
    # All that have counts.
    counted = np.flatnonzero(COUNTS)
    excluded[1, : len(counted)] = counted
    ids = noise.sample(any_bits((3, 50)), tf.constant(excluded)).numpy()
    assert (ids[0] == -1).all()
    if name == "unigram":
        assert (ids[1] == -1).all()
    else:
        assert set(ids[1]) == set(np.flatnonzero(COUNTS == 0))
    assert (ids[2] >= 0).all()
    shared = noise.sample(any_bits((50,)), tf.constant(excluded[0]))
    assert (shared.numpy() == -1).all()
    given = noise.log_prob(tf.constant(ids), tf.constant(excluded))
    assert np.isfinite(given).all() and not given.numpy()[0].any()


@EAGER_AND_XLA
def test_graphs(jit_compile):
    noise = make()
    bits, excluded = any_bits((5, 300)), tf.constant(EXCLUDED)

    def step(bits, excluded):
        ids = noise.sample(bits, excluded)
        shared = noise.sample(bits[0], excluded[0])
        drawn = random_bits(SEED, 5, tf.shape(bits)[0])
        return ids, shared, noise.log_prob(ids, excluded), drawn

    signature = [
        tf.TensorSpec((None, None), "int64"),
        tf.TensorSpec((None, 4), "int32"),
    ]
    compiled = tf.function(step, signature, jit_compile=jit_compile)
    for got, right in zip(
        compiled(bits, excluded), step(bits, excluded), strict=True
    ):
        np.testing.assert_allclose(got, right, rtol=0, atol=2**-19)


def test_unigram_weights():
    noise = make()
    q = probabilities(noise)
    expected = COUNTS**0.75 / (COUNTS**0.75).sum()
    np.testing.assert_allclose(q, expected, rtol=0, atol=2**-37)
    assert weights_of(noise)[7] > 0
    np.testing.assert_array_equal(q == 0, COUNTS == 0)
    # Integers of at least 1, however rare.
    noise = built(UnigramNoise([1e300, 0, 1e-300, 5e299], power=1), 4)
    weights = weights_of(noise)
    assert weights[2] == 1 and weights[1] == 0
    assert weights[0] == pytest.approx(2 * weights[3], rel=1e-9)
    # All that were counted alike.
    noise = built(UnigramNoise([3, 0, 9], power=0), 3)
    np.testing.assert_array_equal(probabilities(noise), [0.5, 0, 0.5])


def learned_shares(misses, smoothing, power=1.0):
    """What `LearnedNoise` draws by, in NumPy."""
    total, different = misses.sum(), np.minimum(misses, 1).sum()
    uniform = np.full(len(misses), 1 / len(misses))
    if total == 0:
        return uniform
    even = max(smoothing, different / (total + different))
    powers = np.where(misses > 0, misses**power, 0)
    return (1 - even) * powers / powers.sum() + even * uniform


@EAGER_AND_XLA
@pytest.mark.parametrize("power, decay", [(1.0, 1.0), (0.5, 0.9)])
def test_learned_from_misses(jit_compile, power, decay):
    noise = built(
        LearnedNoise(power=power, smoothing=0.2, refresh_every=3, decay=decay)
    )
    observe = tf.function(noise.observe, jit_compile=jit_compile)
    rng = np.random.default_rng(0)
    misses = np.zeros(NUM_CLASSES)
    table = noise.table.numpy()
    np.testing.assert_allclose(np.diff(table), 2**38 / NUM_CLASSES, atol=1)
    for step in range(1, 11):
        # Few labels: each many times in a batch. Some are padding.
        labels = rng.choice([0, 1, 5, 12, -1, 99], 40).astype("int32")
        hit = rng.random(40) < 0.3
        observe(tf.constant(labels), tf.constant(hit))
        missed = ~hit & (labels >= 0) & (labels < NUM_CLASSES)
        misses *= decay
        np.add.at(misses, labels[missed], 1)
        if step % 3:
            np.testing.assert_array_equal(noise.table, table)
            continue
        table = noise.table.numpy()
        np.testing.assert_allclose(noise.misses, misses, rtol=1e-12)
        np.testing.assert_allclose(
            np.diff(table) / table[-1],
            learned_shares(misses, 0.2, power),
            atol=2**-36,
        )
    assert int(noise.age) == 1


def test_learned_starts_from_counts():
    noise = make("learned")
    np.testing.assert_allclose(
        probabilities(noise), learned_shares(COUNTS, 0.05), atol=2**-36
    )
    assert (weights_of(noise) > 0).all()
    # Little was observed: most of the next misses will be new classes.
    noise = built(LearnedNoise(counts=[1, 1, 0, 0], smoothing=0.1), 4)
    np.testing.assert_allclose(probabilities(noise), [3 / 8] * 2 + [1 / 8] * 2)
    # A share too small for an integer is still drawn.
    noise = built(LearnedNoise(counts=[1e9, 0, 0, 0], smoothing=1e-15), 4)
    assert (weights_of(noise) > 0).all()
    # Nothing missed yet, by counts or by what was observed, is a start.
    noise = built(LearnedNoise(counts=[0, 0], refresh_every=1), 2)
    noise.observe(tf.constant([1, 1]), tf.constant([True, True]))
    np.testing.assert_allclose(probabilities(noise), 1 / 2)


@EVERY
def test_configs_and_who_learns(name):
    """The learned noise alone, of what is a miss."""
    noise = make(name)
    start = [weight.numpy() for weight in noise.weights]
    for hit, changes in ((True, False), (False, name == "learned")):
        noise.observe(tf.constant([4, 4]), tf.constant([hit, hit]))
        for before, weight in zip(start, noise.weights, strict=True):
            if weight.name == "misses":
                assert (weight.numpy() != before).any() == changes
            elif weight.name == "table":
                np.testing.assert_array_equal(weight, before)
    config = json.dumps(keras.saving.serialize_keras_object(noise))
    assert len(config) < 900
    copy = keras.saving.deserialize_keras_object(json.loads(config))
    assert type(copy) is type(noise)
    assert copy.get_config() == noise.get_config()
    right = probabilities(make(name))
    np.testing.assert_array_equal(probabilities(built(copy)), right)


WRONG = {
    "counts": [[1, -1], [1, np.nan], [1, np.inf], [[1, 2]], [], ["a"]],
    "power": [-0.1, 1.1, np.nan, True, "1", None],
    "smoothing": [0, -1, 1.1, np.nan, True, "1", None],
    "decay": [0, -1, 1.1, np.nan, True, "1", None],
    "refresh_every": [0, 1.5, True],
}


@pytest.mark.parametrize(
    "name, value", [(name, value) for name in WRONG for value in WRONG[name]]
)
def test_wrong_arguments(name, value):
    received = None if name == "counts" else value
    with refused(name, received):
        LearnedNoise(**{name: value})
    if name in ("counts", "power"):
        with refused(name, received):
            UnigramNoise(**{"counts": COUNTS, name: value})


def test_what_suits_no_layer():
    for noise in (UnigramNoise(COUNTS), LearnedNoise(counts=COUNTS)):
        with refused("counts", 13):
            noise.attach(14)
    with refused("counts"):
        UnigramNoise([0, 0])
