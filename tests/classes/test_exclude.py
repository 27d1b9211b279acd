"""Best classes and ids without those that were seen."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from tests.support.errors import refused

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(6, 8)).astype("float32")
# Some twice, some padding.
SEEN = RNG.integers(-1, 50, (6, 5)).astype("int32")
SEEN[0] = SEEN[0, 0]


def best(scores, k=4):
    """The reference: ids in order of their scores, without those seen."""
    return [
        [x for x in np.argsort(-own, kind="stable") if x not in seen][:k]
        for own, seen in zip(scores, SEEN, strict=True)
    ]


@pytest.fixture
def head():
    head = kc.CANESoftmax(50, seed=0)
    head(FEATURES)
    return head


@pytest.fixture
def model(head):
    return keras.Sequential([keras.Input((8,)), head])


def check_file(model, scores, tmp_path):
    """Compares a model and its file with the reference."""
    expected = best(scores)
    found = model.predict([FEATURES, SEEN], verbose=0)["ids"]
    np.testing.assert_array_equal(found, expected)
    path = tmp_path / "top.tflite"
    kc.export_litert(model, path, quantize=None, verbose=0)
    run = kc.export.LiteRTModel(path)
    found = run({"inputs": FEATURES, "exclude": SEEN})["ids"]
    np.testing.assert_array_equal(found, expected)


def test_seen_classes_are_left_out(head, model, tmp_path):
    scores = head.probabilities(FEATURES).numpy()
    ids, probabilities = head.top_k(FEATURES, 4, exclude=SEEN)
    np.testing.assert_array_equal(ids, best(scores))
    kept = np.take_along_axis(scores, ids.numpy(), axis=1)
    np.testing.assert_allclose(probabilities, kept, rtol=1e-5)
    check_file(kc.top_k_model(model, 4, num_excluded=5), scores, tmp_path)


def test_seen_ids_are_left_out(tmp_path):
    codes = kc.CodeEmbedding(50, 8, num_codebooks=4)
    inputs = keras.Input((8,))
    model = keras.Model(inputs, codes(inputs, reverse=True))
    scores = model.predict(FEATURES, verbose=0)
    _, ids = codes.top_k(FEATURES, 4, exclude=SEEN)
    np.testing.assert_array_equal(ids, best(scores))
    check_file(kc.top_k_model(model, 4, num_excluded=5), scores, tmp_path)


def test_metrics_rank_without_seen_classes(head):
    scores = head.probabilities(FEATURES).numpy()
    labels = RNG.integers(0, 50, (6, 3)).astype("int32")
    recall, gain = kc.RecallAtK(k=20), kc.NDCGAtK(k=20)
    for metric in (recall, gain):
        metric.update_state(labels, head(FEATURES), exclude=SEEN)
    recalls, gains = [], []
    for own, found in zip(labels, best(scores, 20), strict=True):
        own = set(own)
        hits = [x in own for x in found]
        recalls.append(sum(hits) / len(own))
        discounts = 1 / np.log2(np.arange(2, 22))
        gains.append(hits @ discounts / discounts[: len(own)].sum())
    np.testing.assert_allclose(recall.result(), np.mean(recalls), rtol=1e-6)
    np.testing.assert_allclose(gain.result(), np.mean(gains), rtol=1e-6)
    gain.reset_state()
    unknown = np.where(SEEN == -1, 50, SEEN)
    gain.update_state(labels, head(FEATURES), exclude=unknown)
    np.testing.assert_allclose(gain.result(), np.mean(gains), rtol=1e-6)
    plain = kc.NDCGAtK(k=20)
    plain.update_state(labels, head(FEATURES))
    assert plain.result() < gain.result()


def test_wrong_lists_are_refused(head, model):
    ragged = tf.ragged.constant([[1, 2]] * 6)
    texts = np.full((6, 2), "a")
    for wrong in (SEEN[0], np.zeros((6, 47), "int32"), SEEN[:2], ragged, texts):
        with refused("exclude"):
            head.top_k(FEATURES, 4, exclude=wrong)
    outputs, metric = head(FEATURES), kc.RecallAtK(k=5)
    for wrong in (SEEN[0], SEEN[:2], ragged, texts):
        with refused("exclude"):
            metric.update_state([1] * 6, outputs, exclude=wrong)
    with refused("num_excluded", 47):
        kc.top_k_model(model, 4, num_excluded=47)
    with refused("k", None):
        kc.top_k_model(model, None, num_excluded=2)
