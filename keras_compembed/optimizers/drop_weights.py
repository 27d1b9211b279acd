"""Weights that a layer lets go of, wherever they are held."""

import keras

from keras_compembed.optimizers.weight_holders import exchange_in_holders


def drop_weights(layer, weights):
    """Takes weights from a layer, from optimizers and from models."""
    take_weights(layer, weights)
    exchange_in_holders(layer, [(weight, None) for weight in weights])


def take_weights(layer, weights):
    """Takes weights from a layer alone."""
    names = {id(value): name for name, value in vars(layer).items()}
    for weight in weights:
        layer._untrack_variable(weight)
        if id(weight) in names:
            # That of `Layer` collects garbage each time.
            super(keras.Layer, layer).__delattr__(names[id(weight)])
