"""Refuses losses and metrics that would take features for scores."""

import keras

from keras_compembed.utils.model_outputs import layer_of
from keras_compembed.utils.model_outputs import output_names


def check_compiled(model, head):
    """Refuses what Keras has to measure scores by, which features are not.

    Functions, losses and metrics of users may know what features are.

    Args:
        model: A compiled `keras.Model`.
        head: A `ClassHead` in it.

    Raises:
        ValueError: if the model is compiled with a loss or a metric of
            Keras's own for the output of the layer.
    """
    metrics = getattr(model, "_compile_metrics", None)
    for argument, parts, getter in (
        ("loss", model.loss, _get_loss),
        ("metrics", getattr(metrics, "_user_metrics", None), _get_metric),
        (
            "weighted_metrics",
            getattr(metrics, "_user_weighted_metrics", None),
            _get_metric,
        ),
    ):
        for part in _parts_of(parts, model, head):
            if _is_of_keras(getter(part)):
                ours = "`keras_compembed.CANELoss()`, or a loss of "
                ours += "`keras_compembed.baselines`"
                if argument != "loss":
                    ours = "a metric such as `keras_compembed.ClassAccuracy()`"
                name = part if isinstance(part, str) else type(part).__name__
                raise ValueError(
                    f"`{argument}` must know what the output of the "
                    f"{type(head).__name__} {head.name!r} is: features, not "
                    "scores of classes, so that losses and metrics of Keras "
                    f"would be wrong. Compile the model with {ours}. "
                    f"Received: {argument}={name!r}."
                )


def _parts_of(parts, model, head):
    """Losses or metrics that are for the output of a layer, flat."""
    outputs = getattr(model, "outputs", None)
    if parts is None:
        return []
    if not outputs:
        # A subclassed model, known to end in the layer by its loss alone.
        known = getattr(model.loss, "reads_class_output", False)
        return keras.tree.flatten(parts) if known else []
    places = [
        place
        for place, output in enumerate(outputs)
        if _comes_from(output, head)
    ]
    if len(outputs) == 1:
        return keras.tree.flatten(parts) if places else []
    if not keras.tree.is_nested(parts):
        return [parts] if places else []
    found = []
    for place in places:
        if isinstance(parts, dict):
            for name in {output_names(model)[place], model.output_names[place]}:
                found += keras.tree.flatten(parts.get(name, []))
        elif len(parts) == len(outputs):
            found += keras.tree.flatten(parts[place])
    return [part for part in found if part is not None]


def _comes_from(output, head):
    layer = layer_of(output)
    if isinstance(layer, keras.layers.Wrapper):
        layer = layer.layer
    return layer is head


def _get_loss(loss):
    # What Keras takes for one of several, by shapes.
    if loss in ("crossentropy", "ce"):
        return keras.losses.CategoricalCrossentropy
    return keras.losses.get(loss)


def _get_metric(metric):
    if metric in ("accuracy", "acc"):
        return keras.metrics.Accuracy
    return keras.metrics.get(metric)


def _is_of_keras(part):
    if type(part) is keras.metrics.MeanMetricWrapper:
        part = part._fn
    if isinstance(part, (keras.losses.Loss, keras.metrics.Metric)):
        part = type(part)
    return getattr(part, "__module__", "").split(".")[0] == "keras"
