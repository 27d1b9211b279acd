import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.candidates import ApproximateNearest
from keras_compembed.candidates import BeamTree
from keras_compembed.candidates import FrequentClasses
from keras_compembed.candidates import fit_search
from keras_compembed.candidates import recall_bounds

CLASSES = 400
WIDTH = 8


def clusters(seed=0):
    """Vectors near one of some centres, and features near vectors."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(20, WIDTH))
    vectors = centres[rng.integers(20, size=CLASSES)]
    vectors = vectors + 0.3 * rng.normal(size=vectors.shape)
    features = vectors[rng.integers(CLASSES, size=300)]
    features = features + 0.2 * rng.normal(size=features.shape)
    return vectors.astype("float32"), features.astype("float32")


def make_model(selector=None, **kwargs):
    """A model of one layer, with vectors in clusters, and features."""
    vectors, features = clusters()
    if selector is None:
        selector = FrequentClasses(np.arange(CLASSES, 0, -1))
    head = kc.CANESoftmax(CLASSES, selector, seed=0, **kwargs)
    inputs = keras.Input((WIDTH,))
    model = keras.Model(inputs, head(inputs))
    if head.kernel is not None:
        head.kernel.assign(vectors)
    rng = np.random.default_rng(1)
    if head.bias is not None:
        head.bias.assign(rng.normal(size=CLASSES))
    if head.nodes is not None:
        head.nodes.assign(rng.normal(size=head.nodes.shape))
        head.node_bias.assign(rng.normal(size=head.node_bias.shape))
    return model, features


def all_scores(head, features):
    ids = np.arange(CLASSES)
    vectors = head.scores.class_vectors(ids).numpy()
    return features @ vectors.T + head.scores.class_biases(ids).numpy()


def plain_recall(head, features, k, probes):
    """Share of the best classes that are in the lists that are opened."""
    selector = head.selector
    lists, means = selector.lists.numpy(), selector.means.numpy()
    of_vectors, of_biases = selector.variances.numpy().T
    scores = all_scores(head, features)
    hits = 0
    for x, row in zip(features, scores, strict=True):
        reach = means[:, :-1] @ x + means[:, -1]
        deviations = np.sqrt(2 * np.log(lists.shape[1]))
        reach += deviations * np.sqrt(x @ x * of_vectors + of_biases)
        reach[lists[:, 0] < 0] = -np.inf
        opened = lists[np.argsort(-reach)[:probes]]
        hits += np.isin(np.argsort(-row)[:k], opened).sum()
    return hits / (k * len(features))


def plain_share_to_find(target, rows):
    """Least share on a grid whose chance at `target` is at most 5 %."""
    shares = np.linspace(target, 1, 200_001)
    parts = [(shares, target), (1 - shares, 1 - target)]
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = -rows * sum(
            np.where(part > 0, part * np.log(part / expected), 0)
            for part, expected in parts
        )
    return shares[np.argmax(chance <= np.log(0.05))] if target < 1 else 1.0


@pytest.mark.parametrize("target", [0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("rows", [300, 3000])
def test_share_to_find_is_seldom_found_below_the_target(target, rows):
    needed = recall_bounds.share_to_find(target, rows)
    assert target < needed <= 1
    assert recall_bounds.stated_recall(needed, rows) == pytest.approx(target)
    # Exactly: rows that are found with a chance just below the target.
    logs = np.concatenate([[0], np.cumsum(np.log(np.arange(1, rows + 1)))])
    hits = np.arange(rows + 1)
    log_chances = logs[-1] - logs - logs[::-1]
    log_chances += hits * np.log(target) + (rows - hits) * np.log(1 - target)
    passes = hits >= np.ceil(needed * rows - 1e-9)
    assert 1e-4 < np.exp(log_chances[passes]).sum() <= 0.05


def test_few_features_show_less_than_all_of_them_found():
    assert recall_bounds.share_to_find(0.99, 100) == 1
    stated = recall_bounds.stated_recall(1.0, 100)
    assert stated == pytest.approx(0.05 ** (1 / 100))


@pytest.mark.parametrize("k", [1, 5])
def test_recall_on_other_features(k):
    model, features = make_model()
    rng = np.random.default_rng(3)
    # More features of the same kind.
    other = features[rng.integers(300, size=3000)]
    other = other + 0.2 * rng.normal(size=other.shape).astype("float32")
    for start in range(0, 2000, 400):
        given = other[start : start + 400]
        searched = fit_search(
            model.layers[-1], given, 0.9, k, num_lists=40, verbose=0
        )
        probes = searched.selector.num_probes
        assert probes < 40
        assert plain_recall(searched, other[2000:], k, probes) >= 0.9


@pytest.mark.parametrize(("k", "target"), [(1, 0.8), (1, 1.0), (5, 0.97)])
def test_fewest_lists_that_reach_the_recall(k, target, capsys):
    model, features = make_model()
    head = model.layers[-1]
    before = [np.array(w) for w in head.get_weights()]
    searched = fit_search(head, features, target, k, num_lists=40)
    probes = searched.selector.num_probes
    recall = plain_recall(searched, features, k, probes)
    needed = plain_share_to_find(target, len(features))
    assert recall >= needed >= target
    assert plain_recall(searched, features, k, probes - 1) < needed
    assert 1 < probes < 40
    found = searched.top_k(features, k)[0].numpy()
    best = np.argsort(-all_scores(head, features), axis=1)[:, :k]
    hits = (found[:, :, None] == best[:, None]).any(axis=1).mean()
    assert hits == pytest.approx(recall, abs=1e-9)
    out = capsys.readouterr().out
    assert out.startswith(
        f"{probes} of 40 lists of 10 classes: recall {recall:.4f}, "
        "on other features above 0."
    )
    assert target == 1 or float(out.split("above ")[1][:6]) >= target
    # What it was made from is as before, and the vectors are the same.
    for old, new in zip(before, head.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    np.testing.assert_array_equal(searched.kernel, head.kernel)
    np.testing.assert_array_equal(searched.bias, head.bias)


def heads():
    rng = np.random.default_rng(2)
    table = kc.ANTEmbedding(CLASSES, WIDTH, 16)
    table.build((None,))
    table.set_weights([rng.normal(size=w.shape) for w in table.get_weights()])
    tree = kc.trees.ClassTree.random(CLASSES, branching=5, seed=0)
    return {
        "without biases": {"use_bias": False},
        "learned noise": {"noise": "learned"},
        "tree": {"selector": BeamTree(tree)},
        "embedding": {"class_embedding": table},
    }


@pytest.mark.parametrize("kind", heads())
def test_scores_stay_what_they_are(kind):
    model, features = make_model(**heads()[kind])
    head = model.layers[-1]
    searched = fit_search(head, features, 1.0, k=3, verbose=0)
    assert isinstance(searched.selector, ApproximateNearest)
    scores = all_scores(head, features)
    np.testing.assert_allclose(
        all_scores(searched, features), scores, atol=1e-4
    )
    ids = searched.top_k(features, 3)[0].numpy()
    found = np.take_along_axis(scores, ids, axis=1)
    best = -np.sort(-scores, axis=1)[:, :3]
    np.testing.assert_allclose(found, best, atol=1e-4)


def test_few_classes():
    vectors, features = clusters()
    head = kc.CANESoftmax(6, FrequentClasses(np.ones(6)), 1, 2)
    head.build((None, WIDTH))
    head.kernel.assign(vectors[:6])
    searched = fit_search(head, features, 1.0, verbose=0)
    np.testing.assert_array_equal(
        searched.top_k(features, 2)[0], head.top_k(features, 2)[0]
    )


def test_of_a_layer_that_scored_all_classes():
    model, features = make_model(kc.candidates.AllClasses())
    head = model.layers[-1]
    searched = fit_search(head, features, 0.9, num_lists=40, verbose=0)
    assert searched.num_candidates == 10 and searched.selector.num_probes < 40


def test_mixed_precision_and_devices(strategy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        with strategy.scope():
            model, features = make_model()
            model.compile("sgd", loss=kc.CANELoss())
        model.fit(features, np.arange(300), batch_size=100, verbose=0)
        head = model.layers[-1]
        given = model.predict(features, verbose=0)
        searched = fit_search(head, given, 0.9, num_lists=40, verbose=0)
        best = np.argmax(all_scores(head, given.astype("float32")), axis=1)
        ids = searched.top_k(given, 1)[0].numpy()[:, 0]
        assert np.mean(ids == best) >= 0.9
    finally:
        keras.config.set_dtype_policy(before)


def test_saved_exported_and_trained_on(tmp_path):
    model, features = make_model()
    head = model.layers[-1]
    searched = fit_search(head, features, 0.95, k=3, num_lists=40, verbose=0)
    model = keras.Model(model.input, searched(head.input))
    predictor = kc.top_k_model(model, 3)
    ids = predictor.predict(features, verbose=0)["ids"]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert (
        loaded.layers[-1].selector.get_config()
        == searched.selector.get_config()
    )
    again = kc.top_k_model(loaded, 3).predict(features, verbose=0)
    np.testing.assert_array_equal(again["ids"], ids)
    # Raises where the file does not give what Keras gives.
    export = kc.export.export_litert(
        loaded, tmp_path / "model.tflite", top_k=3, verbose=0
    )
    assert not any("CUSTOM" in op or "FLEX" in op.upper() for op in export.ops)
    litert = kc.export.LiteRTModel(tmp_path / "model.tflite")
    np.testing.assert_array_equal(litert(features)["ids"], ids)
    loaded.compile("sgd", loss=kc.CANELoss())
    loaded.fit(features, ids[:, 0], verbose=0)


def test_more_classes_than_lists_hold_are_padded():
    model, features = make_model(num_candidates=1)
    head = model.layers[-1]
    searched = fit_search(head, features, 0.2, num_lists=100, verbose=0)
    ids = searched.top_k(features, 100)[0].numpy()
    assert (ids[:, -1] == -1).all() and (ids[:, 0] >= 0).all()


def test_leading_axes_and_vectors_that_are_not_finite():
    model, features = make_model()
    head = model.layers[-1]
    vectors = head.kernel.numpy()
    vectors[7] = np.nan
    head.kernel.assign(vectors)
    features = features.reshape(20, 15, WIDTH)
    searched = fit_search(head, features, 0.9, CLASSES, verbose=0)
    assert 7 not in searched.top_k(features[0, :3], 10)[0].numpy()


def test_bad_input():
    model, features = make_model()
    head = model.layers[-1]
    for given, message in [
        ({"head": keras.layers.Dense(3)}, "`head` must be a `CANESoftmax`"),
        ({"head": kc.CANESoftmax(CLASSES)}, "`head` must be built"),
        ({"features": features[:, :3]}, r"\(\.\.\., 8\).*\(300, 3\)"),
        ({"features": features[:0]}, "at least one example"),
        ({"features": features * np.nan}, "`features` must be finite"),
        ({"target_recall": 1.5}, "`target_recall` must be above 0"),
        ({"target_recall": 0}, "`target_recall` must be"),
        ({"k": 0}, "`k` must be"),
        ({"k": CLASSES + 1}, "`k` must be"),
        ({"num_lists": CLASSES + 1}, "`num_lists` must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            fit_search(**{"head": head, "features": features, **given})
