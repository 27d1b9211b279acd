"""What would fail late, or in silence, on several workers."""

from keras_compembed.utils.workers import is_of_workers
from keras_compembed.utils.workers import on_all_workers


def check_model(model, strategy):
    """Raises if workers would train a model each for itself."""
    if model.distribute_strategy is not strategy:
        raise ValueError(
            "Models must be made and compiled under `strategy.scope()` of the "
            "strategy of `multi_worker_fit`. Received: the model "
            f"{model.name!r}, made under "
            f"{type(model.distribute_strategy).__name__}."
        )


def check_variables(model):
    """Raises if workers would not keep a variable alike."""
    for variable in model.variables:
        if not is_of_workers(variable):
            raise ValueError(
                "Layers must be made under `strategy.scope()`, their weights "
                "too. Received: the model "
                f"{model.name!r}, whose variable {variable.path!r} was made "
                "outside."
            )


def check_batches(strategy, batches):
    """Raises if workers would wait for batches that others do not have."""
    known = -1 if batches is None else int(batches)
    numbers = on_all_workers(strategy, known)
    if len(set(numbers)) > 1:
        listed = ", ".join(
            "unknown" if number < 0 else str(number) for number in numbers
        )
        raise ValueError(
            "All workers must have as many batches an epoch. Received: "
            f"{listed}, by device. Give `steps_per_epoch` (`steps` in "
            "`evaluate` and `predict`), or all workers the same data."
        )
