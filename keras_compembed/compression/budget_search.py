"""Options of a search for the best way to store tables in few bytes."""

import keras
import tensorflow as tf

from keras_compembed.export.target import Target
from keras_compembed.litert.litert_form import TOLERANCES
from keras_compembed.methods.method import check_method
from keras_compembed.utils.text_tensors import with_text_tensors
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import require


class BudgetSearch:
    """How `compress_model` looks for the best use of a number of bytes.

    Without data, the choice is by the error of rows: squared differences
    from the rows of the tables, over squared distances of these from their
    mean, weighted by `sample_weight` of `layer_settings`. On two text
    classifiers this error ranks methods as accuracy after tuning does.

    With training and validation data, the best few are trained further, and
    the choice is by the metric on validation data. Rows then count by how
    often they occur in training data, where no `sample_weight` is given and
    the model's graph tells what goes into its tables.

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
        methods: Optional list of methods of `keras_compembed.methods` to
            choose from. Defaults to `None`: tables of 8, 4 and 2 bits, low-rank
            ones of 4 and 2 bits, codes of all shapes, low-rank codes, and
            anchors, some thousands of settings.
        quantize: As in `keras_compembed.export.export_litert`: bytes are
            those of such a file. Defaults to `None`.
        runtime: As in `export_litert`. Of a model that takes texts, files for
            `"tf-text"` and `"mediapipe"` hold its tokenizer, which counts.
            Defaults to `"litert"`.
        min_runtime, labels, input_signature: As in `export_litert`. Labels
            count too, and subclassed models need an `input_signature`.
        train_data: Optional tuple `(x, y)` or `(x, y, sample_weight)`, or
            batched `tf.data.Dataset`, to train the best few further on. Texts
            may be a list or an array of strings.
        validation_data: Optional data of the same form. Needed with
            `train_data`, and for a limit of loss.
        epochs: Positive integer, of each that is trained; the weights of the
            best are kept. Defaults to `3`.
        num_tuned: Positive integer, how many are trained. Defaults to `3`.
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
            names = [method.name for method in methods]
            require(
                names and len(set(names)) == len(names),
                "`methods` must hold methods of different names.",
                methods=names,
            )
        self.methods = methods
        self.quantize = check_choice("quantize", quantize, tuple(TOLERANCES))
        self.target = Target(runtime, min_runtime)
        self.labels = labels
        self.input_signature = input_signature
        has_steps = "steps_per_epoch" in (fit_options or {})
        self.train_data = _check_data("train_data", train_data, has_steps)
        self.validation_data = _check_data("validation_data", validation_data)
        require(
            train_data is None or validation_data is not None,
            "`validation_data` must be given with `train_data`.",
            validation_data=validation_data,
        )
        self.epochs = check_positive_int("epochs", epochs)
        self.num_tuned = check_positive_int("num_tuned", num_tuned)
        self.fit_options = dict(fit_options or {})
        taken = {"x", "y", "validation_data", "epochs", "verbose"}
        require(
            not taken.intersection(self.fit_options),
            f"`fit_options` must not set {', '.join(sorted(taken))}.",
            fit_options=fit_options,
        )
        require(
            compile is None or callable(compile),
            "`compile` must be a function of a model.",
            compile=compile,
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
    require(
        len(given) == 1,
        "One of `max_bytes`, `ratio` and `max_loss` must be given.",
        **given or {"max_bytes": "none"},
    )
    ((name, value),) = given.items()
    if name == "max_bytes":
        check_positive_int(name, value)
    elif name == "ratio":
        check_positive_number(name, value)
        require(value > 1, "`ratio` must be above 1.", ratio=value)
    else:
        check_positive_number(name, value, zero=True)
        require(
            search.validation_data is not None,
            "`max_loss` needs `search=BudgetSearch(validation_data=(x, y))`.",
            max_loss=value,
            validation_data=None,
        )
    require(
        search.validation_data is None or model.compiled or search.compile,
        "`model` must be compiled, or `search` must have a `compile`, where "
        "there is data.",
        model=f"{model.name}, not compiled",
    )


def _check_data(name, data, has_steps=False):
    if data is None:
        return data
    if isinstance(data, tf.data.Dataset):
        endless = data.cardinality() == tf.data.INFINITE_CARDINALITY
        require(
            has_steps or not endless,
            f"`{name}` must end: pass for example `dataset.take(100)`.",
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
