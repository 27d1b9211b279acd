import json

import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.candidates import FrequentClasses

COUNTS = np.array([3, 9, 0, 9, 4, 0.5, 1e9, 0, 2, 1])


def make(num_candidates=4, **kwargs):
    selector = FrequentClasses(COUNTS, **kwargs)
    return selector, kc.CANESoftmax(
        10,
        selector,
        num_candidates,
        2,
        noise=kc.noises.UnigramNoise(COUNTS),
        share_noises=True,
    )


@pytest.mark.parametrize("num_candidates", [1, 4, 7])
def test_candidates(num_candidates):
    selector, head = make(num_candidates)
    head.build((None, 3))
    ids = selector.select(head.scores, np.zeros((5, 3), "float32"))
    assert ids.dtype == "int32"
    # Of classes as frequent as each other, the first.
    np.testing.assert_array_equal(ids, [6, 1, 3, 4, 0, 8, 9][:num_candidates])


def test_all_classes():
    with pytest.warns(UserWarning, match="trains a full softmax"):
        selector, head = make(10)
    head.build((None, 3))
    assert sorted(selector.classes.numpy()) == list(range(10))


def test_trains_and_is_saved(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 6)).astype("float32")
    y = rng.integers(10, size=64)
    _, head = make()
    model = keras.Sequential([keras.Input((6,)), head])
    model.compile("sgd", kc.CANELoss(), metrics=[kc.Coverage()])
    model.fit(x, y, verbose=0)
    result = model.evaluate(x, y, verbose=0, return_dict=True)
    hit = np.isin(y, head.selector.classes.numpy())
    assert result["coverage"] == pytest.approx(hit.mean())
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.saving.load_model(path)
    for a, b in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    for got, right in zip(
        again.layers[-1].top_k(x), head.top_k(x), strict=True
    ):
        np.testing.assert_array_equal(got, right)
    again.fit(x, y, verbose=0)


def test_config():
    selector, _ = make(name="words")
    config = json.loads(json.dumps(selector.get_config()))
    again = FrequentClasses.from_config(config)
    assert again.get_config() == config
    assert again.name == "words"


@pytest.mark.parametrize("counts", [[], [1, -1], [1, np.inf], [[1, 2]], "ab"])
def test_counts(counts):
    with pytest.raises(ValueError, match="`counts` must"):
        FrequentClasses(counts)


def test_other_numbers_of_classes():
    with pytest.raises(ValueError, match="num_classes=40. Received: 10 of"):
        kc.CANESoftmax(40, FrequentClasses(COUNTS))
