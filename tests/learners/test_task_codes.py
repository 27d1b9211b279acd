"""Ways to learn codes along with a task, as objects of their own."""

import json

import keras
import numpy as np
import pytest
from errors import refused

import keras_compembed as kc
from keras_compembed.learners import SoftmaxCodes
from keras_compembed.learners.task_codes import FollowingCodes
from keras_compembed.learners.task_codes import NearestCodes

ROWS, WIDTH, M, K = 12, 7, 3, 5
TEACHER = np.random.default_rng(5).normal(size=(ROWS, WIDTH))
OPTIONS = [
    SoftmaxCodes(temperature=0.5, teacher_weight=2.0),
    NearestCodes(commitment=0.5, temperature=0.7, teacher_weight=2.0),
    FollowingCodes(recode_every=3, teacher_weight=2.0),
]


def make_layer(options, rows=ROWS, width=WIDTH, **kwargs):
    return kc.CodeEmbedding(rows, width, M, K, codes=options, **kwargs)


@pytest.mark.parametrize("name", ["softmax", "nearest"])
def test_scores_are_normalized_over_the_last_batches(name):
    """Statistics of a batch count 0.9 times as much after each further one."""
    layer = make_layer(name)
    layer.build()
    rng = np.random.default_rng(0)
    # Distances are as precise far from zero.
    far = 1000 if name == "nearest" else 0
    queries = rng.normal(far + 2, 3, size=(ROWS, 4 * M))
    keys = rng.normal(far, 1, size=(K, 4 * M))
    layer.queries.assign(queries)
    layer.keys.assign(keys)
    parts = queries.reshape(ROWS, M, 1, 4)
    keys = keys.reshape(K, M, 4).swapaxes(0, 1)
    scores = (parts * keys).sum(axis=3)
    if name == "nearest":
        scores = -np.square(parts - keys).sum(axis=3)
    # Before there are statistics, scores are as they are.
    np.testing.assert_array_equal(layer.codes, scores.argmax(axis=2))
    weight = np.zeros(ROWS)
    for ids in ([0, 1, 2, 3, 3], [2, 4, 5, 6, 7], [8, 0]):
        layer(np.array(ids), training=True)
        weight *= 0.9
        weight[np.unique(ids)] += 1
        mean = np.average(scores, axis=0, weights=weight)
        variance = np.average((scores - mean) ** 2, axis=0, weights=weight)
        np.testing.assert_array_equal(
            layer.codes, ((scores - mean) / np.sqrt(variance)).argmax(axis=2)
        )


def test_distance_to_a_teacher():
    layer = make_layer(FollowingCodes(teacher=TEACHER, teacher_weight=3.0))
    ids = np.array([4, 7, 4, 5])
    vectors = layer(ids, training=True)
    squares = np.square(vectors - TEACHER[ids]).mean(axis=1)
    np.testing.assert_allclose(layer.losses, [3 * squares.mean()], rtol=1e-5)
    np.testing.assert_allclose(layer.learn_codes.teacher, TEACHER, rtol=1e-6)
    with refused("teacher", (3, 7)):
        layer.learn_codes.teacher = TEACHER[:3]
    layer.learn_codes.teacher = None
    layer(ids, training=True)
    assert not layer.losses


@pytest.mark.parametrize("options", OPTIONS)
def test_one_object_for_two_layers(options):
    options = type(options).from_config(options.get_config())
    one, two = make_layer(options), make_layer(options, 20, 3)
    for layer in (one, two):
        layer(np.array([1, 2]))
        assert layer.learn_codes is not options
        assert layer.learn_codes.get_config() == options.get_config()
    one.learn_codes.teacher = TEACHER
    assert one.learn_codes.codes.shape == (ROWS, M)
    assert two.learn_codes.codes.shape == (20, M)
    assert two.learn_codes.teacher is None and options.teacher is None
    two.learn_codes.is_recoded = True
    two(np.array([1, 2]), training=True)
    assert options.rows is None
    config = json.loads(json.dumps(one.get_config()))
    again = kc.CodeEmbedding.from_config(config)
    assert type(again.learn_codes) is type(options)
    assert again.get_config() == one.get_config()


def test_teacher_is_set_after_loading(tmp_path):
    layer = make_layer(SoftmaxCodes(teacher=TEACHER))
    model = keras.Sequential([keras.Input((2,), dtype="int32"), layer])
    model.save(tmp_path / "model.keras")
    (again,) = keras.saving.load_model(tmp_path / "model.keras").layers
    ids = np.array([[3, 4]])
    again(ids, training=True)
    assert again.learn_codes.teacher is None and not again.losses
    again.learn_codes.teacher = TEACHER
    again(ids, training=True)
    layer(ids, training=True)
    np.testing.assert_allclose(again.losses, layer.losses, rtol=1e-6)


@pytest.mark.parametrize(
    "cls, argument, value",
    [
        (SoftmaxCodes, "temperature", 0),
        (SoftmaxCodes, "teacher", np.ones(3)),
        (NearestCodes, "commitment", -1.0),
        (FollowingCodes, "teacher_weight", 0.0),
        (FollowingCodes, "recode_every", 0),
    ],
)
def test_bad_arguments(cls, argument, value):
    with refused(argument, np.shape(value) or value):
        cls(**{argument: value})
