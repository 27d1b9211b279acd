"""Settings of training, alone and in a learner."""

import json

import keras
import numpy as np
import pytest

from keras_compembed.learners import GumbelCodeLearner
from keras_compembed.learners import KDCodeLearner
from keras_compembed.learners import Training
from keras_compembed.learners.training import get_training

SCHEDULE = keras.optimizers.schedules.CosineDecay(0.1, 9)


@pytest.mark.parametrize("rate", [None, 0.5, SCHEDULE])
def test_round_trip(rate):
    training = Training(7, 6, rate, validation_interval=5, validation_rows=4)
    form = keras.saving.serialize_keras_object(training)
    again = get_training(json.loads(json.dumps(form)))
    assert again.get_config() == training.get_config()
    assert type(again.learning_rate) is type(training.learning_rate)
    assert get_training(training) is training
    assert get_training(None).get_config() == Training().get_config()


def test_defaults_of_a_learner():
    filled = Training(batch_size=3).with_defaults(20, lambda steps: 1 / steps)
    assert (filled.iterations, filled.learning_rate) == (20, 0.05)
    filled = Training(10).with_defaults(20, lambda steps: 1 / steps)
    assert (filled.iterations, filled.learning_rate) == (10, 0.1)
    given = Training(10, learning_rate=0.5)
    assert given.with_defaults(20, None).get_config() == given.get_config()


def test_one_object_for_two_learners():
    training = Training(batch_size=3)
    learners = [cls(training=training) for cls in LEARNERS]
    assert [one.training.iterations for one in learners] == [200_000, 10_000]
    assert [one.training.batch_size for one in learners] == [3, 3]
    assert training.iterations is None


LEARNERS = [GumbelCodeLearner, KDCodeLearner]


@pytest.mark.parametrize("cls", LEARNERS)
def test_schedule_without_a_config(cls):
    """Only who saves a learner needs one."""

    class Halving(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.01 * 0.5 ** keras.ops.cast(step, "float32")

    training = Training(2, 8, Halving(), validation_rows=8)
    learner = cls(2, 4, training=training, seed=0, verbose=0)
    assert learner.training.learning_rate is training.learning_rate
    assert learner.train(np.eye(9)).codes.shape == (9, 2)


@pytest.mark.parametrize("cls", LEARNERS)
def test_no_training(cls):
    for value in ("long", 1000, Training):
        with pytest.raises(ValueError, match="`training` must be.*Received: t"):
            cls(training=value)


@pytest.mark.parametrize(
    "name, value",
    [
        ("iterations", 0),
        ("iterations", 10.0),
        ("iterations", True),
        ("batch_size", 0),
        ("batch_size", 2.5),
        ("learning_rate", -1e-4),
        ("learning_rate", float("nan")),
        ("validation_interval", 0),
        ("validation_interval", 1.5),
        ("validation_rows", -1),
        ("validation_rows", False),
    ],
)
def test_bad_arguments(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be.*Received: {name}"):
        Training(**{name: value})
