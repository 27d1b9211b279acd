"""Training with plain tables first, and then with compressed layers."""

import os
import random

import keras
import tensorflow as tf

from keras_compembed.compression.budget import Budget
from keras_compembed.compression.compress_model import compress_by
from keras_compembed.compression.compress_model import compress_model
from keras_compembed.compression.compress_model import with_new_tables
from keras_compembed.compression.find_size import find_searched_tables
from keras_compembed.compression.row_counts import batches_of
from keras_compembed.compression.tables import check_model
from keras_compembed.compression.tables import copy_checked
from keras_compembed.exchange.copy_with import compile_like
from keras_compembed.exchange.model_copy import held_objects
from keras_compembed.methods.method import Method
from keras_compembed.utils.text_tensors import with_text_tensors
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

    It calls `model.fit`, `compress_model(model, how)` and the copy's `fit`. In
    learning, rows weigh more if the arrays or dataset `x`, or else the sample
    inputs, read them often; a `Budget` takes its own data or sample inputs. The
    trained tables stay in `model`, so `compress_model` can try another method.

    The copy has a new optimizer with the learning rate of the first part. A
    learning-rate schedule continues at the step where the first part ended.

    Callbacks get the model of each part and continuous epoch numbers. Their
    `on_train_begin` and `on_train_end` are called in both parts. If
    `EarlyStopping` ends the first part, the second begins. A `ModelCheckpoint`
    with `save_best_only` may keep a model of the first part: put `{epoch}` into
    its path. `CSVLogger` needs `append=True`. `BackupAndRestore` resumes in
    either part, from a folder for each.

    If the model was made in a strategy's scope, the copy is made there as well.
    Ctrl-C raises `KeyboardInterrupt`, as in `fit`. The trained tables are then
    in `model`, and all finished epochs in `model.history`.

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
        x, y: Same as in `fit`. A Python generator is not started again.
        epochs: Integer of at least 2. The epochs of both parts.
        table_epochs: Optional integer from 1 to `epochs - 1`. The epochs with
            plain tables. Defaults to `None`: half of `epochs`. With validation
            data, the first part ends earlier if `val_loss` gets worse, and has
            the weights of its best epoch.
        seed: Optional integer. Seed of the learners. Defaults to `None`: drawn
            from Python's `random`, which `keras.utils.set_random_seed` sets.
        verbose: Same as in `fit`. Unless `0`, it also prints sizes. Defaults to
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
    options = layers, seed, with_text_tensors(sample_inputs)
    history = keras.callbacks.History()
    given = keras.tree.flatten(kwargs.pop("callbacks", None) or [])
    first_callbacks = [*_with_backups(given, "tables"), history]
    callbacks = [*_with_backups(given, "compressed"), history]
    if table_epochs is None:
        table_epochs = epochs // 2
        data = kwargs.get("validation_data")
        if data is not None or kwargs.get("validation_split"):
            first_callbacks.append(
                keras.callbacks.EarlyStopping(restore_best_weights=True)
            )
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
        options = *options, int(verbose != 0)
        if isinstance(how, Budget):
            small = compress_model(model, how, *options)
        else:
            data = x if isinstance(x, tf.data.Dataset) else (x,)
            batches = batches_of(data, options[2])
            small = compress_by(model, how, *options, batches)
        _continue_schedule(small, model)
    small.fit(
        x,
        y,
        # The first part has no epoch if a backup had them all.
        initial_epoch=done[-1] + 1 if done else table_epochs,
        epochs=epochs,
        callbacks=callbacks,
        verbose=verbose,
        **kwargs,
    )
    for each in given:
        if _is_backup(each) and each.delete_checkpoint:
            # The folder may be remote, or empty with a rare `save_freq`.
            if tf.io.gfile.exists(each.backup_dir):
                tf.io.gfile.rmtree(each.backup_dir)
    history.epoch = done + history.epoch
    small.history = history
    return small


def _with_backups(callbacks, part):
    """Callbacks with backups in a folder of one part, kept until the end."""
    return [
        keras.callbacks.BackupAndRestore(
            os.path.join(each.backup_dir, part),
            each.save_freq,
            each.double_checkpoint,
            delete_checkpoint=False,
        )
        if _is_backup(each)
        else each
        for each in callbacks
    ]


def _is_backup(callback):
    return type(callback) is keras.callbacks.BackupAndRestore


def _try_to_copy(model, how, layers, seed, sample_inputs):
    """Raises if the model cannot be compressed, before time is spent."""
    options = layers, seed, sample_inputs, 0
    if isinstance(how, Budget):
        how.check(model)
        find_searched_tables(model, how, *options)
        small = copy_checked(model, [], sample_inputs)
    else:
        _, small, _ = with_new_tables(model, how, *options)
    compile_like(small, model)
    require(
        small.compiled,
        "`model` must have compile arguments that can be copied.",
        model=model.name,
    )
    _continue_schedule(small, model)


def _continue_schedule(small, model):
    """Makes a learning-rate schedule continue after the model's steps."""
    for item in held_objects(small.optimizer):
        if isinstance(item, keras.optimizers.schedules.LearningRateSchedule):
            inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
            per_update = inner.gradient_accumulation_steps or 1
            steps = per_update * keras.ops.convert_to_numpy(inner.iterations)
            small.optimizer.learning_rate = LaterSchedule(item, int(steps))
            return


@keras.saving.register_keras_serializable(package="keras_compembed")
class LaterSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A learning-rate schedule that begins at a later step."""

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
