import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from beam_heads import score_all_classes as all_scores
from class_models import cane
from errors import refused

import keras_compembed as kc
from keras_compembed.classes import ClassTree

CLASSES, WIDTH = 40, 5
METRICS = {
    "accuracy": lambda **kwargs: kc.ClassAccuracy(**kwargs),
    "top_5_accuracy": lambda **kwargs: kc.ClassAccuracy(k=5, **kwargs),
    "coverage": lambda **kwargs: kc.Coverage(**kwargs),
    "perplexity": lambda **kwargs: kc.Perplexity(**kwargs),
}


def make_metrics():
    return [make() for make in METRICS.values()]


def make_head(num_candidates=6, num_noises=4, **kwargs):
    tree = ClassTree.random(CLASSES, branching=4, seed=0)
    selector = kc.classes.BeamTree(tree, max_frontier=4)
    numbers = {"num_candidates": num_candidates, "num_noises": num_noises}
    return cane(CLASSES, WIDTH, 0, selector=selector, **numbers, **kwargs)


def make_model(run_eagerly=True, **kwargs):
    # Small numbers that training hardly changes.
    model = keras.Sequential([keras.Input((WIDTH,)), make_head(**kwargs)])
    model.compile(
        keras.optimizers.SGD(1e-9),
        kc.CANELoss(),
        metrics=make_metrics(),
        run_eagerly=run_eagerly,
        jit_compile=False,
    )
    return model


def examples(rows=100):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, WIDTH)).astype("float32")
    return x, rng.integers(CLASSES, size=rows)


def candidates_of(head, features):
    return head.selector.select(head.scores, tf.constant(features)).numpy()


def expected(head, features, labels, weights=None):
    """What the metrics are over rows."""
    scores = all_scores(head, features)
    own = np.take_along_axis(scores, labels[:, None], axis=1)
    ranks = (scores > own).sum(axis=1)
    losses = np.log(np.exp(scores).sum(axis=1)) - own[:, 0]
    hit = (candidates_of(head, features) == labels[:, None]).any(axis=1)

    def mean(values):
        return np.average(values, weights=weights)

    return {
        "accuracy": mean(ranks < 1),
        "top_5_accuracy": mean(ranks < 5),
        "coverage": mean(hit),
        "perplexity": np.exp(mean(losses)),
        "loss": mean(losses),
    }


def check(result, right):
    assert set(result) == set(right)
    for name, value in right.items():
        assert result[name] == pytest.approx(value, rel=1e-4), name


def test_evaluate_and_files(tmp_path):
    model = make_model()
    x, y = examples()
    # Labels that the model often names, so that nothing is zero.
    y[:60] = all_scores(model.layers[-1], x[:60]).argmax(axis=1)
    right = expected(model.layers[-1], x, y)
    assert 0.5 < right["accuracy"] < right["top_5_accuracy"] < 1
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for each, labels in ((model, y), (model, y[:, None]), (again, y)):
        result = each.evaluate(
            x, labels, batch_size=33, verbose=0, return_dict=True
        )
        check(result, right)


@pytest.mark.parametrize("weighted", [False, True])
def test_masked_steps_do_not_count(weighted):
    inputs = keras.Input((None,), dtype="int32")
    start = keras.initializers.RandomNormal(seed=0)
    table = keras.layers.Embedding(20, WIDTH, start, mask_zero=True)
    model = keras.Model(inputs, make_head()(table(inputs)))
    kwargs = {"weighted_metrics" if weighted else "metrics": make_metrics()}
    # In a graph once.
    model.compile("sgd", kc.CANELoss(), run_eagerly=weighted, **kwargs)
    rng = np.random.default_rng(3)
    ids = rng.integers(20, size=(12, 7))
    ids[:, 4:] *= rng.integers(2, size=(12, 3))
    labels = rng.integers(CLASSES, size=(12, 7))
    # Of what is masked, even labels that do not exist are ignored.
    labels[ids == 0] = -7
    weights = rng.random((12, 7)) if weighted else None
    mask = ids != 0
    assert 0 < mask.mean() < 1
    features = model.layers[1](ids).numpy()[mask]
    kept = None if weights is None else weights[mask]
    right = expected(model.layers[-1], features, labels[mask], kept)
    if weighted:
        # Masks weigh by the share of what they leave.
        right["loss"] *= kept.mean()
    result = model.evaluate(
        ids, labels, 12, 0, sample_weight=weights, return_dict=True
    )
    check(result, right)
    trained = model.fit(ids, labels, verbose=0, sample_weight=weights).history
    assert np.isfinite([value[0] for value in trained.values()]).all()


def test_training():
    """Metrics are of the classes drawn, and of one draw, the loss's."""
    model = make_model()
    head = model.layers[-1]
    x, y = examples()
    right = expected(head, x, y)
    # Draws go by the place of a row in its batch.
    fit = model.fit(x, y, batch_size=100, shuffle=False, verbose=0)
    history = fit.history
    result = {name: value[0] for name, value in history.items()}
    assert result["coverage"] == pytest.approx(right["coverage"])
    # Another draw would give another loss.
    assert result["loss"] != pytest.approx(right["loss"], rel=1e-4)
    assert result["perplexity"] == pytest.approx(
        np.exp(result["loss"]), rel=1e-5
    )
    candidates = candidates_of(head, x)
    scores = all_scores(head, x)
    own = scores[np.arange(100), y]
    others = np.take_along_axis(scores, candidates, axis=1)
    best = (candidates == y[:, None]).any(axis=1)
    best &= others.max(axis=1) <= own + 1e-4
    assert 0 < best.sum()
    assert result["accuracy"] == pytest.approx(best.mean())
    assert result["top_5_accuracy"] == result["accuracy"]


def output(head, features, training=False):
    return head(tf.constant(features), training=training)


@pytest.mark.parametrize("name", METRICS)
def test_ignored_labels_do_not_count(name):
    head, (x, y) = make_head(), examples()
    metric = METRICS[name](ignore_class=-1)
    metric.update_state(np.where(np.arange(100) < 9, y, -1), output(head, x))
    right = expected(head, x[:9], y[:9])[name]
    assert float(metric.result()) == pytest.approx(right, rel=1e-4)


@pytest.mark.parametrize("name", ["top_5_accuracy", "coverage"])
def test_labels_out_of_range_are_wrong(name):
    head = make_head()
    x, _ = examples(4)
    # Class 0 is what labels out of range are looked up as.
    head.bias.assign(100.0 * (np.arange(CLASSES) == 0))
    metric = METRICS[name]()
    metric.update_state([0, 0, -1, CLASSES], output(head, x))
    assert metric.result() == 0.5


@pytest.mark.parametrize("training", [False, True])
def test_nan_is_not_accurate(training):
    head = make_head()
    x, y = examples(4)
    x[:, 0] = np.nan
    for name in ("accuracy", "top_5_accuracy"):
        metric = METRICS[name]()
        metric.update_state(y, output(head, x, training))
        assert metric.result() == 0
    metric = kc.Perplexity()
    metric.update_state(y, output(head, x, training))
    assert np.isnan(metric.result())


@pytest.mark.parametrize("name", METRICS)
def test_other_tensors(name):
    metric = METRICS[name]()
    features = output(make_head(), np.zeros((3, WIDTH), "float32"))
    for tensor in (tf.zeros((3, WIDTH)), 2 * features):
        with refused(type(metric).__name__):
            metric.update_state(np.zeros(3), tensor)
    with refused(received=(3, CLASSES)):
        metric.update_state(np.zeros((3, CLASSES)), features)


@pytest.mark.parametrize("name", METRICS)
def test_config(name):
    metric = METRICS[name](ignore_class=3, name="other")
    config = json.loads(json.dumps(keras.metrics.serialize(metric)))
    restored = keras.metrics.deserialize(config)
    assert type(restored) is type(metric)
    assert restored.get_config() == metric.get_config()
    assert (restored.name, restored.ignore_class) == ("other", 3)
    for k in (0, -1, 1.5):
        with refused("k", k):
            kc.ClassAccuracy(k)


def test_weights_count_in_weighted_metrics_only():
    model = make_model()
    x, y = examples()
    weights = np.random.default_rng(2).random(100)
    weights[:10] = 0
    head = model.layers[-1]
    plain = expected(head, x, y)
    right = expected(head, x, y, weights)
    # Keras divides the sum of weighted losses by the number of examples.
    loss = right["loss"] * weights.mean()
    result = model.evaluate(x, y, 100, 0, weights, return_dict=True)
    check(result, {**plain, "loss": loss})
    model.compile(
        "sgd",
        kc.CANELoss(),
        weighted_metrics=make_metrics(),
        run_eagerly=True,
    )
    result = model.evaluate(x, y, 100, 0, weights, return_dict=True)
    check(result, {**right, "loss": loss})
