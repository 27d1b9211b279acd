"""What the layer of classes of a model is given."""

import keras


def features_of(model, inputs, batch_size=None):
    """Array of features, of a model that ends in a layer of classes."""
    encoder = keras.Model(model.inputs, model.layers[-1].input)
    return encoder.predict(inputs, batch_size=batch_size, verbose=0)
