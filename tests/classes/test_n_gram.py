import collections
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused

import keras_compembed as kc
from keras_compembed.classes import NGram

TABLE = [[4, 1, 0], [2, -1, -1]]


def built(selector, num_classes=5, num_candidates=3):
    selector.attach(num_classes, num_candidates)
    selector.build((None, 2))
    return selector


def select(selector, context):
    head = types.SimpleNamespace(num_classes=selector.num_classes)
    rows = 1 if context is None else len(context)
    if context is not None:
        context = tf.constant(context)
    return selector.select(head, tf.zeros((rows, 2)), context).numpy()


def plain_table(sequences, num_classes, number):
    """Rows of what follows each class, and the most frequent classes."""
    frequent = collections.Counter()
    followers = collections.defaultdict(collections.Counter)
    for sequence in sequences:
        frequent.update(i for i in sequence if i >= 0)
        for one, other in zip(sequence, sequence[1:], strict=False):
            if one >= 0 and other >= 0:
                followers[one][other] += 1

    def ranked(counts):
        return sorted(counts, key=lambda i: (-counts[i], i))

    every = ranked({c: frequent[c] for c in range(num_classes)})
    rows = []
    for c in range(num_classes):
        first = ranked(followers[c])[:number]
        rest = [i for i in every[:number] if i not in first]
        rows.append((first + rest)[:number])
    return rows, every[:number]


def test_by_hand():
    selector = built(NGram(TABLE, fallback=[3, 2, 1]))
    np.testing.assert_array_equal(
        select(selector, [1, 0, -1, 2, 99]),
        [[2, -1, -1], [4, 1, 0], [3, 2, 1], [3, 2, 1], [3, 2, 1]],
    )
    np.testing.assert_array_equal(select(selector, None), [3, 2, 1])
    selector = built(NGram(np.asarray(TABLE, "int64")), num_candidates=2)
    np.testing.assert_array_equal(select(selector, [0, -1]), [[4, 1], [-1, -1]])


@pytest.mark.parametrize("num_classes", [3, 20, 60])
@pytest.mark.parametrize("number", [1, 4, 100])
def test_text_as_counted_one_by_one(num_classes, number):
    rng = np.random.default_rng(num_classes)
    text = np.minimum(rng.zipf(1.4, size=(8, 30)) - 1, num_classes - 1)
    text[rng.random(text.shape) < 0.1] = -1
    number = min(number, num_classes)
    rows, frequent = plain_table(text.tolist(), num_classes, number)
    selector = NGram.from_text(text, num_classes, num_best=number)
    selector = built(selector, num_classes, number)
    contexts = np.arange(-1, num_classes + 1)
    np.testing.assert_array_equal(
        select(selector, contexts), [frequent, *rows, frequent]
    )


@pytest.mark.parametrize(
    "text, num_classes, arguments, contexts, right",
    [
        # What never came is last; ties are in the order of ids.
        (
            [0, 1, 0, 1, 2, 0],
            4,
            dict(num_best=4),
            [0, 1, 2, 3, -1],
            [[1, 0, 2, 3], [0, 2, 1, 3], *[[0, 1, 2, 3]] * 3],
        ),
        (
            np.array([200, 201, 200, 201], "uint8"),
            202,
            dict(num_best=2),
            [200, 201, 5],
            [[201, 200], [200, 201], [200, 201]],
        ),
        (np.zeros(0, int), 3, dict(num_best=2), [0, -1], [[0, 1], [0, 1]]),
    ],
)
def test_text_by_hand(text, num_classes, arguments, contexts, right):
    selector = NGram.from_text(text, num_classes, **arguments)
    selector = built(selector, num_classes, len(right[0]))
    np.testing.assert_array_equal(select(selector, contexts), right)


def test_wrong_tables():
    for arguments, argument, received in (
        ((None,), "table", None),
        (([1, 2],), "table", "shape=(2,)"),
        (([[]],), "table", None),
        (([[0.0]],), "table", "float64"),
        (([[0, -2]],), "table", "row=0"),
        (([[0, 2**31]],), "table", "row=0"),
        (([[0, 1], [2, 2]],), "table", "row=1"),
        (([[0, 1]], [2, 2]), "fallback", "row=1"),
        (([[0, 1]], [2]), "fallback", "shape=(1,)"),
        (([[0, 1]], [2.0, 3.0]), "fallback", "float64"),
    ):
        with refused(argument, received):
            NGram(*arguments)


def test_other_sizes_and_wrong_texts():
    with refused("table", "largest=4"):
        NGram(TABLE).attach(4, 3)
    with refused(received="columns=3"):
        NGram(TABLE).attach(9, 4)
    for argument, value in (
        ("ids", [[[1]]]),
        ("ids", [0.5]),
        ("ids", [1, 5]),
        ("num_classes", 0),
        ("num_best", 0),
    ):
        arguments = {"ids": [0, 1], "num_classes": 5, argument: value}
        with refused(argument):
            NGram.from_text(**arguments)


def test_a_model_of_a_text():
    """The layer is called with the ids; files are in the table of layers."""
    # Each word is followed by one of two.
    rng = np.random.default_rng(0)
    text = np.zeros((40, 9), "int32")
    text[:, 0] = rng.integers(50, size=40)
    for step in range(8):
        text[:, step + 1] = (2 * text[:, step] + rng.integers(2, size=40)) % 50
    ids = keras.Input((8,), dtype="int32")
    features = keras.layers.Embedding(50, 6)(ids)
    selector = NGram.from_text(text, 50, num_best=4)
    head = kc.CANESoftmax(50, selector, 4, 2, seed=0)
    model = keras.Model(ids, head(features, context=ids))
    metrics = [kc.Coverage()]
    model.compile("sgd", kc.CANELoss(), metrics=metrics, run_eagerly=True)
    logs = model.evaluate(text[:, :-1], text[:, 1:], verbose=0)
    assert logs[1] == 1
    assert logs[0] == pytest.approx(np.log(50), abs=0.1)
