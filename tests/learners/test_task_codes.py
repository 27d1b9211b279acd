"""Ways to learn codes along with a task, alone and in layers."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.codes.coded_rows import CodedRows
from keras_compembed.codes.packing import pack_codes
from keras_compembed.compositions.registry import get_composition
from keras_compembed.learners import FollowingCodes
from keras_compembed.learners import NearestCodes
from keras_compembed.learners import SoftmaxCodes
from keras_compembed.learners import TaskCodes
from keras_compembed.learners.registry import get_task_codes

ROWS, WIDTH, M, K = 12, 7, 3, 5
TEACHER = np.random.default_rng(5).normal(size=(ROWS, WIDTH))
OPTIONS = [
    SoftmaxCodes(temperature=0.5, teacher_weight=2.0),
    NearestCodes(commitment=0.5, temperature=0.7, teacher_weight=2.0),
    FollowingCodes(recode_every=3, teacher_weight=2.0),
]


@keras.saving.register_keras_serializable(package="test_task_codes")
class FirstCodes(TaskCodes):
    """Learns that the first codewords are for all."""

    def subcodes(self, ids):
        return tf.zeros((tf.size(ids), M), "int32")

    def learn(self, ids, counts):
        return self.rows.compose(self.subcodes(ids)), [2.0 * counts]


def kind(value):
    return type(value).__name__


def coded_rows(composition="sum"):
    composition = get_composition(composition, M, K, WIDTH)
    rng = np.random.default_rng(0)
    codes = rng.integers(K, size=(ROWS, M))
    return CodedRows(
        keras.Variable(pack_codes(codes, K), dtype="uint8", trainable=False),
        keras.Variable(
            rng.normal(size=composition.codebooks_shape), dtype="float32"
        ),
        composition,
    )


def add_weight(name, shape, initializer, dtype="float32", **kwargs):
    keras.utils.set_random_seed(len(name))
    return keras.Variable(initializer, shape, dtype, name=name, **kwargs)


def alone(task_codes, composition="sum"):
    """What learns codes, without a layer."""
    table = coded_rows(composition)
    task_codes.set_shape(ROWS, table.composition)
    task_codes.build(add_weight, table)
    return task_codes


@pytest.mark.parametrize("composition", ["sum", "concat"])
@pytest.mark.parametrize("options", OPTIONS, ids=kind)
def test_alone(options, composition):
    task_codes = alone(options.without_teacher(), composition)
    task_codes.is_recoded = True
    table = task_codes.rows
    names = [weight.name for weight in task_codes.weights]
    assert names[0] == "codes_are_fixed" and len(set(names)) == len(names)
    ids = np.array([4, 0, 4, 7])
    codes = task_codes.codes
    assert codes.shape == (ROWS, M) and codes.dtype == np.uint8
    np.testing.assert_array_equal(task_codes.subcodes(ids), codes[ids])

    with tf.GradientTape() as tape:
        vectors, losses = task_codes.step(ids, ids != 0)
        loss = tf.reduce_sum(tf.square(vectors))
    assert vectors.shape == (4, WIDTH)
    np.testing.assert_array_equal(vectors[0], vectors[2])
    straight = kind(options) == "NearestCodes" and composition == "concat"
    assert len(losses) == straight
    (state,) = (
        one for one in task_codes.weights if one.name in ("queries", "latents")
    )
    gradient = tf.convert_to_tensor(tape.gradient(loss, state.value)).numpy()
    assert set(np.flatnonzero(gradient.any(axis=1))) <= {0, 4, 7}
    assert gradient[[4, 7]].any()

    # With vectors in reverse, codes are those of the other end, where what
    # is learned knows of vectors.
    if straight or kind(options) == "FollowingCodes":
        task_codes.restart(table.decode(codes)[::-1])
    if kind(options) == "FollowingCodes":
        assert 0 < task_codes.recode() <= ROWS
    if straight:
        found = table.decode(task_codes.codes)
        np.testing.assert_allclose(found, table.decode(codes)[::-1], atol=1e-6)

    task_codes.fix()
    with pytest.raises(tf.errors.InvalidArgumentError, match="were fixed by"):
        task_codes.step(ids)


def test_teacher_alone():
    options = FollowingCodes(teacher=TEACHER, teacher_weight=3.0)
    task_codes = alone(options.copy())
    ids = np.array([4, 0, 4, 7])
    vectors, (loss,) = task_codes.step(ids, ids != 0)
    squares = np.square(vectors - TEACHER[ids]).mean(axis=1)
    np.testing.assert_allclose(loss, 3 * squares[[0, 2, 3]].mean(), rtol=1e-5)
    np.testing.assert_allclose(task_codes.teacher, TEACHER, rtol=1e-6)
    with pytest.raises(ValueError, match="`teacher` must have the shape"):
        task_codes.teacher = TEACHER[:3]
    task_codes.teacher = None
    assert task_codes.step(ids)[1] == []


@pytest.mark.parametrize("options", OPTIONS, ids=kind)
def test_round_trip(options):
    form = keras.saving.serialize_keras_object(options)
    again = get_task_codes(json.loads(json.dumps(form)))
    assert type(again) is type(options)
    assert again.get_config() == options.get_config()
    layer = kc.CodeEmbedding(ROWS, WIDTH, M, K, learn_codes=options)
    again = kc.CodeEmbedding.from_config(
        json.loads(json.dumps(layer.get_config()))
    )
    assert again.learn_codes.get_config() == options.get_config()
    assert again.get_config() == layer.get_config()


def test_names():
    for name, options in zip(
        ("softmax", "nearest", "follow"), OPTIONS, strict=True
    ):
        assert type(get_task_codes(name)) is type(options)
    assert get_task_codes(None) is None


@pytest.mark.parametrize("options", OPTIONS, ids=kind)
def test_one_object_for_two_layers(options):
    options = options.copy()
    one, two = (
        kc.CodeEmbedding(rows, width, M, K, learn_codes=options, seed=rows)
        for rows, width in ((ROWS, WIDTH), (20, 3))
    )
    for layer in (one, two):
        layer(np.array([1, 2]))
        assert layer.learn_codes is not options
    one.learn_codes.teacher = TEACHER
    assert one.learn_codes.codes.shape == (ROWS, M)
    assert two.learn_codes.codes.shape == (20, M)
    assert two.learn_codes.teacher is None and options.teacher is None
    one.learn_codes.fix()
    two.learn_codes.is_recoded = True
    two(np.array([1, 2]), training=True)
    assert options.weights == [] and options.rows is None


def test_teacher_is_set_after_loading(tmp_path):
    options = SoftmaxCodes(teacher=TEACHER)
    layer = kc.CodeEmbedding(ROWS, WIDTH, M, K, learn_codes=options)
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


def test_task_codes_of_ones_own(tmp_path):
    layer = kc.CodeEmbedding(
        ROWS, WIDTH, M, K, learn_codes=FirstCodes(), mask_zero=True
    )
    model = keras.Sequential([keras.Input((2,), dtype="int32"), layer])
    layer(np.array([[3, 3], [0, 5]]), training=True)
    # Means over ids of 2 * counts, 4 twice and 2 once.
    np.testing.assert_allclose(layer.losses, [10 / 3], rtol=1e-6)
    model.save(tmp_path / "model.keras")
    (again,) = keras.saving.load_model(tmp_path / "model.keras").layers
    assert isinstance(again.learn_codes, FirstCodes)
    again.freeze_codes()
    assert not again.codes.any()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: SoftmaxCodes(temperature=0), "`temperature` must be a posit"),
        (lambda: NearestCodes(temperature=-1), "`temperature` must be a posi"),
        (
            lambda: NearestCodes(commitment=-1.0),
            "`commitment` must be a number of at least 0",
        ),
        (
            lambda: SoftmaxCodes(teacher_weight=0.0),
            "`teacher_weight` must be a positive",
        ),
        (lambda: SoftmaxCodes(teacher=np.ones(3)), "`teacher` must have two"),
        (
            lambda: FollowingCodes(recode_every=0),
            "`recode_every` must be a positive integer",
        ),
        (lambda: get_task_codes(SoftmaxCodes), "`learn_codes` must be None"),
        (lambda: get_task_codes("kmeans"), "'softmax', 'nearest', 'follow' or"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", ["temperature", "teacher", "recode_every"])
def test_options_are_of_the_object(name):
    with pytest.raises((TypeError, ValueError), match=name):
        kc.CodeEmbedding(ROWS, WIDTH, M, K, learn_codes="softmax", **{name: 1})
