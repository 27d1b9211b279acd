import collections
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.candidates import NGram
from keras_compembed.candidates import follower_counts

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


def test_without_a_fallback():
    selector = built(NGram(np.asarray(TABLE, "int64")), num_candidates=2)
    np.testing.assert_array_equal(select(selector, [0, -1]), [[4, 1], [-1, -1]])


@pytest.mark.parametrize("num_classes", [3, 20, 60])
@pytest.mark.parametrize("number", [1, 4, 100])
@pytest.mark.parametrize("entries", [1, 1 << 24])
def test_text_as_counted_one_by_one(monkeypatch, num_classes, number, entries):
    monkeypatch.setattr(follower_counts, "_ENTRIES", entries)
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


def test_text_of_one_sequence():
    selector = NGram.from_text([0, 1, 0, 1, 2, 0], 4, num_best=4)
    selector = built(selector, 4, 4)
    # What never came is last; ties are in the order of ids.
    np.testing.assert_array_equal(
        select(selector, [0, 1, 2, 3, -1]),
        [[1, 0, 2, 3], [0, 2, 1, 3], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]],
    )


def test_text_as_unsigned_bytes():
    text = np.array([200, 201, 200, 201], "uint8")
    selector = built(NGram.from_text(text, 202, num_best=2), 202, 2)
    np.testing.assert_array_equal(
        select(selector, [200, 201, 5]), [[201, 200], [200, 201], [200, 201]]
    )


def test_order_1():
    selector = NGram.from_text([0, 1, 1, 2, 1, 2], 4, num_best=2, order=1)
    selector = built(selector, 4, 2)
    np.testing.assert_array_equal(select(selector, [0, 3]), [[1, 2], [1, 2]])
    np.testing.assert_array_equal(select(selector, None), [1, 2])


def test_empty_text():
    selector = built(NGram.from_text(np.zeros(0, int), 3, num_best=2), 3, 2)
    np.testing.assert_array_equal(select(selector, [0, -1]), [[0, 1]] * 2)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_in_graphs(jit_compile):
    selector = built(NGram(TABLE, fallback=[3, 2, 1]))
    function = tf.function(
        lambda context: selector.select(None, None, context),
        jit_compile=jit_compile,
    )
    context = tf.constant([1, -7], "int64")
    np.testing.assert_array_equal(function(context), [[2, -1, -1], [3, 2, 1]])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((None,), "`table` must be an integer array"),
        (([1, 2],), r"`table` must be an integer array.*shape \(2,\)"),
        (([[]],), "`table` must be an integer array"),
        (([[0.0]],), "`table` must be an integer array.*float64"),
        (([[0, -2]],), "must hold classes, or -1.*from -2 to 0"),
        (([[0, 2**31]],), "must hold classes, or -1"),
        (([[0, 1], [2, 2]],), "each class once.*twice in row 1 of `table`"),
        (([[0, 1]], [2, 2]), "each class once.*twice in fallback"),
        (([[0, 1]], [2]), r"`fallback` must be.*\(2,\).*shape \(1,\)"),
        (([[0, 1]], [2.0, 3.0]), "`fallback` must be.*float64"),
    ],
)
def test_wrong_tables(arguments, message):
    with pytest.raises(ValueError, match=message):
        NGram(*arguments)


def test_other_sizes():
    with pytest.raises(ValueError, match="below num_classes=4.*up to 4"):
        NGram(TABLE).attach(4, 3)
    with pytest.raises(ValueError, match="num_candidates=4.*3 columns"):
        NGram(TABLE).attach(9, 4)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(ids=[[[1]]]), "`ids` must be an integer array"),
        (dict(ids=[0.5]), "`ids` must be an integer array"),
        (dict(ids=[1, 5]), "below num_classes=5.*up to 5"),
        (dict(num_classes=0), "`num_classes` must be"),
        (dict(num_best=0), "`num_best` must be"),
        (dict(order=3), "`order` must be one of 1, 2"),
    ],
)
def test_wrong_texts(arguments, message):
    arguments = {"ids": [0, 1], "num_classes": 5, **arguments}
    with pytest.raises(ValueError, match=message):
        NGram.from_text(**arguments)


def test_million_tokens_are_quick():
    text = np.random.default_rng(0).integers(50_000, size=1_000_000)
    selector = NGram.from_text(text, 50_000, num_best=20)
    assert selector._table.shape == (50_001, 20)


def test_a_model_trains_and_comes_back_from_a_file(tmp_path):
    # Each word is followed by one of two.
    rng = np.random.default_rng(0)
    text = np.zeros((40, 9), "int32")
    text[:, 0] = rng.integers(50, size=40)
    for step in range(8):
        text[:, step + 1] = (2 * text[:, step] + rng.integers(2, size=40)) % 50
    ids = keras.Input((8,), dtype="int32")
    features = keras.layers.Embedding(50, 6)(ids)
    head = kc.CANESoftmax(
        50,
        NGram.from_text(text, 50, num_best=4),
        num_candidates=4,
        num_noises=2,
        seed=0,
    )
    model = keras.Model(ids, head(features, context=ids))
    model.compile(keras.optimizers.Adam(0.05), kc.CANELoss())
    x, y = text[:, :-1], text[:, 1:]
    before = model.evaluate(x, y, verbose=0)
    model.fit(x, y, batch_size=8, epochs=12, verbose=0)
    after = model.evaluate(x, y, verbose=0)
    # Of 50 classes, 2 are left.
    assert before == pytest.approx(np.log(50), abs=0.1)
    assert after < 1.5
    hit = head.selector.select(head.scores, None, tf.constant(x.ravel()))
    assert (hit.numpy() == y.reshape(-1, 1)).any(axis=1).all()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    selector = loaded.layers[-1].selector
    np.testing.assert_array_equal(selector.table, head.selector.table)
    assert loaded.evaluate(x, y, verbose=0) == pytest.approx(after, rel=1e-5)
    loaded.fit(x, y, batch_size=8, verbose=0)


def test_on_two_devices(strategy):
    with strategy.scope():
        selector = built(NGram(TABLE, fallback=[3, 2, 1]))

    @tf.function
    def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        context = tf.stack([tf.cast(replica, "int32"), -1])
        return selector.select(None, None, context)

    first, second = strategy.experimental_local_results(strategy.run(step))
    np.testing.assert_array_equal(first, [[4, 1, 0], [3, 2, 1]])
    np.testing.assert_array_equal(second, [[2, -1, -1], [3, 2, 1]])
