"""Examples with several labels: losses, metrics, what is refused."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from beam_heads import score_all_classes as all_scores
from class_models import cane
from errors import refused

import keras_compembed as kc

CLASSES, WIDTH, ROWS = 30, 4, 24
INVALID = tf.errors.InvalidArgumentError


NUMBERS = {"num_candidates": 5, "num_noises": 4}


def make_head():
    return cane(CLASSES, WIDTH, 0, **NUMBERS)


def make_model(head=None, **kwargs):
    model = keras.Sequential([keras.Input((WIDTH,)), head or make_head()])
    metrics = [kc.ClassAccuracy(), kc.RecallAtK(k=3)]
    kwargs = {"loss": kc.CANELoss(), "metrics": metrics, **kwargs}
    model.compile("sgd", **kwargs)
    return model


def make_examples():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(ROWS, WIDTH)).astype("float32")
    lists = np.full((ROWS, 6), -1)
    for row in lists:
        number = rng.integers(1, 6)
        row[:number] = rng.choice(CLASSES, number, replace=False)
        rng.shuffle(row)
    return features, lists


def multi_hot(lists):
    y = np.zeros((len(lists), CLASSES))
    for row, labels in zip(y, lists, strict=True):
        row[labels[labels >= 0]] = 1
    return y


def categorical(scores, lists):
    y = multi_hot(lists)
    return keras.losses.CategoricalCrossentropy(from_logits=True)(
        y / y.sum(axis=1, keepdims=True), scores
    )


def reference(name, scores, lists, k):
    """Means over examples, from sorted scores."""
    values = []
    for row, labels in zip(scores, lists, strict=True):
        best = np.argsort(-row, kind="stable")[:k]
        wanted = set(labels[labels >= 0])
        hits = np.array([float(each in wanted) for each in best])
        gains = 1 / np.log2(np.arange(len(best)) + 2)
        values.append(
            {
                "precision": hits.sum() / k,
                "recall": hits.sum() / len(wanted),
                "ndcg": (hits * gains).sum() / gains[: len(wanted)].sum(),
            }[name]
        )
    return np.mean(values)


METRICS = {
    "precision": kc.PrecisionAtK,
    "recall": kc.RecallAtK,
    "ndcg": kc.NDCGAtK,
}


class CountsRanks(kc.CANESoftmax):
    """Counts how often all classes are ranked."""

    ranked = 0

    def exact(self, features, labels):
        self.ranked += 1
        return super().exact(features, labels)


@pytest.mark.parametrize("kwargs", [{"run_eagerly": True}, {}])
def test_training_steps_rank_no_classes(kwargs):
    """Unless a metric is asked to."""
    head = CountsRanks(CLASSES, sampling=kc.Sampling(**NUMBERS), seed=1)
    counts = np.arange(1, CLASSES + 1)
    metrics = [kc.NDCGAtK(3), kc.PropensityScoredPrecisionAtK(counts, 500, 3)]
    model = make_model(head, metrics=metrics, **kwargs)
    x, y = make_examples()
    known = model.fit(
        x, y, batch_size=8, epochs=2, verbose=0, validation_data=(x, y)
    ).history
    result = model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
    for metric in metrics:
        assert np.isnan(known[metric.name]).all()
        value = result[metric.name]
        assert 0 < known[f"val_{metric.name}"][1] == value < 1
    ranked = head.ranked
    model.fit(x, y, batch_size=8, verbose=0)
    assert head.ranked == ranked
    metric = kc.NDCGAtK.from_config(kc.NDCGAtK(in_training=True).get_config())
    model = make_model(metrics=[metric], run_eagerly=True)
    assert 0 < model.fit(x, y, verbose=0).history[metric.name][0] < 1


@pytest.mark.parametrize("k", [3, CLASSES])
@pytest.mark.parametrize("name", METRICS)
def test_metrics_are_those_of_all_scores(name, k):
    head = make_head()
    features, lists = make_examples()
    ours = METRICS[name](k=k)
    ours.update_state(lists, head(features))
    scores = all_scores(head, features)
    np.testing.assert_allclose(
        ours.result(), reference(name, scores, lists, k), rtol=1e-5
    )
    assert ours.name == f"{name}_at_{k}"
    again = type(ours).from_config(ours.get_config())
    assert again.k == k
    # Of one label each.
    labels = lists.max(axis=1)
    again.update_state(labels, head(features))
    expected = reference(name, scores, labels[:, None], k)
    np.testing.assert_allclose(again.result(), expected, rtol=1e-5)


def plain_propensity_scored_precision(scores, lists, counts, k, weights=None):
    """As in the extreme classification repository: a ratio of two sums."""
    c = (np.log(500) - 1) * 3.6**0.6
    inverse = 1 + c / (counts + 2.6) ** 0.6
    found = best = 0.0
    for place, (row, labels) in enumerate(zip(scores, lists, strict=True)):
        weight = 1.0 if weights is None else weights[place]
        labels = labels[labels >= 0]
        hits = np.intersect1d(np.argsort(-row, kind="stable")[:k], labels)
        found += weight * inverse[hits].sum()
        best += weight * np.sort(inverse[labels])[::-1][:k].sum()
    return found / best


@pytest.mark.parametrize("k", [3, CLASSES])
def test_propensity_scored_precision(k):
    head = make_head()
    features, lists = make_examples()
    scores = all_scores(head, features)
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 100, size=CLASSES)
    metric = kc.PropensityScoredPrecisionAtK(
        counts, 500, k, a=0.6, b=2.6, ignore_class=-1
    )
    metric = type(metric).from_config(metric.get_config())

    def check(lists, weights=None):
        expected = plain_propensity_scored_precision(
            scores, lists, counts, k, weights
        )
        np.testing.assert_allclose(metric.result(), expected, rtol=1e-5)
        metric.reset_state()

    # Two batches are one.
    for part in (slice(0, 10), slice(10, None)):
        metric.update_state(lists[part], head(features[part]))
    check(lists)
    lists[::3] = -1
    weights = rng.uniform(size=ROWS)
    metric.update_state(
        lists.reshape(4, 6, 6),
        head(features.reshape(4, 6, WIDTH)),
        sample_weight=weights.reshape(4, 6),
    )
    check(lists, weights)


def test_wrong_arguments():
    known = {"class_counts": np.ones(CLASSES), "num_examples": 500}
    for name, value in (("num_examples", 2), ("a", 0), ("b", -1), ("k", 0)):
        with refused(name, value):
            kc.PropensityScoredPrecisionAtK(**{**known, name: value})
    metric = kc.PropensityScoredPrecisionAtK(np.ones(3), 500)
    with refused(received=3):
        metric.update_state([1, 2], make_head()(np.ones((2, WIDTH))))
    for make in METRICS.values():
        with refused("k", 1.5):
            make(k=1.5)


LOSSES = {
    "cane": kc.CANELoss,
    "sampled": kc.SampledSoftmaxLoss,
    "nce": kc.NCELoss,
    "batch": kc.InBatchSoftmaxLoss,
}


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        *((name, 1) for name in LOSSES),
        pytest.param("cane", 2, marks=pytest.mark.slow),
    ],
)
def test_every_loss_learns_all_labels_of_lists(name, devices, strategy):
    with strategy.scope() if devices > 1 else contextlib.nullcontext():
        numbers = {"num_candidates": 2, "num_noises": 5, "shared": True}
        counts = np.ones(12)
        head = cane(12, class_counts=counts, noise="uniform", **numbers)
        model = keras.Sequential([keras.Input((2,)), head])
        model.compile(
            keras.optimizers.Adam(0.05), LOSSES[name](), jit_compile=False
        )
    features = np.tile(np.eye(2, dtype="float32"), (256, 1))
    lists = np.tile([[5, -1, 2, 7], [3, 9, -1, -1]], (256, 1))
    model.fit(features, lists, batch_size=32, epochs=8, verbose=0)
    best = np.argsort(-all_scores(head, np.eye(2)), axis=1)
    assert set(best[0, :3]) == {2, 5, 7} and set(best[1, :2]) == {3, 9}


@pytest.mark.parametrize(
    "lists",
    [[[3, 7], [-1, -1]], [[3, 7], [1, CLASSES]], [[3.0, 7.0], [1.0, 2.5]]],
)
def test_lists_without_a_label_or_out_of_range_are_refused(lists):
    features, _ = make_examples()
    with pytest.raises(INVALID, match="Lists must"):
        kc.CANELoss()(tf.constant(lists), make_head()(features[:2]))


def test_one_hot_labels_are_refused():
    features, lists = make_examples()
    one_hot, head = multi_hot(lists).astype("int64"), make_head()
    with pytest.raises(ValueError, match="argmax"):
        kc.CANELoss()(one_hot, head(features))
    # Nor where one label came before, and no rank is known.
    model = make_model(head, metrics=[])
    model.evaluate(features, lists.max(axis=1), verbose=0)
    with pytest.raises(INVALID, match="argmax"):
        model.evaluate(features, one_hot, verbose=0)


# Keras traces one function for labels of both ranks, and then knows no rank.
@pytest.mark.parametrize("batch_size", [1, 8])
def test_one_label_and_then_lists(batch_size):
    features, lists = make_examples()
    full = np.stack([lists.max(axis=1) - shift for shift in range(3)], axis=1)
    full %= CLASSES
    kinds = {"one": full[:, 0], "full": full, "padded": lists}
    model = make_model()
    scores = all_scores(model.layers[-1], features)
    for kind in ("one", "full", "padded", "one", "padded"):
        labels = kinds[kind].reshape(ROWS, -1)
        right = (
            categorical(scores, labels),
            reference("precision", scores, labels, 1),
            reference("recall", scores, labels, 3),
        )
        found = model.evaluate(
            features, kinds[kind], batch_size=batch_size, verbose=0
        )
        np.testing.assert_allclose(found, right, rtol=1e-5, err_msg=kind)
    for kind in ("one", "padded", "full", "one"):
        history = model.fit(
            features, kinds[kind], batch_size=batch_size, verbose=0
        )
        assert np.isfinite(history.history["loss"]).all()
