"""An HTML report of a compressed model."""

import contextlib
import importlib.resources
import os
import unicodedata

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_compembed.classes.class_head import ClassHead
from keras_compembed.compression import frontier as frontiers
from keras_compembed.compression import tables
from keras_compembed.compression.budget import Budget
from keras_compembed.compression.budget import count_file
from keras_compembed.export.target import Target
from keras_compembed.reports.code_statistics import code_balance
from keras_compembed.reports.code_statistics import code_usage
from keras_compembed.reports.code_statistics import words_sharing_codes
from keras_compembed.reports.frontier_chart import frontier_charts
from keras_compembed.reports.plots import COLOURS
from keras_compembed.reports.plots import REST
from keras_compembed.reports.plots import model_parts
from keras_compembed.reports.size_report import EMBEDDINGS
from keras_compembed.reports.size_report import SizeReport
from keras_compembed.reports.size_report import compressed_layers
from keras_compembed.reports.size_report import find_originals
from keras_compembed.reports.size_report import size_report
from keras_compembed.reports.size_report import words_of_tables
from keras_compembed.reports.word_neighbors import word_neighbors
from keras_compembed.reports.word_neighbors import words_by_layer
from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.files import check_output
from keras_compembed.utils.files import format_bytes
from keras_compembed.utils.files import replacing
from keras_compembed.utils.model_parts import named_layers
from keras_compembed.utils.text_tensors import with_text_tensors
from keras_compembed.utils.validation import require

# The most layers, points, groups or codebooks to show.
_MOST_LAYERS, _MOST_ROWS, _MOST_WORDS, _MOST_CELLS = 8, 12, 12, 64
# Control characters, lone surrogates and line separators, which pages cannot
# show. Joiners stay: emoji and some scripts need them.
_INVISIBLE = {"Cc", "Cs", "Zl", "Zp"}


def html_report(
    model: keras.Layer,
    path: str | os.PathLike,
    original: ArrayLike | keras.Layer | None = None,
    words: list | dict | None = None,
    data: tuple | None = None,
    frontier: "frontiers.Frontier | None" = None,
    overwrite: bool = False,
) -> SizeReport:
    """Writes an HTML report of a compressed model.

    The page shows:

    - the bytes of each part, compared with the original,
    - tables that were not compressed, with the reason,
    - the error of rows, and nearest neighbors before and after,
    - the use of codes, and words with the same code,
    - the model's place in a frontier of sizes, and metrics on data.

    It is a single file without scripts, and needs the extra `plots`.

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((None,), dtype="int32"),
    ...     kc.CodeEmbedding(1000, 64, num_codebooks=8, codebook_size=16),
    ... ])
    >>> html_report(model, "model.html").embedding_bytes
    36768

    Args:
        model: A built Keras model or layer.
        path: String or path-like. The `.html` file to write.
        original: Same as `reference` in `size_report`. Defaults to `None`.
        words: Optional list of strings, the word of each row, for all layers of
            this number of rows, or dict from layer names to such lists.
            Defaults to `None`: the words of the model's tokenizer, or ids.
        data: Optional tuple `(inputs, labels)` to evaluate the model and an
            original model. Uses their compiled metrics, or the accuracy of the
            highest output if one is not compiled. Defaults to `None`.
        frontier: Optional frontier, such as `Budget.frontier`. The model's
            place in it is the size of its LiteRT file, or of its weights if it
            cannot be exported. Defaults to `None`.
        overwrite: Boolean. Whether the file may exist. Defaults to `False`.

    Returns:
        The `SizeReport` that the page shows.

    Raises:
        ValueError: If an argument is invalid, or data do not fit the model.
    """
    path = os.fspath(path)
    require(path.endswith(".html"), "`path` must end in '.html'.", path=path)
    check_output(path, overwrite)
    template = _read_template()
    figures = _figures(model, original, words, data, frontier)
    page = template.render(figures)
    with replacing(path, overwrite) as temporary:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            file.write(page)
    return figures["sizes"]


def _read_template():
    jinja2 = import_extra("jinja2", "plots")
    environment = jinja2.Environment(
        autoescape=True,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"bytes": format_bytes, "number": _number}
    text = importlib.resources.files(__package__) / "page.html"
    return environment.from_string(text.read_text("utf-8"))


def _visible(value):
    """A text with invisible characters as Python escapes."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "".join(
        x.encode("unicode_escape").decode()
        if unicodedata.category(x) in _INVISIBLE
        else x
        for x in value
    )


def _number(value):
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"


def _figures(model, original, words, data, frontier):
    """All values of the page, by name."""
    require(
        isinstance(model, keras.layers.Layer),
        "`model` must be a Keras model or layer.",
        model=model,
    )
    require(
        isinstance(frontier, frontiers.Frontier | None),
        "`frontier` must be a `Frontier`, such as `Budget.frontier`.",
        frontier=frontier,
    )
    layers = named_layers(model, EMBEDDINGS)
    compressed = compressed_layers(layers)
    if words is None:
        own = words_of_tables(model)
        words = {x: y for x, y in own.items() if layers[x].input_dim == len(y)}
    words = words_by_layer(layers, words)
    originals = {}
    if original is not None:
        originals = find_originals(compressed, original, "original")
    original_model = original if isinstance(original, keras.Model) else None
    measured = {}
    if data is not None:
        # First, since data may not fit the model.
        measured = _scores(model, original_model, data)
    sizes = size_report(model, original)
    before = original_model and size_report(original_model)
    shown = [x for x in layers if x in compressed or x in words]
    shown = [name for name in shown if layers[name].built]
    shown.sort(key=lambda x: -layers[x].input_dim * layers[x].output_dim)
    place = frontier and _place(model, sizes, frontier)
    return {
        "name": model.name,
        "sizes": sizes,
        "original": before,
        "scores": measured,
        "num_compressed": len(compressed),
        "wholes": _wholes(sizes, before),
        "rows": _size_rows(sizes),
        "classes": {name: f"p{x}" for x, name in enumerate(COLOURS)},
        "colours": COLOURS,
        "frontier": frontier,
        "place": place,
        "charts": frontier and frontier_charts(frontier, place),
        "points": frontier and _points_to_list(frontier),
        "left": sorted(
            tables.left_tables(model), key=lambda x: -x.stored_bytes
        ),
        "near": sorted(
            (row for row in sizes.embeddings if row.fidelity),
            key=lambda row: -row.table_bytes,
        ),
        "most": _MOST_ROWS,
        "layers": [
            _layer(name, layers[name], originals.get(name), words.get(name))
            for name in shown[:_MOST_LAYERS]
        ],
    }


def _wholes(sizes, original):
    """Pairs of a name and parts, for the model and its original."""
    wholes = []
    for name, report in (("original", original), ("this model", sizes)):
        if report:
            parts = model_parts(report)
            if report.tokenizer_bytes:
                parts["tokenizer"] = report.tokenizer_bytes
            wholes.append((name, parts))
    return wholes


def _size_rows(sizes):
    """Names, parts and sizes of layers, largest first."""
    rows = sorted(sizes.embeddings, key=lambda row: -row.stored_bytes)
    shown = [(row.name, row.parts, row) for row in rows[:_MOST_ROWS]]
    smaller = rows[_MOST_ROWS:]
    if smaller:
        parts = {}
        for row in smaller:
            for name, count in row.parts.items():
                parts[name] = parts.get(name, 0) + count
        shown.append((f"{len(smaller):,} smaller layers", parts, None))
    rest = {"tokenizer": sizes.tokenizer_bytes, REST: sizes.other_bytes}
    shown += [(name, {name: x}, None) for name, x in rest.items() if x]
    return shown if rows else []


def _points_to_list(frontier):
    """Points for the table: best, chosen or tuned."""
    shown = list(frontier.best) or list(frontier)
    shown += [
        point
        for point in frontier
        if (point.is_chosen or point.score is not None) and point not in shown
    ]
    shown.sort(key=lambda point: point.file_bytes)
    places = np.linspace(0, len(shown) - 1, min(len(shown), 2 * _MOST_ROWS))
    places = set(places.round().astype(int))
    return [x for i, x in enumerate(shown) if i in places or x.is_chosen]


def _layer(name, layer, original, words):
    """The words and codes of a layer for the page."""
    figures = {
        "name": name,
        "unit": "id" if words is None else "word",
        "has_before": original is not None,
        "neighbors": word_neighbors(layer, original, words),
        "balance": None,
    }
    # Unpacks codes once.
    codes = getattr(getattr(layer, "store", None), "codes", None)
    if codes is not None:
        size = int(np.max(layer.codebook_size))
        groups = words_sharing_codes(codes, words, size)
        balance = code_balance(codes, size)[:_MOST_CELLS]
        step = -(-balance.shape[1] // _MOST_CELLS)
        figures["balance"] = np.stack(
            [
                balance[:, start : start + step].sum(axis=1)
                for start in range(0, balance.shape[1], step)
            ]
        )
        figures["shape"] = layer.num_codebooks, size
        figures["usage"] = code_usage(codes, size)
        figures["groups"] = groups
        figures["num_sharing"] = sum(len(own) for _, own in groups)
    return figures


def _place(model, sizes, frontier):
    """The `FrontierPoint` of the model."""
    counted = None
    if isinstance(model, keras.Model):
        target = Target(min_runtime=frontier.min_runtime)
        budget = Budget(quantize=frontier.quantize, target=target)
        # TensorFlow may raise any error if a model cannot be exported. The page
        # then shows the bytes of weights.
        with contextlib.suppress(Exception):
            counted = count_file(model, budget, budget.quantize).file_bytes
    if counted is None and sizes.total_bytes is None:
        return None
    error = spread = 0.0
    for row in sizes.embeddings:
        near = row.fidelity
        if near is not None and near.centred_relative_squared_error:
            own = near.mean_squared_distance * row.input_dim
            error += own
            spread += own / near.centred_relative_squared_error
    return frontiers.FrontierPoint(
        methods={},
        file_bytes=counted or sizes.total_bytes,
        error=error / spread if spread else None,
        is_exported=counted is not None,
    )


def _scores(model, original, data):
    """Loss and metrics of the model and its original."""
    _check_data(model, data)
    inputs, labels = with_text_tensors(tuple(data))
    models = [x for x in (model, original) if x is not None]
    # Both need the same metrics.
    compiled = all(x.compiled for x in models)
    results = [_measured(x, inputs, labels, compiled) for x in models]
    before = results[1] if original is not None else {}
    return {x: (results[0].get(x), before.get(x)) for x in results[0] | before}


def _check_data(model, data):
    """Raises if data is not `(inputs, labels)`, or the model a layer."""
    require(
        isinstance(model, keras.Model),
        "`model` must be a Keras model, not a layer, with `data`.",
        model=model,
    )
    require(
        isinstance(data, tuple | list) and len(data) == 2,
        "`data` must be a tuple (inputs, labels).",
        data=type(data).__name__,
    )
    counts = {
        array.shape[0] if getattr(array, "shape", ()) else None
        for part in data
        for array in keras.tree.flatten(part)
    }
    require(
        len(counts) == 1 and min(counts, key=bool),
        "`data` must be non-empty arrays, or dicts of them, with a label for "
        "each input.",
        lengths=counts,
    )


def _measured(model, inputs, labels, compiled):
    try:
        if not compiled:
            return _accuracy(model, inputs, labels)
        found = model.evaluate(inputs, labels, verbose=0, return_dict=True)
        return {name: float(value) for name, value in found.items()}
    except Exception as error:
        # Keras and TensorFlow raise many errors for wrong shapes.
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"`data` must fit the model {model.name!r}. "
            f"Received data with this error: {reason}"
        ) from error


def _accuracy(model, inputs, labels):
    labels = np.asarray(labels)
    outputs = None
    if not named_layers(model, ClassHead):
        outputs = model.predict(inputs, verbose=0)
    if isinstance(outputs, np.ndarray):
        if labels.shape == (*outputs.shape[:-1], 1):
            labels = labels[..., 0]
        if (
            labels.dtype.kind in "iub"
            and outputs.shape[-1] > 1
            and labels.shape == outputs.shape[:-1]
        ):
            return {"accuracy": float(np.mean(outputs.argmax(-1) == labels))}
    raise ValueError(
        "`model` must be compiled with metrics, or return a score for each "
        "class and have integer labels."
    )
