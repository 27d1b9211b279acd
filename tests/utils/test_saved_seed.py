import keras
import numpy as np

from keras_compembed.utils.saved_seed import load_seed
from keras_compembed.utils.saved_seed import save_seed


def test_numbers_drawn_go_on():
    generator = keras.random.SeedGenerator(3)
    generator.next()
    store = {"0": np.ones(2)}
    save_seed(store, generator)
    other = keras.random.SeedGenerator(4)
    assert list(load_seed(store, other)) == ["0"]
    np.testing.assert_array_equal(other.next(), generator.next())


def test_files_without_a_state():
    generator = keras.random.SeedGenerator(3)
    before = generator.state.numpy()
    assert list(load_seed({"0": np.ones(2)}, generator)) == ["0"]
    np.testing.assert_array_equal(generator.state.numpy(), before)
