"""Copies of a model trained further, and what they reach."""

import keras
import tensorflow as tf

from keras_compembed.exchange.model_copy import copy_model

# Names by which Keras lists its accuracies, whatever they are made of.
_ACCURACIES = "acc", "accuracy", "auc"


class TunedCopies:
    """Trains copies alike, and compares them on validation data."""

    def __init__(self, model, data, seed):
        self._model = model
        self._data = data
        self._seed = seed
        self.metric = data.metric
        self.is_higher_better = None

    def score_of_original(self):
        """The metric of the model as it is."""
        if self._model.compiled:
            return self.score(self._model)
        copy = copy_model(self._model)
        self._data.compile(copy)
        return self.score(copy)

    def score(self, model):
        """The metric of a compiled model on validation data."""
        figures = model.evaluate(
            **self._arguments(self._data.validation),
            verbose=0,
            return_dict=True,
        )
        if self.metric is None:
            self.metric = next((x for x in figures if x != "loss"), "loss")
        if self.metric not in figures:
            raise ValueError(
                "`metric` must be one that `evaluate` gives: "
                f"{', '.join(figures)}. Received: metric={self.metric!r}."
            )
        if self.is_higher_better is None:
            mode = self._data.mode or _mode_of_metric(model, self.metric)
            self.is_higher_better = mode == "max"
        return float(figures[self.metric])

    def loss(self, score):
        """A score as a number of which less is better."""
        return -score if self.is_higher_better else score

    def tune(self, copy):
        """Trains a copy; it keeps the weights of its best epoch."""
        best = _BestEpoch(self, copy)
        if self._data.train is None:
            return best.score, False
        if self._seed is not None:
            keras.utils.set_random_seed(self._seed)
        data = self._data.train
        options = {
            # Keras warns that it cannot shuffle a data set.
            "shuffle": not isinstance(data, tf.data.Dataset),
            **self._arguments(data),
            **self._data.fit_options,
        }
        own = options.pop("callbacks", None)
        own = keras.tree.flatten(getattr(own, "callbacks", own) or [])
        interrupted = False
        try:
            copy.fit(
                **options,
                epochs=self._data.epochs,
                callbacks=[*own, best],
                verbose=0,
            )
        except KeyboardInterrupt:
            interrupted = True
        copy.set_weights(best.weights)
        return best.score, interrupted

    def _arguments(self, data):
        """Data as arguments of `fit` and `evaluate`."""
        if isinstance(data, tf.data.Dataset):
            return {"x": data}
        names = ("x", "y", "sample_weight")
        arguments = dict(zip(names, data, strict=False))
        size = self._data.fit_options.get("batch_size")
        return arguments if size is None else {**arguments, "batch_size": size}


class _BestEpoch(keras.callbacks.Callback):
    """Keeps the weights of the best epoch, or those before training."""

    def __init__(self, tuned, copy):
        super().__init__()
        self._tuned = tuned
        self.score, self.weights = tuned.score(copy), copy.get_weights()

    def on_epoch_end(self, epoch, logs=None):
        score = self._tuned.score(self.model)
        if self._tuned.loss(score) < self._tuned.loss(self.score):
            self.score, self.weights = score, self.model.get_weights()


def _mode_of_metric(model, name):
    """`"max"` or `"min"`, whether more of a metric is better."""
    if name == "loss" or name.endswith("_loss"):
        return "min"
    found = [
        metric
        for metric in _metrics_within(model.metrics)
        if name == metric.name or name.endswith(f"_{metric.name}")
    ]
    longest = max((len(metric.name) for metric in found), default=0)
    directions = {
        # What Keras's callbacks go by, too.
        getattr(metric, "_direction", None)
        for metric in found
        if len(metric.name) == longest
    }
    if directions == {"up"}:
        return "max"
    if directions == {"down"}:
        return "min"
    if name.rpartition("_")[2] in _ACCURACIES:
        return "max"
    raise ValueError(
        '`mode` must be "max" or "min" for a metric of which Keras does not '
        f"know whether more of it is better. Received: mode=None, "
        f"metric={name!r}."
    )


def _metrics_within(metrics):
    """Metrics, and those within Keras's lists of compiled metrics."""
    for metric in metrics:
        yield metric
        inner = getattr(metric, "metrics", None)
        if isinstance(metric, keras.metrics.Metric) and inner:
            yield from _metrics_within(inner)
