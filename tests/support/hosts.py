"""A layer that holds Embedding layers, of which a golden file was made."""

import keras
from keras.layers import Embedding

ROWS, WIDTH, LENGTH = 60, 8, 5


@keras.saving.register_keras_serializable(package="hosts")
class Attributes(keras.layers.Layer):
    """Like keras-hub's TokenAndPositionEmbedding. Keras makes up its config."""

    def __init__(self, scale=2.0, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale
        self.supports_masking = True
        self.tokens = Embedding(ROWS, WIDTH, name="tokens", mask_zero=True)
        self._positions = Embedding(LENGTH, WIDTH, name="positions")

    def build(self, input_shape):
        self.tokens.build(input_shape)
        self._positions.build(input_shape)

    def call(self, inputs):
        places = keras.ops.arange(LENGTH)
        return self.tokens(inputs) * self.scale + self._positions(places)
