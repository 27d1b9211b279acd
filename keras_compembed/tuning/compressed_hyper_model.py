"""Tuning how the tables of a trained model are stored."""

import keras
import keras_tuner

from keras_compembed.compression.compress_model import compress_model
from keras_compembed.tuning.file_bytes import FileBytes
from keras_compembed.tuning.method_families import method_families
from keras_compembed.tuning.objective_check import TrialCallback
from keras_compembed.tuning.objective_check import check_validation
from keras_compembed.tuning.objective_check import may_report
from keras_compembed.tuning.objective_check import objective_names
from keras_compembed.tuning.search_space import LEARNING_RATE
from keras_compembed.tuning.search_space import SearchSpace
from keras_compembed.tuning.search_space import check_families
from keras_compembed.tuning.search_space import check_rates
from keras_compembed.tuning.tables import Tables
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_seed


class CompressedHyperModel(keras_tuner.HyperModel):
    """A trained model whose tables a tuner stores in one way after another.

    Each trial starts from the trained model: `compress_model` fits the trial's
    method to its tables and copies all other weights, and the copy is trained
    further with what `search` is given.

    The hyperparameters are `"method"`, a family of methods; for each family,
    one of its name that says which of its methods; and `"learning_rate"`. Of
    methods only those are there with which the LiteRT file has at most
    `max_bytes`, by arithmetic that is done before anything is built: no oracle
    can propose another. They stand in the order of their bytes.

    Any tuner of keras-tuner takes it; `pareto_front` shows what came out.

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
    ...     model, max_bytes=20_000, min_bytes=0, seed=0, verbose=0
    ... )
    >>> tuner = keras_tuner.RandomSearch(
    ...     hypermodel, objective="val_loss", max_trials=2, seed=0,
    ...     directory="tuning",
    ... )
    >>> tuner.search(
    ...     ids, labels, validation_data=(ids, labels), epochs=1, verbose=0
    ... )
    >>> front = kc.tuning.pareto_front(tuner)
    >>> all(trial.litert_bytes <= 20_000 for trial in front.trials)
    True

    Args:
        model: A built and compiled `keras.Model`. It is left as it is, and
            must not be trained further during the search.
        methods: Optional dict from names of families to lists of
            `keras_compembed.methods.Method`. Defaults to `None`: what
            `method_families` gives.
        max_bytes: Optional integer, the bytes that the LiteRT file of the
            whole model may have. Defaults to `None`: every method that makes
            tables smaller.
        layers: Same as in `compress_model`. Where there are several tables, a
            trial stores all by one method.
        layer_settings: Optional dict from a layer's name to a dict of its
            `sample_weight` and `pooled`, see `compress_model`.
        min_bytes: Same as in `compress_model`. Defaults to `65536`.
        learning_rates: Optional list of numbers, the rates to choose from.
            Defaults to `None`: that of the model's optimizer.
        quantize: Same as in `export_litert`.
        min_runtime: Same as in `export_litert`.
        input_signature: Same as in `export_litert`.
        seed: Optional integer. Makes the same of the same trial. Defaults to
            `None`.
        verbose: `0` or `1`, whether to say what is fitted. Defaults to `1`.

    Raises:
        TypeError: if `model` is no `keras.Model`.
        ValueError: if the model is not built or not compiled, has no tables,
            or cannot be exported, if nothing fits into `max_bytes`, or an
            argument is out of range.
    """

    def __init__(
        self,
        model,
        methods=None,
        max_bytes=None,
        layers=None,
        layer_settings=None,
        min_bytes=65_536,
        learning_rates=None,
        quantize=None,
        min_runtime=None,
        input_signature=None,
        seed=None,
        verbose=1,
    ):
        super().__init__()
        _check_model(model, learning_rates)
        if max_bytes is not None:
            max_bytes = check_positive_int("max_bytes", max_bytes)
        check_positive_int("min_bytes", min_bytes, minimum=0)
        families = check_families(
            method_families() if methods is None else methods
        )
        learning_rates = check_rates(learning_rates)
        self.model = model
        self.max_bytes = max_bytes
        self.seed = check_seed(seed)
        self.verbose = verbose
        tables = Tables(model, layers, layer_settings, min_bytes)
        self._layers = list(tables.layers)
        self._settings = tables.settings
        self._files = FileBytes(
            model,
            tables,
            {
                "quantize": quantize,
                "min_runtime": min_runtime,
                "input_signature": input_signature,
            },
        )
        self.space = SearchSpace(
            families, self._files.most, max_bytes, learning_rates
        )
        self._trained = None, 0

    @property
    def original_bytes(self):
        """Integer, bytes of the LiteRT file of the model as it is."""
        return self._files.original_bytes

    def declare_hyperparameters(self, hp):
        self.space.declare(hp)

    def build(self, hp):
        """The compressed copy of a trial, compiled, not trained further.

        Args:
            hp: `keras_tuner.HyperParameters`.

        Returns:
            A `keras.Model`.
        """
        if not self.space.is_declared(hp):
            # Tuners have declared them; a scope that is opened again makes
            # them build once for each family, to see what is in it.
            self.space.declare(hp)
        method = self.space.method(hp)
        self._set_seed(hp)
        model = compress_model(
            self.model,
            layers=self._layers,
            layer_settings=self._settings,
            method=method,
            seed=self.seed,
            verbose=self.verbose,
        )
        if self.space.learning_rates:
            model.optimizer.learning_rate = hp.get(LEARNING_RATE)
        return model

    def fit(self, hp, model, *args, callbacks=(), **kwargs):
        """Trains the model of a trial.

        Returns:
            A `keras.callbacks.History`, with `"litert_bytes"`.
        """
        callbacks = list(callbacks or ())
        names, may_get_more, has_validation = [], True, True
        for place, callback in enumerate(callbacks):
            if hasattr(callback, "tuner"):
                names = objective_names(callback.tuner.oracle.objective)
                has_validation = check_validation(names, args, kwargs)
                may_get_more = any(map(may_report, callbacks[:place]))
        size = self._files.counted(self.space.method(hp), model)
        self._set_seed(hp)
        for_logs = TrialCallback(size, names, has_validation, may_get_more)
        # Where callbacks may report metrics, it is to see them; what keeps
        # the best epoch is the last, and is to see the bytes.
        callbacks.insert(max(0, len(callbacks) - 1), for_logs)
        history = model.fit(*args, callbacks=callbacks, **kwargs)
        values, count = self._trained
        same = values == hp.values
        self._trained = dict(hp.values), count + 1 if same else 1
        return history

    def _set_seed(self, hp):
        """Executions of one trial have seeds of their own."""
        if self.seed is not None:
            values, count = self._trained
            more = count if values == hp.values else 0
            keras.utils.set_random_seed((self.seed + more) % 2**32)


def _check_model(model, learning_rates):
    if not isinstance(model, keras.Model):
        raise TypeError(
            f"`model` must be a `keras.Model`. Received: model={model!r}."
        )
    if not model.built or not model.compiled:
        raise ValueError(
            "`model` must be built and compiled, so that trials can be trained "
            f"as it was. Received: built={model.built}, "
            f"compiled={model.compiled}."
        )
    rate = model.optimizer.get_config()["learning_rate"]
    if learning_rates is not None and isinstance(rate, dict):
        raise ValueError(
            "`learning_rates` must be None where the optimizer has a schedule. "
            f"Received: learning_rates={learning_rates!r}."
        )
