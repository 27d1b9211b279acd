"""Training with tables first, and with compressed layers after that."""

import random

import keras

from keras_compembed.compression.budget import Budget
from keras_compembed.compression.compress_model import compress_model
from keras_compembed.compression.compress_model import with_new_tables
from keras_compembed.compression.find_size import find_searched_tables
from keras_compembed.compression.tables import check_model
from keras_compembed.compression.tables import copy_checked
from keras_compembed.exchange.copy_with import compile_like
from keras_compembed.exchange.model_copy import held_objects
from keras_compembed.methods.method import Method
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import require


def fit_compressed(
    model: keras.Model,
    how: Method | dict | Budget | None,
    x: object = None,
    y: object = None,
    *,
    epochs: int,
    table_epochs: int | None = None,
    layers: list | None = None,
    seed: int | None = None,
    sample_inputs: object = None,
    verbose: int | str = "auto",
    **kwargs: object,
) -> keras.Model:
    """Trains a model with plain tables, compresses it, and trains it further.

    It calls `model.fit`, `compress_model(model, how)` and the copy's `fit`, and
    gives the same weights as these three calls. The model given must not be
    trained before. It keeps the table, which another `how` can compress.

    The copy has a new optimizer with the learning rate of the first part. A
    schedule of the learning rate goes on where the first part ended.

    Callbacks are told that training begins and ends in both parts, each with
    its model. Epoch numbers go on. So `EarlyStopping` in the first part ends
    that part only. A `ModelCheckpoint` with `save_best_only` may keep a table:
    put `{epoch}` into its path. `CSVLogger` needs `append=True`.

    Strategies: the copy is made in the scope of the model. Ctrl-C raises
    `KeyboardInterrupt`, as in `fit`. The model then has its table, and its
    `history` has all epochs that ended.

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((20,), dtype="int32"),
    ...     keras.layers.Embedding(2000, 64, name="words"),
    ...     keras.layers.GlobalAveragePooling1D(),
    ...     keras.layers.Dense(2),
    ... ])
    >>> model.compile("adam", "mse")
    >>> ids = np.random.default_rng(0).integers(2000, size=(64, 20))
    >>> how = kc.methods.Quantized(4)
    >>> small = fit_compressed(
    ...     model, how, ids, ids[:, :2] / 2000, epochs=4, verbose=0
    ... )
    >>> small.history.epoch
    [0, 1, 2, 3]

    Args:
        model: A built and compiled `keras.Model`.
        how, layers, sample_inputs: Same as in `compress_model`.
        x, y: Same as in `fit`. A Python generator goes on where it ended.
        epochs: Integer of at least 2. The epochs of both parts.
        table_epochs: Optional integer from 1 to `epochs - 1`. The epochs with
            plain tables. Defaults to `None`: half of `epochs`. With validation
            data, the first part ends earlier if `val_loss` gets worse, and has
            the weights of its best epoch.
        seed: Optional integer. Seed of the learners. Defaults to `None`: drawn
            from Python's `random`, which `keras.utils.set_random_seed` sets.
        verbose: Same as in `fit`. Above 0, sizes are printed too. Defaults to
            `"auto"`.
        **kwargs: Further arguments of `fit`, such as `validation_data`,
            `batch_size`, `sample_weight` and `callbacks`.

    Returns:
        The compressed, trained `keras.Model`, with the `history` of both parts.

    Raises:
        TypeError, ValueError: as in `compress_model`, or if an argument is
            invalid. Whether the model can be copied, and has a table to
            compress, is checked before training.
    """
    check_model(model)
    require(
        model.compiled,
        "`model` must be compiled.",
        model=f"{model.name}, not compiled",
    )
    check_positive_int("epochs", epochs, 2)
    check_positive_int("table_epochs", table_epochs, 1, epochs - 1, True)
    require(
        "initial_epoch" not in kwargs,
        "`initial_epoch` must not be set: each part has its own.",
        initial_epoch=kwargs.get("initial_epoch"),
    )
    if check_seed(seed) is None:
        seed = random.randrange(1 << 31)
    options = layers, seed, sample_inputs
    history = keras.callbacks.History()
    given = keras.tree.flatten(kwargs.pop("callbacks", None) or [])
    callbacks = first_callbacks = [*given, history]
    if table_epochs is None:
        table_epochs = epochs // 2
        data = kwargs.get("validation_data")
        if data is not None or kwargs.get("validation_split"):
            first_callbacks = [
                *callbacks,
                keras.callbacks.EarlyStopping(restore_best_weights=True),
            ]
    with model.distribute_strategy.scope():
        _try_to_copy(model, how, *options)
    model.fit(
        x,
        y,
        epochs=table_epochs,
        callbacks=first_callbacks,
        verbose=verbose,
        **kwargs,
    )
    done = history.epoch
    with model.distribute_strategy.scope():
        small = compress_model(model, how, *options, int(verbose != 0))
        _continue_schedule(small, model)
    small.fit(
        x,
        y,
        initial_epoch=done[-1] + 1,
        epochs=epochs,
        callbacks=callbacks,
        verbose=verbose,
        **kwargs,
    )
    history.epoch = done + history.epoch
    small.history = history
    return small


def _try_to_copy(model, how, layers, seed, sample_inputs):
    """Raises if the model cannot be compressed, before time is spent."""
    if isinstance(how, Budget):
        how.check(model)
        find_searched_tables(model, how, layers, seed, verbose=0)
        small = copy_checked(model, [], sample_inputs)
    else:
        _, small, _ = with_new_tables(
            model, how, layers, seed, sample_inputs, verbose=0
        )
    compile_like(small, model)
    require(
        small.compiled,
        "`model` must have compile arguments that can be copied.",
        model=model.name,
    )
    _continue_schedule(small, model)


def _continue_schedule(small, model):
    """Makes a schedule of the learning rate go on after the model's steps."""
    for item in held_objects(small.optimizer):
        if isinstance(item, keras.optimizers.schedules.LearningRateSchedule):
            inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
            per_update = inner.gradient_accumulation_steps or 1
            steps = per_update * keras.ops.convert_to_numpy(inner.iterations)
            small.optimizer.learning_rate = LaterSchedule(item, int(steps))
            return


@keras.saving.register_keras_serializable(package="keras_compembed")
class LaterSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule of the learning rate from a later step on."""

    def __init__(self, schedule, first_step):
        self.schedule = schedule
        self.first_step = first_step

    def __call__(self, step):
        return self.schedule(step + self.first_step)

    def get_config(self):
        schedule = keras.optimizers.schedules.serialize(self.schedule)
        return {"schedule": schedule, "first_step": self.first_step}

    @classmethod
    def from_config(cls, config):
        schedule = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(schedule, config["first_step"])
