import numpy as np
import pytest
import tensorflow as tf
from errors import refused

from keras_compembed.classes import LearnedNoise
from keras_compembed.classes import UnigramNoise
from keras_compembed.classes.noise import UniformNoise

NUM_CLASSES = 13
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
@pytest.mark.parametrize("name", NOISES)
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
        drawn = plain_draws(noise, bits.numpy(), excluded)
        found = noise.sample(bits, tf.constant(excluded))
        np.testing.assert_array_equal(found, drawn)
    drawn = plain_draws(noise, bits.numpy())
    np.testing.assert_array_equal(noise.sample(bits), drawn)


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


@pytest.mark.parametrize("power, decay", [(1.0, 1.0), (0.5, 0.9)])
def test_learned_from_misses(power, decay):
    noise = built(
        LearnedNoise(power=power, smoothing=0.2, refresh_every=3, decay=decay)
    )
    observe = tf.function(noise.observe)
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


@pytest.mark.parametrize(
    "name, value",
    [
        *[("counts", wrong) for wrong in ([1, -1], [1, np.nan], [[1, 2]], [])],
        *[("power", wrong) for wrong in (-0.1, np.nan, None)],
        *[("smoothing", wrong) for wrong in (0, 1.1)],
        *[("decay", wrong) for wrong in (0, True)],
        ("refresh_every", 1.5),
    ],
)
def test_wrong_arguments(name, value):
    received = None if name == "counts" else value
    with refused(name, received):
        LearnedNoise(**{name: value})
    if name in ("counts", "power"):
        with refused(name, received):
            UnigramNoise(**{"counts": COUNTS, name: value})


def test_what_suits_no_layer():
    with refused("counts", 13):
        UnigramNoise(COUNTS).attach(14)
    with refused("counts"):
        UnigramNoise([0, 0])
