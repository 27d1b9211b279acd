"""Size limits and accuracy limits for the search of methods."""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.exchange.model_copy import copy_model
from keras_compembed.export.export_litert import make_file
from keras_compembed.export.target import Target
from keras_compembed.export.target import check_target
from keras_compembed.layers.top_classes import list_heads
from keras_compembed.layers.top_classes import top_k_model
from keras_compembed.litert.litert_form import TOLERANCES
from keras_compembed.methods.method import check_method
from keras_compembed.utils.files import number_of_bytes
from keras_compembed.utils.model_parts import is_open
from keras_compembed.utils.text_tensors import with_text_tensors
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import require

# One in ten inputs without labels is held out.
HELD = 10
# Names of Keras accuracies in logs.
_ACCURACIES = "acc", "accuracy", "auc"


@dataclasses.dataclass(eq=False)
class TuningData:
    """Data to train and compare compressed copies for a `Budget`.

    `train` and `validation` are tuples `(x, y)` or `(x, y, sample_weight)`, or
    batched `tf.data.Dataset`s. Texts may be lists or arrays of strings.

    Example:

    >>> ids, labels = np.zeros((8, 20), "int32"), np.zeros(8)
    >>> data = TuningData((ids, labels), (ids, labels), epochs=2)

    Args:
        train: Training data for the best few copies, or None to train none.
        validation: Validation data to compare copies.
        epochs: Positive integer. Training epochs per copy. The weights of the
            best epoch are kept. Defaults to `3`.
        num_tuned: Positive integer. Copies to train. Defaults to `3`.
        fit_options: Optional dict of further arguments of `fit`, such as
            `{"batch_size": 64}`. Defaults to `None`.
        compile: Optional callable that compiles a copy of the model, e.g. with
            a lower learning rate. Defaults to `None`: as the model is compiled.
        metric: Optional string, a key in the result of the model's
            `evaluate(return_dict=True)`. Defaults to `None`: the first metric,
            or `"loss"`.
        mode: `"max"`, `"min"` or None. Whether a higher metric is better.
            Custom metrics need it. Defaults to `None`: inferred for Keras's
            metrics and losses.

    Raises:
        ValueError: If data do not have this form, or a value is invalid.
    """

    train: object
    validation: object
    epochs: int = 3
    num_tuned: int = 3
    fit_options: dict | None = None
    compile: Callable | None = None
    metric: str | None = None
    mode: str | None = None

    def __post_init__(self):
        self.fit_options = dict(self.fit_options or {})
        if self.train is not None:
            has_steps = "steps_per_epoch" in self.fit_options
            self.train = _check_data("train", self.train, has_steps)
        self.validation = _check_data("validation", self.validation)
        check_positive_int("epochs", self.epochs)
        check_positive_int("num_tuned", self.num_tuned)
        taken = {"x", "y", "validation_data", "epochs", "verbose"}
        require(
            not taken.intersection(self.fit_options),
            f"`fit_options` must not set {', '.join(sorted(taken))}.",
            fit_options=self.fit_options,
        )
        require(
            self.compile is None or callable(self.compile),
            "`compile` must be a function of a model.",
            compile=self.compile,
        )
        check_choice("mode", self.mode, (None, "max", "min"))


class Budget:
    """A limit for `compress_model`, which then searches for the best methods.

    The limit is a file size, or how much worse a validation metric may get.
    Without `data`, the search minimizes the error of rows: their squared error
    over their squared distance from the mean row, weighted by `sample_weight`.
    On two text classifiers, this error ranks methods as tuned accuracy does.

    With `data`, the best few methods are trained further and compared by the
    validation metric. With `inputs`, which need no labels, they are trained by
    `keras_compembed.compression.distill` and compared by its loss.

    In a Sequential or functional model, rows are weighted by how often the
    training data or `inputs` read them, or else the `sample_inputs` of
    `compress_model`, unless `sample_weight` is given.

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((20,), dtype="int32"),
    ...     keras.layers.Embedding(2000, 32, name="words"),
    ...     keras.layers.GlobalAveragePooling1D(),
    ...     keras.layers.Dense(2),
    ... ])
    >>> methods = [kc.methods.Codes(4, 16), kc.methods.Quantized(2)]
    >>> budget = Budget("16k", methods=methods, quantize="int8")
    >>> small = kc.compress_model(model, budget, seed=0, verbose=0)
    >>> budget.frontier.chosen.methods
    {'words': 'codes 4x16'}

    Args:
        max_bytes: Optional integer, or string such as `"2MB"`. Size limit of
            the LiteRT file. Defaults to `None`.
        max_loss: Optional number of at least 0, instead of `max_bytes`. How
            much worse the validation metric may get, or the loss of `inputs`.
            Finds the smallest file within it. Defaults to `None`.
        data: Optional `keras_compembed.compression.TuningData`. `max_loss`
            needs it, or `inputs`. Defaults to `None`.
        target, quantize, labels, top_k: Same as in `export_litert`. They define
            the file to be measured, with its tokenizer, labels and metadata.
            `quantize` defaults to `"int8"`.
        methods: Optional list of methods of `keras_compembed.methods` to choose
            from. Defaults to `None`: some thousands of settings of quantized,
            low-rank, code and anchor methods.
        sample_weight: Optional dict from layer names or paths to arrays
            `(input_dim,)`, the weight of each row. Defaults to `None`.
        max_time: Optional number. Seconds after which no further method is
            tried. Defaults to `None`: no limit.
        inputs: Optional arrays or texts, instead of `data`. Defaults to `None`.

    Attributes:
        frontier: The `Frontier` of the last search, or None.

    Raises:
        ValueError: If an argument is invalid, or conflicts with another.
    """

    def __init__(
        self,
        max_bytes: int | str | None = None,
        max_loss: float | None = None,
        data: TuningData | None = None,
        target: Target | None = None,
        methods: list | None = None,
        quantize: str | None = "int8",
        labels: list | dict | None = None,
        top_k: int | None = None,
        sample_weight: dict | None = None,
        max_time: float | None = None,
        inputs: object = None,
    ):
        self.max_bytes = max_bytes
        if max_bytes is not None:
            self.max_bytes = number_of_bytes("max_bytes", max_bytes)
        self.max_loss = max_loss
        require(
            isinstance(data, TuningData | None),
            "`data` must be a `keras_compembed.compression.TuningData`.",
            data=data,
        )
        require(
            inputs is None or data is None,
            "`inputs` must be None with `data`.",
            inputs=type(inputs),
        )
        self.data, self.inputs = data, with_text_tensors(inputs)
        if inputs is not None:
            count_examples(self.inputs, HELD)
        if max_loss is not None:
            check_positive_number("max_loss", max_loss, zero=True)
            require(
                data or inputs is not None,
                "`data` or `inputs` must be set with `max_loss`.",
                data=data,
            )
            require(
                max_bytes is None,
                "`max_bytes` must be None with `max_loss`.",
                max_bytes=max_bytes,
            )
        self.target = check_target(target)
        require(
            self.target.max_bytes in ("budget", None, self.max_bytes),
            "`target` must have no `max_bytes`, or that of the budget.",
            max_bytes=self.max_bytes,
            target=self.target.max_bytes,
        )
        require(
            methods is None or isinstance(methods, (list, tuple)),
            "`methods` must be None or a list of methods.",
            methods=methods,
        )
        self.methods = None if methods is None else list(methods)
        for method in methods or ():
            check_method("methods", method)
            require(
                method.is_plain,
                "`methods` of a budget must not use `for_table` or "
                "`recode_every`.",
                method=method.name,
            )
        names = [method.name for method in methods or ()]
        require(
            methods is None or (names and len(set(names)) == len(names)),
            "`methods` must have different names.",
            methods=names,
        )
        self.quantize = check_choice("quantize", quantize, tuple(TOLERANCES))
        self.labels = labels
        self.top_k = top_k
        require(
            isinstance(sample_weight, dict | None),
            "`sample_weight` must be a dict from layer names to arrays.",
            sample_weight=sample_weight,
        )
        self.sample_weight = sample_weight or {}
        self.max_time = max_time
        if max_time is not None:
            check_positive_number("max_time", max_time)
        self.frontier = None

    def check(self, model: keras.Model) -> None:
        """Raises an error if there is no limit to search for."""
        require(
            (self.max_bytes, self.max_loss) != (None, None),
            "`budget` must have `max_bytes` or `max_loss`.",
            max_bytes=None,
            max_loss=None,
        )
        require(
            not self.data or model.compiled or self.data.compile,
            "`model` must be compiled, or `data` must have a `compile`.",
            model=f"{model.name}, not compiled",
        )


def count_examples(inputs, least=1):
    """The number of examples in arrays."""
    shapes = [getattr(x, "shape", ()) for x in keras.tree.flatten(inputs)]
    lengths = {shape[0] if len(shape) else 0 for shape in shapes}
    require(
        len(lengths) == 1 and min(lengths) >= least,
        f"`inputs` must be arrays of the same length, at least {least}.",
        lengths=sorted(lengths),
        inputs=type(inputs).__name__,
    )
    return lengths.pop()


def check_budget(budget):
    """Returns the budget, or a new `Budget` for None."""
    budget = Budget() if budget is None else budget
    if not isinstance(budget, Budget):
        raise TypeError(
            "`budget` must be a `keras_compembed.Budget`. Received: "
            f"budget={budget!r}."
        )
    return budget


def count_file(model, budget, quantize, sample_inputs=None):
    """The `LiteRTExport` of a model, without writing a file."""
    target = dataclasses.replace(budget.target, max_bytes=None)
    signature = None
    if sample_inputs is not None and not is_open(model):
        signature = keras.tree.map_structure(_spec, sample_inputs)
    if target.runtime == "mediapipe" and budget.labels is None:
        # A task without labels; the graph is the same with a class head.
        target = dataclasses.replace(target, task="embedder")
        if any(list_heads(model)):
            model = top_k_model(model, None)
    return make_file(
        model,
        input_signature=signature,
        quantize=quantize,
        labels=budget.labels,
        top_k=budget.top_k,
        target=target,
        is_trained_later=True,
    )


def _spec(array):
    array = np.asarray(array)
    return tf.TensorSpec((None, *array.shape[1:]), array.dtype)


def _check_data(name, data, has_steps=False):
    if isinstance(data, tf.data.Dataset):
        endless = data.cardinality() == tf.data.INFINITE_CARDINALITY
        require(
            has_steps or not endless,
            f"`{name}` must be finite, e.g. `dataset.take(100)`.",
            **{name: data},
        )
        return data
    require(
        isinstance(data, tuple) and len(data) in (2, 3),
        f"`{name}` must be a tuple (x, y) or (x, y, sample_weight), or a "
        "batched `tf.data.Dataset`.",
        type=type(data).__name__,
    )
    data = with_text_tensors(data)
    lengths = {len(part) for part in keras.tree.flatten(data)}
    require(
        len(lengths) == 1 and 0 not in lengths,
        f"`{name}` must have as many labels as examples, at least one.",
        lengths=sorted(lengths),
    )
    return data


class TunedCopies:
    """Trains copies and compares them on validation data."""

    def __init__(self, model, data, seed):
        self._model = model
        self._data = data
        self._seed = seed
        self.metric, self.number = data.metric, data.num_tuned
        self.is_higher_better = None

    def score_of_original(self):
        """The metric of the original model."""
        if self._model.compiled:
            return self.score(self._model)
        copy = copy_model(self._model)
        self._data.compile(copy)
        return self.score(copy)

    def score(self, model):
        """The validation metric of a compiled model."""
        figures = model.evaluate(
            **self._arguments(self._data.validation),
            verbose=0,
            return_dict=True,
        )
        if self.metric is None:
            self.metric = next((x for x in figures if x != "loss"), "loss")
        if self.metric not in figures:
            raise ValueError(
                "`metric` must be a key in the result of `evaluate`: "
                f"{', '.join(figures)}. Received: metric={self.metric!r}."
            )
        if self.is_higher_better is None:
            mode = self._data.mode or _mode_of_metric(model, self.metric)
            self.is_higher_better = mode == "max"
        return float(figures[self.metric])

    def loss(self, score):
        """A score as a loss: lower is better."""
        return -score if self.is_higher_better else score

    def tune(self, copy):
        """Trains a copy and keeps the weights of its best epoch."""
        score = self.score(copy)
        if self._data.train is None:
            return score, False
        best = BestEpoch(
            copy.weights,
            self.loss(score),
            lambda logs: self.loss(self.score(copy)),
        )
        if self._seed is not None:
            keras.utils.set_random_seed(self._seed)
        data = self._data.train
        options = {
            # Keras warns if asked to shuffle a dataset.
            "shuffle": not isinstance(data, tf.data.Dataset),
            **self._arguments(data),
            **self._data.fit_options,
        }
        own = options.pop("callbacks", None)
        own = keras.tree.flatten(getattr(own, "callbacks", own) or [])
        interrupted = False
        try:
            copy.fit(
                **options,
                epochs=self._data.epochs,
                callbacks=[*own, best],
                verbose=0,
            )
        except KeyboardInterrupt:
            interrupted = True
        best.restore()
        # Twice minus is plus.
        return self.loss(best.loss), interrupted

    def _arguments(self, data):
        """Data as arguments of `fit` and `evaluate`."""
        if isinstance(data, tf.data.Dataset):
            return {"x": data}
        names = ("x", "y", "sample_weight")
        arguments = dict(zip(names, data, strict=False))
        size = self._data.fit_options.get("batch_size")
        return arguments if size is None else {**arguments, "batch_size": size}


class BestEpoch(keras.callbacks.Callback):
    """Keeps variables of the epoch with the lowest loss, or of the start."""

    def __init__(self, variables, loss, loss_of):
        super().__init__()
        self._variables, self._loss_of = variables, loss_of
        self._keep(loss)

    def _keep(self, loss):
        self.loss, self._kept = loss, [x.numpy() for x in self._variables]

    def on_epoch_end(self, epoch, logs=None):
        loss = self._loss_of(logs)
        if loss < self.loss:
            self._keep(loss)

    def restore(self):
        for variable, value in zip(self._variables, self._kept, strict=True):
            variable.assign(value)


def _mode_of_metric(model, name):
    """`"max"` if a higher metric is better, else `"min"`."""
    if name == "loss" or name.endswith("_loss"):
        return "min"
    found = [
        metric
        for metric in _metrics_within(model.metrics)
        if name == metric.name or name.endswith(f"_{metric.name}")
    ]
    longest = max((len(metric.name) for metric in found), default=0)
    directions = {
        # Keras's callbacks read it as well.
        getattr(metric, "_direction", None)
        for metric in found
        if len(metric.name) == longest
    }
    if directions == {"up"}:
        return "max"
    if directions == {"down"}:
        return "min"
    if name.rpartition("_")[2] in _ACCURACIES:
        return "max"
    raise ValueError(
        '`mode` must be "max" or "min" for a metric that Keras does not know. '
        f"Received: mode=None, metric={name!r}."
    )


def _metrics_within(metrics):
    """Yields metrics, also those within compiled metrics."""
    for metric in metrics:
        yield metric
        inner = getattr(metric, "metrics", None)
        if isinstance(metric, keras.metrics.Metric) and inner:
            yield from _metrics_within(inner)
