import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.candidates import ApproximateNearest
from keras_compembed.candidates import ClassScores
from keras_compembed.candidates import approximate_nearest
from keras_compembed.candidates import inverted_lists
from keras_compembed.layers.top_classes import TopClasses


def scores_of(vectors, biases=None):
    """`ClassScores` of vectors and biases."""
    if biases is None:
        biases = np.zeros(len(vectors))
    return ClassScores(
        keras.Variable(vectors, dtype="float32"),
        keras.Variable(biases, dtype="float32"),
    )


def clusters(num_classes=600, number=30, width=8, seed=0):
    """Vectors near one of some centres, and features near vectors."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(number, width))
    own = rng.permutation(np.arange(num_classes) % number)
    vectors = centres[own] + 0.1 * rng.normal(size=(num_classes, width))
    labels = rng.integers(num_classes, size=50)
    features = vectors[labels] + 0.1 * rng.normal(size=(50, width))
    return vectors, features.astype("float32"), own


def built(selector, class_scores, num_candidates=10):
    selector.attach(class_scores.num_classes, num_candidates)
    selector.build((None, class_scores.table.shape[1]))
    return selector


def check_lists(selector):
    """That each class is in one list, and padding at the end."""
    lists = selector.lists.numpy()
    assert lists.dtype == "int32"
    np.testing.assert_array_equal(
        np.sort(lists[lists >= 0]), np.arange(selector.num_classes)
    )
    assert ((lists[:, 1:] >= 0) <= (lists[:, :-1] >= 0)).all()


def recall(ids, vectors, features, biases=0):
    best = np.argmax(features @ vectors.T + biases, axis=1)
    return (ids.numpy() == best[:, None]).any(axis=1).mean()


def best_in_lists(selector, class_scores, features, k):
    """What `top_k` is to return, list by list."""
    means, lists = selector.means.numpy(), selector.lists.numpy()
    of_vectors, of_biases = selector.variances.numpy().T
    vectors, biases = class_scores.table.numpy(), class_scores.bias.numpy()
    ids, scores, totals = [], [], []
    for x in features:
        reach = np.sqrt(x @ x * of_vectors + of_biases)
        likely = means[:, :-1] @ x + means[:, -1]
        likely += np.sqrt(2 * np.log(lists.shape[1])) * reach
        likely[lists[:, 0] < 0] = -np.inf
        classes = lists[np.argsort(-likely)[: selector._probes(k)]].ravel()
        classes = classes[classes >= 0]
        own = vectors[classes] @ x + biases[classes]
        order = np.argsort(-own, kind="stable")[:k]
        ids.append(np.pad(classes[order], (0, k - len(order)), "constant"))
        ids[-1][len(order) :] = -1
        scores.append(np.full(k, -np.inf))
        scores[-1][: len(order)] = own[order]
        totals.append(np.log(np.exp(own).sum()))
    return np.array(ids), np.array(scores), np.array(totals)


def plain_deal(choices, costs, num_lists, capacity):
    """`deal`, one class after the other."""
    places = np.full(len(choices), -1)
    room = np.full(num_lists, capacity)
    for turn in range(choices.shape[1]):
        losses = np.zeros(len(choices))
        if turn + 1 < choices.shape[1]:
            losses = costs[:, turn + 1] - costs[:, turn]
        start = room.copy()
        for c in np.argsort(-losses, kind="stable"):
            if places[c] < 0 and start[choices[c, turn]] > 0:
                places[c] = choices[c, turn]
                start[choices[c, turn]] -= 1
        room = start
    free = np.repeat(np.arange(num_lists), room)
    left = places < 0
    places[left] = free[: left.sum()]
    return places


@pytest.mark.parametrize(
    ("capacity", "jit_compile"),
    [(5, False), (6, False), (40, False), (6, True)],
)
def test_deal_as_one_by_one(capacity, jit_compile):
    rng = np.random.default_rng(capacity)
    choices = np.array([rng.permutation(8)[:3] for _ in range(40)])
    # Most ask for the first lists.
    choices = np.sort(choices, axis=1).astype("int32")
    costs = np.sort(rng.normal(size=(40, 3)), axis=1).astype("float32")
    deal = tf.function(
        lambda: inverted_lists.deal(
            tf.constant(choices), tf.constant(costs), 8, capacity
        ),
        jit_compile=jit_compile,
    )
    places = deal().numpy()
    np.testing.assert_array_equal(
        places, plain_deal(choices, costs, 8, capacity)
    )
    assert np.bincount(places).max() <= capacity


@pytest.mark.parametrize("entries", [1 << 6, 1 << 22])
def test_moments_of_lists(monkeypatch, entries):
    monkeypatch.setattr(inverted_lists, "_ENTRIES", entries)
    vectors = np.random.default_rng(0).normal(size=(9, 4)).astype("float32")
    vectors[0] = np.nan
    lists = [[1, 5, 3], [2, -1, -1], [-1, -1, -1], [4, 8, -1]]
    means, variances = inverted_lists.list_moments(
        lambda ids: tf.gather(vectors, ids), tf.constant(lists)
    )
    for row, ids in enumerate(lists):
        part = vectors[[i for i in ids if i >= 0]]
        if not len(part):
            part = np.zeros((1, 4))
        np.testing.assert_allclose(means[row], part.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(variances[row], part.var(axis=0), atol=1e-6)


@pytest.mark.parametrize("entries", [1 << 8, 1 << 22])
def test_k_means_step(monkeypatch, entries):
    monkeypatch.setattr(inverted_lists, "_ENTRIES", entries)
    rng = np.random.default_rng(0)
    points = rng.normal(size=(50, 3)).astype("float32")
    centres = points[[3, 17, 30, 30]]
    centres[3] = 100
    moved = inverted_lists.k_means(
        tf.constant(points), tf.constant(centres), 1
    ).numpy()
    apart = ((points[:, None] - centres) ** 2).sum(axis=2)
    own = apart.argmin(axis=1)
    for centre in range(3):
        np.testing.assert_allclose(
            moved[centre], points[own == centre].mean(axis=0), atol=1e-6
        )
    # The one without points is now at a point.
    assert (moved[3] == points).all(axis=1).any()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_finds_the_best_classes(jit_compile):
    vectors, features, own = clusters()
    class_scores = scores_of(vectors)
    selector = built(
        ApproximateNearest(num_lists=30, num_probes=3), class_scores
    )
    check_lists(selector)
    select = tf.function(
        lambda x: selector.select(class_scores, x), jit_compile=jit_compile
    )
    ids = select(tf.constant(features))
    check_lists(selector)
    assert ids.dtype == "int32" and ids.shape == (50, 10)
    assert all(len(set(row)) == 10 for row in ids.numpy())
    assert recall(ids, vectors, features) > 0.95
    # Lists are mostly of one cluster.
    lists = selector.lists.numpy()
    pure = [
        np.bincount(own[row[row >= 0]]).max() / (row >= 0).sum()
        for row in lists
        if row[0] >= 0
    ]
    assert np.mean(pure) > 0.8
    expected = best_in_lists(selector, class_scores, features, 10)[0]
    np.testing.assert_array_equal(ids, expected)


# Rows of 2 x 30 classes of 8 numbers: all at once, a few rows, a part of one.
@pytest.mark.parametrize("numbers", [1 << 22, 2000, 100])
@pytest.mark.parametrize("rows", [50, 1])
def test_top_k_as_list_by_list(monkeypatch, numbers, rows):
    monkeypatch.setattr(approximate_nearest, "MOST_NUMBERS", numbers)
    vectors, features, _ = clusters()
    biases = np.random.default_rng(1).normal(size=600)
    class_scores = scores_of(vectors, biases)
    selector = built(
        ApproximateNearest(num_lists=40, num_probes=2), class_scores
    )
    features = features[:rows]
    selector.refresh(class_scores)
    for k in (1, 7, 80):
        ids, scores, totals = tf.function(selector.top_k)(
            class_scores, tf.constant(features), k
        )
        expected = best_in_lists(selector, class_scores, features, k)
        np.testing.assert_array_equal(ids, expected[0])
        np.testing.assert_allclose(scores, expected[1], atol=1e-5)
        np.testing.assert_allclose(totals, expected[2], atol=1e-5)


def test_biases_count():
    # Vectors say next to nothing, and classes differ by their biases.
    rng = np.random.default_rng(0)
    vectors = 0.01 * rng.normal(size=(500, 4))
    biases = -np.log(1 + rng.permutation(500))
    class_scores = scores_of(vectors, biases)
    features = rng.normal(size=(30, 4)).astype("float32")
    selector = built(ApproximateNearest(num_probes=4), class_scores)
    ids = selector.select(class_scores, tf.constant(features))
    assert recall(ids, vectors, features, biases) == 1


def test_biases_and_vectors_count():
    vectors, features, _ = clusters(seed=1)
    biases = -np.log(1 + np.random.default_rng(0).permutation(600))
    class_scores = scores_of(vectors, biases)
    selector = built(ApproximateNearest(num_lists=40), class_scores)
    ids = selector.select(class_scores, tf.constant(features))
    assert recall(ids, vectors, features, biases) > 0.9


def test_lists_follow_the_vectors():
    vectors, features, _ = clusters()
    class_scores = scores_of(np.zeros_like(vectors))
    selector = ApproximateNearest(num_lists=30, refresh_every=3)
    selector = built(selector, class_scores)
    features = tf.constant(features)

    @tf.function
    def step():
        ids = selector.select(class_scores, features)
        selector.after_step(class_scores, None, None)
        return ids

    assert selector.age.numpy() == -1
    for age in (1, 2, 3):
        step()
        assert selector.age.numpy() == age
    before = selector.lists.numpy()
    class_scores.table.assign(vectors)
    # Looking alone does not make it older.
    selector.age.assign(2)
    selector.select(class_scores, features)
    np.testing.assert_array_equal(selector.lists, before)
    step()
    np.testing.assert_array_equal(selector.lists, before)
    ids = step()
    assert (selector.lists.numpy() != before).any()
    check_lists(selector)
    assert selector.age.numpy() == 1
    # Means of what was all alike are no start: it takes a few times.
    for _ in range(6):
        ids = step()
    assert recall(ids, vectors, features.numpy()) > 0.9


def test_refresh():
    vectors, features, _ = clusters()
    class_scores = scores_of(vectors)
    selector = built(ApproximateNearest(num_lists=30), class_scores)
    selector.refresh(class_scores)
    check_lists(selector)
    assert selector.age.numpy() == 0
    lists = selector.lists.numpy()
    # Vectors in another order.
    order = np.random.default_rng(2).permutation(600)
    class_scores.table.assign(vectors[order])
    ids, _, _ = selector.top_k(class_scores, tf.constant(features), 5)
    stale = recall(ids, vectors[order], features)
    selector.refresh(class_scores)
    check_lists(selector)
    assert (selector.lists.numpy() != lists).any()
    ids, _, _ = selector.top_k(class_scores, tf.constant(features), 5)
    assert recall(ids, vectors[order], features) > max(stale, 0.9)


def test_top_k_in_a_graph_has_lists_before_training():
    vectors, features, _ = clusters()
    class_scores = scores_of(vectors)
    selector = built(ApproximateNearest(num_lists=30), class_scores)
    top_k = tf.function(lambda x: selector.top_k(class_scores, x, 5))
    ids, _, _ = top_k(tf.constant(features))
    assert recall(ids, vectors, features) > 0.95
    assert selector.age.numpy() == 0


@pytest.mark.parametrize(
    "num_classes, capacity_factor", [(1, 1), (2, 2.0), (7, 1), (40, 100)]
)
def test_few_classes(num_classes, capacity_factor):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(num_classes, 3))
    features = rng.normal(size=(5, 3)).astype("float32")
    class_scores = scores_of(vectors)
    for num_lists in {None, 1, num_classes}:
        selector = built(
            ApproximateNearest(num_lists, capacity_factor=capacity_factor),
            class_scores,
            num_candidates=1,
        )
        selector.select(class_scores, tf.constant(features))
        check_lists(selector)
        selector = built(
            ApproximateNearest(num_lists, 100, capacity_factor=capacity_factor),
            class_scores,
            num_candidates=1,
        )
        # All lists are opened.
        ids = selector.select(class_scores, tf.constant(features))
        assert recall(ids, vectors, features) == 1


def test_equal_vectors_fill_lists():
    class_scores = scores_of(np.ones((100, 3)))
    selector = ApproximateNearest(num_lists=20, capacity_factor=1)
    selector = built(selector, class_scores)
    selector.select(class_scores, tf.ones((2, 3)))
    check_lists(selector)
    assert (selector.lists.numpy() >= 0).all()


def test_what_is_not_finite_is_not_found():
    vectors, features, _ = clusters()
    vectors[7] = np.nan
    vectors[9] = np.inf
    class_scores = scores_of(vectors)
    selector = built(ApproximateNearest(num_lists=30), class_scores)
    ids, scores, _ = selector.top_k(class_scores, tf.constant(features), 10)
    check_lists(selector)
    there = ids.numpy() >= 0
    assert not np.isnan(scores.numpy()[there]).any()
    assert not (ids.numpy() == 7).any()


def test_features_of_zeros():
    vectors, features, _ = clusters()
    class_scores = scores_of(vectors)
    selector = built(ApproximateNearest(num_lists=30), class_scores)
    selector.select(class_scores, tf.zeros_like(features))
    assert selector.feature_scale.numpy() == 1
    check_lists(selector)


def test_sizes():
    def sizes(num_classes, **arguments):
        selector = ApproximateNearest(**arguments)
        selector.attach(num_classes, 10)
        return (*selector._shape, selector._probes(10), selector._period)

    assert sizes(1_000_000) == (4000, 500, 8, 2000)
    assert sizes(10_000) == (400, 50, 8, 100)
    assert sizes(100) == (12, 17, 8, 100)
    assert sizes(1000, num_lists=500) == (500, 4, 20, 100)
    assert sizes(12, num_lists=3, capacity_factor=9) == (3, 12, 3, 100)
    assert sizes(
        1000,
        num_lists=10,
        num_probes=2,
        refresh_every=7,
        capacity_factor=1.5,
    ) == (10, 150, 2, 7)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(num_lists=0), "`num_lists` must be a positive integer"),
        (dict(num_probes=0.5), "`num_probes` must be a positive integer"),
        (dict(refresh_every=-1), "`refresh_every` must be a positive"),
        (dict(capacity_factor=0.9), "`capacity_factor` must be at least 1"),
        (dict(capacity_factor="a"), "`capacity_factor` must be a positive"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ApproximateNearest(**arguments)


def test_sizes_that_do_not_fit():
    with pytest.raises(ValueError, match="num_lists=11, num_classes=10"):
        ApproximateNearest(num_lists=11).attach(10, 2)
    with pytest.raises(
        ValueError, match="num_probes=2, lists of up to 2.*num_candidates=5"
    ):
        ApproximateNearest(num_lists=10, num_probes=2).attach(10, 5)


def model_and_data(steps_until_refresh=2):
    vectors, features, _ = clusters(num_classes=200, number=20)
    features = features[:48]
    labels = np.argmax(features @ vectors.T, axis=1).astype("int32")
    head = kc.CANESoftmax(
        200,
        ApproximateNearest(refresh_every=steps_until_refresh),
        num_candidates=10,
        num_noises=5,
        seed=0,
    )
    model = keras.Sequential([keras.Input((8,)), head])
    model.compile(keras.optimizers.SGD(1.0), kc.CANELoss())
    return model, features, labels


@pytest.fixture(scope="module")
def trained():
    """A trained model, not to be trained further, and data."""
    model, x, y = model_and_data()
    model.fit(x, y, batch_size=16, epochs=40, verbose=0)
    selector = model.layers[-1].selector
    check_lists(selector)
    assert 0 < selector.age.numpy() <= 2
    assert model.evaluate(x, y, verbose=0) < 1
    selector.refresh(model.layers[-1].scores)
    return model, x, y


def test_a_model_trains_and_comes_back_from_a_file(trained, tmp_path):
    model, x, y = trained
    head = model.layers[-1]
    ids, _ = head.top_k(x, k=3)
    assert (ids.numpy()[:, 0] == y).mean() > 0.9
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].selector.get_config() == (
        head.selector.get_config()
    )
    np.testing.assert_array_equal(loaded.layers[-1].top_k(x, k=3)[0], ids)
    loaded.fit(x, y, batch_size=16, verbose=0)


def test_prediction_goes_to_litert(trained, tmp_path):
    model, x, _ = trained
    top = TopClasses(k=3)(model.outputs[0])
    # Raises where the file does not give what Keras gives.
    export = kc.export.export_litert(
        keras.Model(model.inputs[0], top),
        tmp_path / "model.tflite",
        sample_inputs=x[:3],
        verbose=0,
    )
    assert "TOPK_V2" in export.ops


def test_two_devices_do_as_one(strategy):
    vectors, features, _ = clusters()
    class_scores = types.SimpleNamespace(num_classes=600)
    class_scores.class_vectors = lambda ids: tf.gather(
        tf.constant(vectors, "float32"), ids
    )
    class_scores.class_biases = lambda ids: tf.zeros(tf.shape(ids))
    # So that each device alone would see other features.
    features[25:] *= 100
    with strategy.scope():
        mirrored = ApproximateNearest(num_lists=30, refresh_every=1)
        mirrored.attach(600, 10)
        mirrored.build((None, 8))

    @tf.function
    def step(x):
        ids = mirrored.select(class_scores, x)
        mirrored.after_step(class_scores, None, None)
        return ids

    halves = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(
            np.split(features, 2)[context.replica_id_in_sync_group]
        )
    )
    single = ApproximateNearest(num_lists=30, refresh_every=1)
    single.attach(600, 10)
    single.build((None, 8))
    for _ in range(2):
        parts = strategy.run(step, (halves,))
        ids = np.concatenate(strategy.experimental_local_results(parts))
        expected = single.select(class_scores, tf.constant(features))
        single.after_step(class_scores, None, None)
        np.testing.assert_array_equal(ids, expected)
    for name in ("lists", "means", "variances", "age", "feature_scale"):
        copies = strategy.experimental_local_results(
            getattr(mirrored, name).value
        )
        np.testing.assert_array_equal(*copies)
        np.testing.assert_allclose(
            copies[0], getattr(single, name).numpy(), rtol=1e-5, atol=1e-5
        )
