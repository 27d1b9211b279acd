"""Keras's `fit` on several machines."""

import contextlib

import tensorflow as tf
from keras import tree

from keras_compembed.utils.validation import require
from keras_compembed.utils.workers import has_workers
from keras_compembed.utils.workers import is_of_workers
from keras_compembed.utils.workers import on_all_workers


@contextlib.contextmanager
def multi_worker_fit(strategy):
    """Lets `fit`, `evaluate` and `predict` run on several workers.

    Under `tf.distribute.MultiWorkerMirroredStrategy`, Keras 3 fails before the
    first step: it adds up the first batches of all workers, where it only
    wants their shapes, and takes losses, which are single numbers, for
    batches. Within this context two functions of Keras's TensorFlow trainer
    are exchanged for such that do neither, and all three check that workers
    do the same. Nothing is exchanged on import or for one worker.

    Run the same program on each worker, with a `TF_CONFIG` of its own, and
    give all of them the same data; each reads its part, as
    `tf.data.Options().experimental_distribute.auto_shard_policy` says.
    `predict` answers for all data, on each worker.

    Example:

    >>> # On workers: `tf.distribute.MultiWorkerMirroredStrategy()`.
    >>> strategy = tf.distribute.get_strategy()
    >>> with strategy.scope():
    ...     model = keras.Sequential([keras.layers.Dense(1)])
    ...     model.compile("sgd", "mse")
    >>> x, y = np.ones((8, 2)), np.ones((8, 1))
    >>> data = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    >>> with kc.distribution.multi_worker_fit(strategy):
    ...     history = model.fit(data, shuffle=False, verbose=0)

    Args:
        strategy: `tf.distribute.Strategy` that the model was made under. One
            of a single machine, such as `tf.distribute.MirroredStrategy`,
            needs nothing.

    Raises:
        tf.errors.UnavailableError: in `fit`, if another worker ended.
        ValueError: if `strategy` is none, or a `ParameterServerStrategy`; if
            workers do not have equally many batches. In `fit` and `evaluate`,
            if the model or one of its weights was made outside of
            `strategy.scope()`.

    References:
        - https://github.com/keras-team/keras/issues/20585
    """
    require(
        isinstance(strategy, tf.distribute.Strategy)
        and not isinstance(strategy, tf.distribute.ParameterServerStrategy),
        "`strategy` must be a `tf.distribute.Strategy` in which all workers "
        "take a step together.",
        strategy=strategy,
    )
    if not has_workers(strategy):
        yield
        return
    # Not public, and needed by no one else.
    from keras.src.backend.tensorflow import trainer

    cls = trainer.TensorFlowTrainer
    build, reduce = cls._maybe_symbolic_build, trainer.reduce_per_replica
    iterator = trainer.TFEpochIterator
    try:
        cls._maybe_symbolic_build = _from_local_batches(build, strategy)
        trainer.reduce_per_replica = _of_numbers(reduce)
        trainer.TFEpochIterator = _of_equal_batches(iterator, strategy)
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        raise type(error)(
            error.node_def,
            error.op,
            "A worker ended, or is not reached any more. Start all workers "
            "again: with a `WorkerBackup` they go on from the last epoch.\n"
            f"{error.message}",
        ) from error
    finally:
        cls._maybe_symbolic_build = build
        trainer.reduce_per_replica = reduce
        trainer.TFEpochIterator = iterator


def _of_equal_batches(iterator, strategy):
    """A `TFEpochIterator` of as many batches as on other workers."""

    class CheckedEpochIterator(iterator):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            if kwargs.get("distribute_strategy") is strategy:
                own = self.num_batches
                batches = on_all_workers(strategy, -1 if own is None else own)
                require(
                    len(set(batches)) == 1,
                    "All workers must have as many batches an epoch. Give "
                    "`steps_per_epoch`, or all workers the same data.",
                    batches=batches,
                )

    return CheckedEpochIterator


def _from_local_batches(build, strategy):
    """A `_maybe_symbolic_build` by the worker's own first batch, checked."""

    def first_local(value):
        return strategy.experimental_local_results(value)[0]

    def build_from_local_batch(self, iterator=None, data_batch=None):
        require(
            self.distribute_strategy is strategy,
            "Models must be made and compiled under `strategy.scope()` of the "
            "strategy of `multi_worker_fit`.",
            model=self.name,
        )
        if iterator is not None:
            for _, _, batches in iterator:
                data_batch = tree.map_structure(first_local, next(batches))
                break
        build(self, data_batch=data_batch)
        for variable in self.variables:
            require(
                is_of_workers(variable),
                "Layers must be made under `strategy.scope()`, their weights "
                "too.",
                model=self.name,
                variable=variable.path,
            )

    return build_from_local_batch


def _of_numbers(reduce):
    """A `reduce_per_replica` that sums, or averages, numbers over workers."""

    def reduce_numbers(values, strategy, reduction):
        operation = {"auto": "MEAN", "mean": "MEAN", "sum": "SUM"}
        if reduction not in operation or not has_workers(strategy):
            return reduce(values, strategy, reduction)
        return tree.map_structure(
            lambda value: strategy.reduce(
                operation[reduction], value, axis=None
            ),
            values,
        )

    return reduce_numbers
