"""Refuses losses and metrics that would take features for scores."""

import keras

from keras_compembed.utils.model_parts import layer_of


def check_compiled(model, head):
    """Refuses what Keras has to measure scores by, which features are not."""
    outputs, paths = _find_outputs(model, head)
    compiled = model._compile_config.config
    for argument in ("loss", "metrics", "weighted_metrics"):
        get = keras.losses.get if argument == "loss" else keras.metrics.get
        for part in _parts_of(compiled[argument], outputs, paths, model):
            if _is_of_keras(part, get):
                ours = "a loss such as `keras_compembed.CANELoss()`"
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


def _parts_of(parts, outputs, paths, model):
    """Losses or metrics that are for some of the outputs, flat."""
    if parts is None:
        return []
    has_keys = isinstance(outputs, dict) and isinstance(parts, dict)
    if len(keras.tree.flatten(outputs)) == 1 and not has_keys:
        return keras.tree.flatten(parts) if paths else []
    names = getattr(model, "output_names", None)
    found = []
    for path in paths:
        found += keras.tree.flatten(_part_at(parts, path, outputs, names))
    return [part for part in found if part is not None]


def _find_outputs(model, head):
    """Nested outputs of a model, and the paths to those of a layer."""
    outputs = getattr(model, "outputs", None)
    if outputs:
        if len(outputs) > 1:
            outputs = model.output
        return outputs, [
            path
            for path, output in keras.tree.flatten_with_path(outputs)
            if _comes_from(output, head)
        ]
    # Those of a subclassed model are told by the losses for them.
    return model.loss, [
        path
        for path, loss in keras.tree.flatten_with_path(model.loss)
        if getattr(loss, "reads_class_output", False)
    ]


def _part_at(parts, path, outputs, names):
    """What losses or metrics hold for one of several nested outputs."""
    for key in path:
        has_keys = isinstance(outputs, dict)
        if isinstance(parts, dict):
            parts = parts.get(key if has_keys or not names else names[key])
        elif isinstance(parts, (list, tuple)):
            # Lists are in the order in which Keras flattens outputs.
            place = sorted(outputs).index(key) if has_keys else key
            parts = parts[place] if place < len(parts) else None
        outputs = outputs[key]
    return parts


def _comes_from(output, head):
    layer = layer_of(output)
    if isinstance(layer, keras.layers.Wrapper):
        layer = layer.layer
    return layer is head


def _is_of_keras(part, get):
    # What Keras takes for one of several, by shapes.
    if part in ("crossentropy", "ce", "accuracy", "acc"):
        return True
    part = get(part)
    if isinstance(part, (keras.losses.Loss, keras.metrics.Metric)):
        part = type(part)
    # Such a wrapper is of a function of the user.
    is_of_user = part is keras.metrics.MeanMetricWrapper
    module = getattr(part, "__module__", "").split(".")[0]
    return module == "keras" and not is_of_user
