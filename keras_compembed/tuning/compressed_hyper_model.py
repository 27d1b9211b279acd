"""A keras-tuner hypermodel for compression methods."""

import copy
import math

import keras
import keras_tuner

from keras_compembed.compression.budget import Budget
from keras_compembed.compression.budget import check_budget
from keras_compembed.compression.budget import count_file
from keras_compembed.compression.compress_model import compress_model
from keras_compembed.compression.find_size import find_searched_tables
from keras_compembed.methods.anchors import Anchors
from keras_compembed.methods.codes import Codes
from keras_compembed.methods.quantized import Quantized
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_seed
from keras_compembed.utils.validation import require

_BYTES = "litert_bytes"
_METHOD, _RATE = "method", "learning_rate"
# Most bytes that a method's lookup adds to the graph, for each table. The
# largest seen is 4,500.
_LOOKUP_BYTES = 8192


class CompressedHyperModel(keras_tuner.HyperModel):
    """A hypermodel that compresses and fine-tunes a trained model.

    Each trial starts from the trained model. `compress_model` stores its tables
    by the trial's method, and the copy is trained with the arguments of
    `search`. The size of its LiteRT file is the metric `"litert_bytes"`.

    The hyperparameters are `"method"`, method names in the order of size, and
    `"learning_rate"`. Methods with an estimated size above `max_bytes` are left
    out. A trial with a larger file than `max_bytes` fails before training. It
    works with every tuner of keras-tuner.

    Example:

    >>> import keras_tuner
    >>> model = keras.Sequential([
    ...     keras.Input((8,), dtype="int32"),
    ...     keras.layers.Embedding(500, 16, name="words"),
    ...     keras.layers.GlobalAveragePooling1D(),
    ...     keras.layers.Dense(1),
    ... ])
    >>> model.compile("adam", "mse")
    >>> ids = np.random.default_rng(0).integers(500, size=(64, 8))
    >>> labels = np.zeros((64, 1))
    >>> hypermodel = CompressedHyperModel(
    ...     model, kc.Budget(20_000), layers=["words"], seed=0, verbose=0
    ... )
    >>> tuner = keras_tuner.RandomSearch(
    ...     hypermodel, objective="val_loss", max_trials=2, seed=0,
    ...     directory="tuning",
    ... )
    >>> tuner.search(
    ...     ids, labels, validation_data=(ids, labels), epochs=1, verbose=0
    ... )
    >>> small, = tuner.get_best_models()
    >>> trial, = tuner.oracle.get_best_trials()
    >>> bool(trial.metrics.get_best_value("litert_bytes") <= 20_000)
    True

    Args:
        model: A built and compiled `keras.Model`. It does not change. Do not
            train it during the search.
        budget: Optional `keras_compembed.Budget` without `max_loss`, `data` and
            `max_time`. Its `max_bytes` is the size limit of the LiteRT file,
            and its `methods` are the choices. Defaults to `None`: no limit, and
            some fifty settings of quantized, low-rank, code and anchor methods.
        layers: Same as in `compress_model`. A trial stores all tables by one
            method. Defaults to `None`.
        learning_rates: Optional list of learning rates to choose from. Defaults
            to `None`: the learning rate of the model's optimizer.
        seed: Optional integer. Makes the search repeatable. Defaults to `None`.
        verbose: `0` or `1`. Whether to print progress. Defaults to `1`.

    Raises:
        ValueError: If the model is not compiled, has no tables or cannot be
            exported, or no method fits `max_bytes`.
    """

    def __init__(
        self,
        model: keras.Model,
        budget: Budget | None = None,
        layers: list | None = None,
        learning_rates: list | None = None,
        seed: int | None = None,
        verbose: int = 1,
    ):
        super().__init__()
        require(
            isinstance(model, keras.Model) and model.built and model.compiled,
            "`model` must be a `keras.Model` that is built and compiled.",
            model=model,
        )
        budget = copy.copy(check_budget(budget))
        require(
            (budget.max_loss, budget.data, budget.max_time) == 3 * (None,)
            and budget.inputs is None,
            "`budget` must not set `max_loss`, `data`, `inputs` or `max_time`.",
            max_loss=budget.max_loss,
            data=budget.data,
            max_time=budget.max_time,
        )
        if budget.methods is None:
            budget.methods = _methods_by_default()
        self._rates = [
            check_positive_number("learning_rates", rate)
            for rate in learning_rates or ()
        ]
        rate = model.optimizer.get_config()["learning_rate"]
        require(
            not self._rates or not isinstance(rate, dict),
            "`learning_rates` must be None for an optimizer with a schedule.",
            learning_rates=learning_rates,
        )
        self.model = model
        self.max_bytes = budget.max_bytes
        self.seed = check_seed(seed)
        self.verbose = verbose
        self._budget = budget
        tables = find_searched_tables(model, budget, layers, seed, None, 0)
        self._weights = {table.name: table.sample_weight for table in tables}
        self.original_bytes = self._count(model)
        self._methods = self._methods_that_fit(tables)
        self._bytes, self._fits = {}, 0

    def _methods_that_fit(self, tables):
        """Dict of methods by name, in the order of bytes."""
        quantize = self._budget.quantize
        number = {"float16": 2, "int8": 1}.get(quantize, 4)
        before = sum(
            number * table.layer.input_dim * table.layer.output_dim
            for table in tables
        )
        room = self.original_bytes - before + _LOOKUP_BYTES * len(tables)
        sizes = {}
        for method in self._budget.methods:
            found = [x.bytes_by_method.get(method, before) for x in tables]
            if sum(found) < before:
                sizes[method] = sum(found)
        require(
            sizes,
            "`methods` must have one that makes the tables smaller.",
            methods=[method.name for method in self._budget.methods],
        )
        least = room + min(sizes.values())
        limit = self.max_bytes or math.inf
        require(
            least <= limit,
            f"`max_bytes` must be at least {least:,}, the size with the "
            "smallest method.",
            max_bytes=self.max_bytes,
        )
        return {
            method.name: method
            for method in sorted(sizes, key=sizes.get)
            if room + sizes[method] <= limit
        }

    def build(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        """Returns the compressed and compiled model of a trial."""
        name = hp.Choice(_METHOD, list(self._methods))
        rate = hp.Choice(_RATE, self._rates) if self._rates else None
        if self.seed is not None:
            keras.utils.set_random_seed(self.seed)
        method = self._methods[name]
        model = compress_model(
            self.model,
            {x: method.for_table(w) for x, w in self._weights.items()},
            seed=self.seed,
            verbose=self.verbose,
        )
        if rate is not None:
            model.optimizer.learning_rate = rate
        return model

    def fit(
        self,
        hp: keras_tuner.HyperParameters,
        model: keras.Model,
        *args: object,
        callbacks: list | tuple = (),
        **kwargs: object,
    ) -> keras.callbacks.History:
        """Trains the model of a trial, unless it exceeds `max_bytes`."""
        name = hp.get(_METHOD)
        if name not in self._bytes:
            self._bytes[name] = self._count(model)
        size = self._bytes[name]
        if self.max_bytes is not None and size > self.max_bytes:
            raise keras_tuner.errors.FailedTrialError(
                f"`max_bytes` must be at least {size:,} for method {name!r}. "
                f"Received: max_bytes={self.max_bytes}."
            )
        # keras-tuner's last callback reads the logs.
        logging = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: logs.update({_BYTES: size})
        )
        callbacks = [logging, *(callbacks or ())]
        if self.seed is not None:
            # Each execution of a trial gets another seed.
            self._fits += 1
            keras.utils.set_random_seed(self.seed + self._fits)
        return model.fit(*args, callbacks=callbacks, **kwargs)

    def _count(self, model):
        return count_file(model, self._budget, self._budget.quantize).file_bytes


def _methods_by_default():
    ranks, sizes = (None, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16, 32, 64)
    rows = [Quantized(bits, rank=r) for r in ranks for bits in (2, 4, 8)]
    codes = [Codes(m, k) for m in sizes for k in (4, 16, 256)]
    codes += [Codes(m, 16, rank=r) for m in sizes[2:6] for r in (8, 32)]
    anchors = [Anchors(a, n) for a in (50, 200) for n in (2, 4, 8)]
    return rows + codes + anchors
