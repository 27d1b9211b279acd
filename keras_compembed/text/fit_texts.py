"""Training on texts that Ctrl-C ends with what was learned so far."""

import keras
import tensorflow as tf

# Epochs without a better one.
_PATIENCE = 3


def fit_texts(model, texts, labels, validation_data, seed, **options):
    """Trains a model; it keeps the weights of its best epoch."""
    if seed is not None:
        keras.utils.set_random_seed(seed)
    callbacks = list(options.pop("callbacks", None) or ())
    best = None
    if validation_data is not None:
        best = keras.callbacks.EarlyStopping(
            "val_loss", patience=_PATIENCE, restore_best_weights=True
        )
        callbacks.append(best)
        options["validation_data"] = (
            tf.constant(validation_data[0]),
            validation_data[1],
        )
    try:
        model.fit(tf.constant(texts), labels, callbacks=callbacks, **options)
    except KeyboardInterrupt:
        if best is not None and best.best_weights is not None:
            model.set_weights(best.best_weights)
        print("\nStopped by Ctrl-C: what was learned so far is kept.")
