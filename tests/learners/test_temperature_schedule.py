import keras
import numpy as np
import pytest

from keras_compembed.learners import KDCodeLearner
from keras_compembed.learners import TemperatureSchedule


def test_values_by_hand():
    schedule = TemperatureSchedule(base=2.0, rate=0.5, floor=0.25)
    steps = [0, 1, 2, 6, 14, 100]
    expected = [2.0, 2 / 1.5, 1.0, 0.5, 0.25, 0.25]
    # A few float32 operations.
    np.testing.assert_allclose(
        [float(schedule(step)) for step in steps], expected, rtol=1e-6
    )
    step = keras.Variable(6, dtype="int64")
    assert float(schedule(step)) == pytest.approx(0.5)


def test_config_round_trip():
    schedule = TemperatureSchedule(base=2.0, rate=0.5, floor=0.25)
    config = keras.saving.serialize_keras_object(schedule)
    again = keras.saving.deserialize_keras_object(config)
    assert isinstance(again, TemperatureSchedule)
    assert again.get_config() == schedule.get_config()


def test_it_is_the_default():
    config = KDCodeLearner().get_config()["temperature"]
    assert config["config"] == TemperatureSchedule().get_config()


@pytest.mark.parametrize("name", ["base", "rate", "floor"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), True, "high"])
def test_bad_numbers(name, value):
    message = f"`{name}` must be a positive number.*Received: {name}="
    with pytest.raises(ValueError, match=message):
        TemperatureSchedule(**{name: value})


def test_floor_above_base():
    with pytest.raises(ValueError, match="`floor` must be at most `base`"):
        TemperatureSchedule(base=0.4)
