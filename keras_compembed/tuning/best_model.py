"""The best model that a search found."""

from keras_compembed.tuning.pareto_front import pareto_front


def best_model(tuner, max_bytes=None, metric=None):
    """The model of the best trial whose LiteRT file is small enough.

    Example:

    >>> import keras_tuner
    >>> model = keras.Sequential([
    ...     keras.Input((8,), dtype="int32"),
    ...     keras.layers.Embedding(500, 16, name="words"),
    ...     keras.layers.GlobalAveragePooling1D(),
    ...     keras.layers.Dense(1),
    ... ])
    >>> model.compile("adam", "mse")
    >>> tuner = keras_tuner.RandomSearch(
    ...     kc.tuning.CompressedHyperModel(model, min_bytes=0, verbose=0),
    ...     objective="loss", max_trials=1, directory="tuning",
    ... )
    >>> ids = np.zeros((8, 8), "int32")
    >>> tuner.search(ids, np.zeros((8, 1)), verbose=0)
    >>> small = best_model(tuner, max_bytes=40_000)
    >>> small.predict(ids, verbose=0).shape
    (8, 1)

    Args:
        tuner: A tuner of keras-tuner that has searched, or was made again with
            the same arguments.
        max_bytes: Optional integer. Defaults to `None`: any size.
        metric: Same as in `pareto_front`.

    Returns:
        A `keras.Model`, with the weights of the best epoch.

    Raises:
        ValueError: if no trial is so small, or none was finished.
    """
    best = pareto_front(tuner, metric).best_under(max_bytes)
    return tuner.load_model(tuner.oracle.trials[best.trial_id])
