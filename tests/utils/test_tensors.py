"""Helpers that work on tensors."""

import numpy as np
import pytest
import tensorflow as tf

from keras_compembed.utils.tensor_ops import custom_gradient
from keras_compembed.utils.tensor_ops import each_once
from keras_compembed.utils.tensor_ops import in_parts
from keras_compembed.utils.tensor_ops import log_add_exp
from keras_compembed.utils.tensor_ops import log_sum_exp

NOTHING = float("-inf")


@pytest.mark.parametrize(
    "rows, mode, sizes",
    [
        (0, "eager", []),
        (8, "eager", [8]),
        (20, "eager", [8, 8, 8]),
        (20, "known", None),
        (1, "unknown", None),
        (20, "unknown", None),
        pytest.param(20, "xla", None, marks=pytest.mark.apart),
    ],
)
def test_in_parts(rows, mode, sizes):
    found = []

    def compute(values, ids):
        found.append(values.shape[0])
        return 2 * values, ids + 1

    def run(*inputs):
        results = [tf.zeros_like(values) for values in inputs]
        return in_parts(compute, inputs, results, 8)

    if mode != "eager":
        size = None if mode == "unknown" else rows
        spec = [tf.TensorSpec((size, 3)), tf.TensorSpec((size,), "int32")]
        run = tf.function(run, spec, jit_compile=mode == "xla")
    values = np.random.default_rng(0).normal(size=(rows, 3)).astype("float32")
    doubled, after = run(tf.constant(values), tf.range(rows))
    np.testing.assert_array_equal(doubled, 2 * values)
    np.testing.assert_array_equal(after, np.arange(rows) + 1)
    if sizes is not None:
        assert found == sizes


IDS = tf.constant([7, 3, 7, 0, 3, 7])


@pytest.mark.parametrize(
    "mode",
    ["eager", "graph", pytest.param("graph in xla", marks=pytest.mark.apart)],
)
def test_vectors_of_different_ids_are_composed_once(mode):
    table = tf.constant(np.random.default_rng(0).normal(size=(9, 4)))
    upstream = tf.constant(np.random.default_rng(1).normal(size=(6, 4)))
    composed = []

    def compose(ids):
        composed.append(ids.shape[0])
        return tf.sin(tf.gather(table, ids))

    def look_up(ids):
        with tf.GradientTape() as tape:
            tape.watch(table)
            vectors = each_once(compose, ids)
        return vectors, tf.convert_to_tensor(
            tape.gradient(vectors, table, upstream)
        )

    function = look_up
    if mode != "eager":
        function = tf.function(look_up)
    if mode == "graph in xla":
        function = tf.function(function, jit_compile=True)
    vectors, gradient = function(IDS)
    exact = np.zeros((9, 4))
    np.add.at(exact, IDS, upstream * tf.cos(tf.gather(table, IDS)))
    np.testing.assert_allclose(vectors, tf.sin(tf.gather(table, IDS)))
    np.testing.assert_allclose(gradient, exact, atol=1e-12)
    # Graphs do not know the number of different ids; of all ids they do.
    assert composed == {"eager": [3], "graph": [None]}.get(mode, [6])


@custom_gradient
def doubled(x, y):
    """`2 * x + 3 * y`, whose gradient in `x` is as if it were no double."""
    return 2 * x + 3 * y, lambda upstream: (upstream, 3 * upstream)


def gradients_of(function, x, y):
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        result = function(x, y)
    return result, *tape.gradient(result, [x, y])


@pytest.mark.parametrize("traced", ["nothing", "function", "gradients"])
def test_custom_gradients(traced):
    assert doubled.__name__ == "doubled" and doubled.__doc__.startswith("`2")

    def take(function, x, y):
        if traced == "gradients":
            return tf.function(lambda *xy: gradients_of(function, *xy))(x, y)
        if traced == "function":
            function = tf.function(function)
        return gradients_of(function, x, y)

    x, y = tf.constant([1.0, 2.0]), tf.constant([4.0, 5.0])
    results = take(doubled, x, y)
    for found, wanted in zip(results, ([14, 19], [1, 1], [3, 3]), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_log_sum_exp():
    scores = tf.constant(
        [
            [0.0, np.log(3), NOTHING],
            [NOTHING] * 3,
            [1e30, 1e30, 0.0],
            [-1e4, -1e4, NOTHING],
            [0.0, np.nan, 1.0],
        ]
    )
    with tf.GradientTape() as tape:
        tape.watch(scores)
        sums = log_sum_exp(scores)
    np.testing.assert_allclose(
        sums, [np.log(4), NOTHING, 1e30, np.log(2) - 1e4, np.nan], rtol=1e-6
    )
    gradients = tape.gradient(sums, scores).numpy()
    np.testing.assert_allclose(
        gradients[:4],
        [[0.25, 0.75, 0], [0, 0, 0], [0.5, 0.5, 0], [0.5, 0.5, 0]],
        rtol=1e-6,
    )
    assert log_sum_exp(tf.zeros((2, 0))).numpy().tolist() == [NOTHING] * 2
    added = log_add_exp(tf.constant([0.0, NOTHING]), tf.constant([0.0, 5.0]))
    np.testing.assert_allclose(added, [np.log(2), 5], rtol=1e-6)


def test_log_sum_exp_of_parts():
    """As if concatenated; a part may have no columns."""
    rng = np.random.default_rng(0)
    parts = [tf.constant(rng.normal(size=(4, n)), "float32") for n in (3, 0, 1)]
    whole = tf.concat(parts, axis=1)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([*parts, whole])
        sums, right = log_sum_exp(*parts), tf.reduce_logsumexp(whole, axis=1)
    np.testing.assert_allclose(sums, right, rtol=1e-6)
    np.testing.assert_allclose(
        tf.concat(tape.gradient(sums, parts), axis=1),
        tape.gradient(right, whole),
        rtol=1e-5,
    )
