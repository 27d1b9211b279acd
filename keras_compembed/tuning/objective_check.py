"""Whether a tuner's objective is one that trials report."""

import keras

from keras_compembed.tuning.tuned_trial import BYTES
from keras_compembed.utils.extras import require

# Of `fit`: x, y, batch_size, epochs, verbose and callbacks.
_ARGUMENTS_BEFORE_VALIDATION = 6


def objective_names(objective):
    """Names of the metrics of a `keras_tuner.Objective`."""
    names = getattr(objective, "name_to_direction", None)
    if names is not None:
        return list(names)
    if objective.name == "default_objective":
        raise _error(
            "`objective` of the tuner must name the metric to search for, "
            "e.g. 'val_accuracy'. Received: objective=None."
        )
    return [objective.name]


def check_validation(names, args, kwargs):
    """Raises if a metric of validation data is asked for without them."""
    has_any = len(args) > _ARGUMENTS_BEFORE_VALIDATION or any(
        kwargs.get(name) is not None
        for name in ("validation_split", "validation_data")
    )
    wanted = [name for name in names if name.startswith("val_")]
    if wanted and not has_any:
        raise _error(
            f"`search` must be given `validation_data`, as the objective is "
            f"{wanted[0]!r}. Received: validation_data=None."
        )
    return has_any


class TrialCallback(keras.callbacks.Callback):
    """Puts the bytes of the file into the logs, and checks the objective."""

    def __init__(self, litert_bytes, names, has_validation, may_get_more):
        super().__init__()
        self._litert_bytes = litert_bytes
        self._names = names
        self._has_validation = has_validation
        self._may_get_more = may_get_more
        self._is_checked = False

    def on_train_batch_end(self, batch, logs=None):
        if self._is_checked or self._may_get_more:
            return
        self._is_checked = True
        known = [*(logs or {}), BYTES]
        if self._has_validation:
            known += [f"val_{name}" for name in logs or {}]
        self._check(known)

    def on_epoch_end(self, epoch, logs=None):
        logs[BYTES] = self._litert_bytes
        if self._may_get_more:
            self._check(list(logs))

    def _check(self, known):
        missing = [name for name in self._names if name not in known]
        if missing:
            raise _error(
                "`objective` of the tuner must name a metric of the model. "
                f"Received: {missing[0]!r}, and the metrics {known}."
            )


def may_report(callback):
    """Whether a callback of the user's may put metrics into the logs."""
    is_keras = type(callback).__module__.startswith("keras.src.callbacks")
    return not is_keras or isinstance(callback, keras.callbacks.LambdaCallback)


def _error(message):
    # Other errors are taken for those of a trial, and the search goes on.
    return require("keras_tuner", "tune").errors.FatalValueError(message)
