"""Which values of a metric are better, as far as Keras knows."""

import keras

_HIGHER, _LOWER = "max", "min"
# Names by which Keras lists its accuracies, whatever they are made of.
_ACCURACIES = "acc", "accuracy", "auc"


def mode_of_metric(model, name):
    """`"max"` or `"min"`, whether more of a metric is better."""
    if name == "loss" or name.endswith("_loss"):
        return _LOWER
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
        return _HIGHER
    if directions == {"down"}:
        return _LOWER
    if name.rpartition("_")[2] in _ACCURACIES:
        return _HIGHER
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
