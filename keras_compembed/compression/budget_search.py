"""Options of a search for the best way to store tables in few bytes."""

import math
import numbers

import keras
import tensorflow as tf

from keras_compembed.export.check import TOLERANCES
from keras_compembed.export.runtimes import RUNTIMES
from keras_compembed.methods.method import check_method
from keras_compembed.utils.text_tensors import with_text_tensors
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_version


class BudgetSearch:
    """How `compress_model` looks for the best use of a number of bytes.

    Without data, the choice is by the error of rows: squared differences
    from the rows of the tables, over squared distances of these from their
    mean, weighted by `sample_weight` of `layer_settings`. On two text
    classifiers this error ranks methods as accuracy after tuning does.

    With training and validation data, the best few are trained further, each
    for as many epochs, and the choice is by the metric on validation data.
    Rows then count by how often they occur in training data, where no
    `sample_weight` is given and the model's graph tells what goes into its
    tables.

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((20,), dtype="int32"),
    ...     keras.layers.Embedding(2000, 32, name="words"),
    ...     keras.layers.GlobalAveragePooling1D(),
    ...     keras.layers.Dense(2),
    ... ])
    >>> search = BudgetSearch(
    ...     methods=[kc.methods.Codes(4, 16), kc.methods.Rounded(2)],
    ...     quantize="int8",
    ... )
    >>> small = kc.compression.compress_model(
    ...     model, max_bytes=16_000, search=search, seed=0, verbose=0
    ... )
    >>> search.frontier.chosen.methods
    {'words': 'codes 4x16'}

    Args:
        methods: Optional list of `keras_compembed.methods.Method`s to choose
            from. Defaults to `None`: tables of 8, 4 and 2 bits, narrow ones of
            4 and 2 bits, codes of all shapes, codes of a factor, and anchors,
            some thousands of settings.
        quantize: `None`, `"float16"`, `"int8"` or `"int8_codebooks"`, as in
            `keras_compembed.export.export_litert`: bytes are those of such a
            file. Defaults to `None`.
        min_runtime: Optional string, as in `export_litert`.
        runtime: `"litert"`, `"tf-text"` or `"mediapipe"`, as in
            `export_litert`. Of a model that takes texts, files for the last
            two hold its tokenizer, which counts. Defaults to `"litert"`.
        labels: Optional, as in `export_litert`: labels count too.
        input_signature: Optional structure of `tf.TensorSpec`, as in
            `export_litert`: subclassed models need it.
        train_data: Optional tuple `(x, y)` or `(x, y, sample_weight)`, or
            batched `tf.data.Dataset`, to train the best few further on. Texts
            may be a list or an array of strings.
        validation_data: Optional data of the same form. Needed with
            `train_data`, and for a limit of loss.
        epochs: Positive integer. Epochs of each that is trained; the weights
            of the best are kept. Defaults to `3`.
        num_tuned: Positive integer. How many are trained further. Defaults
            to `3`.
        fit_options: Optional dict of further arguments of `fit`, such as
            `{"batch_size": 64}`.
        compile: Optional callable that compiles a copy of the model, e.g.
            with a lower learning rate. Defaults to `None`: copies are
            compiled as the model is.
        metric: Optional string, a name among those that the model's
            `evaluate(return_dict=True)` gives. Defaults to `None`: its first
            metric, or `"loss"`.
        mode: Optional `"max"` or `"min"`, whether more of the metric is
            better. Defaults to `None`: as Keras knows it of its own metrics
            and losses. Metrics of other makers need it.
        max_time: Optional number of seconds, after which nothing more is
            tried. Defaults to `None`.

    Attributes:
        frontier: The `Frontier` of the last search, or None.

    Raises:
        ValueError: if an argument is out of range, or there is data to train
            on and none to validate with.
    """

    def __init__(
        self,
        methods=None,
        quantize=None,
        min_runtime=None,
        runtime="litert",
        labels=None,
        input_signature=None,
        train_data=None,
        validation_data=None,
        epochs=3,
        num_tuned=3,
        fit_options=None,
        compile=None,
        metric=None,
        mode=None,
        max_time=None,
    ):
        if methods is not None:
            methods = list(methods)
            for method in methods:
                check_method("methods", method)
            if not methods:
                raise ValueError(
                    "`methods` must be None or hold a method. Received: "
                    "methods=[]."
                )
            names = [method.name for method in methods]
            if len(set(names)) < len(names):
                raise ValueError(
                    "`methods` must differ in their names, by which they are "
                    f"told apart. Received: methods named {names}."
                )
        self.methods = methods
        self.quantize = check_choice("quantize", quantize, tuple(TOLERANCES))
        if min_runtime is not None:
            check_version("min_runtime", min_runtime)
        self.min_runtime = min_runtime
        self.runtime = check_choice("runtime", runtime, RUNTIMES)
        self.labels = labels
        self.input_signature = input_signature
        has_steps = "steps_per_epoch" in (fit_options or {})
        self.train_data = _check_data("train_data", train_data, has_steps)
        self.validation_data = _check_data("validation_data", validation_data)
        if train_data is not None and validation_data is None:
            raise ValueError(
                "`validation_data` must be given with `train_data`: the copy "
                "that is best on it is chosen. Received: validation_data=None."
            )
        self.epochs = check_positive_int("epochs", epochs)
        self.num_tuned = check_positive_int("num_tuned", num_tuned)
        self.fit_options = dict(fit_options or {})
        taken = {"x", "y", "validation_data", "epochs", "verbose"}
        if taken.intersection(self.fit_options):
            raise ValueError(
                "`fit_options` must not have what the search sets itself: "
                f"{', '.join(sorted(taken))}. Received: {fit_options!r}."
            )
        if compile is not None and not callable(compile):
            raise ValueError(
                "`compile` must be a callable that compiles the model it is "
                f"given. Received: compile={compile!r}."
            )
        self.compile = compile
        self.metric = metric
        self.mode = check_choice("mode", mode, (None, "max", "min"))
        self.max_time = max_time
        if max_time is not None:
            self.max_time = check_positive_number("max_time", max_time)
        self.frontier = None


def check_search(search):
    """Returns a `BudgetSearch`; a new one for None."""
    if search is None:
        return BudgetSearch()
    if not isinstance(search, BudgetSearch):
        raise TypeError(
            "`search` must be a `keras_compembed.compression.BudgetSearch`. "
            f"Received: search={search!r}."
        )
    return search


def check_budget(model, max_bytes, ratio, max_loss, search):
    """Raises unless exactly one limit is given, which can be searched for."""
    given = {"max_bytes": max_bytes, "ratio": ratio, "max_loss": max_loss}
    given = {name: x for name, x in given.items() if x is not None}
    if len(given) != 1:
        raise ValueError(
            "One of `max_bytes`, `ratio` and `max_loss` must be given, and no "
            f"more. Received: {given or 'none'}."
        )
    ((name, value),) = given.items()
    if name == "max_bytes":
        check_positive_int(name, value)
    elif name == "ratio":
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value <= 1:
            raise ValueError(
                f"`ratio` must be a number above 1. Received: ratio={value!r}."
            )
    else:
        check_positive_number(name, value, zero=True)
        if search.validation_data is None:
            raise ValueError(
                "`max_loss` needs validation data, on which the loss is "
                "measured: pass `search=keras_compembed.compression."
                "BudgetSearch(validation_data=(x, y))`, and `train_data` to "
                "train what is found further. Received: "
                f"max_loss={value!r}, validation_data=None."
            )
    has_data = search.validation_data is not None
    if has_data and not model.compiled and search.compile is None:
        raise ValueError(
            "`model` must be compiled where there is data, so that copies can "
            "be trained and evaluated, or `search` must have a `compile`. "
            f"Received: {model.name!r}, which is not compiled."
        )


def _check_data(name, data, has_steps=False):
    if data is None:
        return data
    if isinstance(data, tf.data.Dataset):
        endless = data.cardinality() == tf.data.INFINITE_CARDINALITY
        if endless and not has_steps:
            raise ValueError(
                f"`{name}` must end: take so many batches of it, as "
                "`dataset.take(100)`. Received: a `tf.data.Dataset` without "
                "an end."
            )
        return data
    if not isinstance(data, tuple) or len(data) not in (2, 3):
        raise ValueError(
            f"`{name}` must be a tuple (x, y) or (x, y, sample_weight), or a "
            f"batched `tf.data.Dataset`. Received: {name} of type "
            f"{type(data).__name__}."
        )
    data = with_text_tensors(data)
    lengths = {len(part) for part in keras.tree.flatten(data)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"`{name}` must have as many labels as examples, and at least "
            f"one. Received: arrays of lengths {sorted(lengths)}."
        )
    return data
