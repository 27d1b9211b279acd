"""One page about a model, to look at in a browser."""

import os
import tempfile

import keras

from keras_compembed import compression
from keras_compembed.compression.left_tables import left_tables
from keras_compembed.export.export_litert import export_litert
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.reports.html_page import html_page
from keras_compembed.reports.model_figures import ModelFigures
from keras_compembed.reports.model_figures import all_layer_figures
from keras_compembed.reports.originals import compressed_layers
from keras_compembed.reports.originals import find_originals
from keras_compembed.reports.scores import check_data
from keras_compembed.reports.scores import scores
from keras_compembed.reports.size_report import size_report
from keras_compembed.reports.word_tests import check_word_tests
from keras_compembed.reports.words_by_layer import words_by_layer
from keras_compembed.utils.files import check_output
from keras_compembed.utils.files import replacing
from keras_compembed.utils.layer_names import named_layers

_LAYERS = (LookupLayer, keras.layers.Embedding)


def html_report(
    model,
    path,
    original=None,
    words=None,
    data=None,
    frontier=None,
    word_tests=(),
    overwrite=False,
):
    """Writes one page about a compressed model, to open in a browser.

    What the bytes are of, beside the original; tables that were left, and
    why; how near rows are to the original; nearest neighbours of frequent and
    of random words before and after; how evenly codes are used, and words that
    share one; where the model stands among sizes that could be had; loss and
    metrics on data. The page is one file without scripts, which fetches
    nothing, and prints.

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((None,), dtype="int32"),
    ...     kc.CodeEmbedding(1000, 64, num_codebooks=8, codebook_size=16),
    ... ])
    >>> html_report(model, "model.html")

    Args:
        model: Built Keras model or layer.
        path: String or path-like, the `.html` file to write.
        original: Optional original, from which codes were learned: a model
            with Embedding layers of the same names, or, for one layer, an
            Embedding layer or an array `(input_dim, output_dim)`. Defaults to
            `None`.
        words: Optional list of strings, the word of each row, for all layers
            of as many rows; or a dict from the name of a layer to such a list.
            Defaults to `None`: ids are shown.
        data: Optional tuple `(inputs, labels)` on which the model, and an
            original that is a model, are evaluated with the metrics they are
            compiled with; if one is not compiled, by the share of labels that
            have the highest output. Defaults to `None`.
        frontier: Optional `keras_compembed.compression.Frontier`, sizes that
            could be had. The model's place in it is that of a LiteRT file, or
            of its weights where no file can be written. Defaults to `None`.
        word_tests: List of `WordPairs` and `WordAnalogies`, which vectors are
            asked, with `original` and `words`. Defaults to `()`.
        overwrite: Boolean, whether `path` may exist. Defaults to `False`.

    Raises:
        ValueError: if an argument is none of these, there are not as many
            words as rows, or the original has no table of the same name and
            shape.
        FileExistsError: if `path` exists and `overwrite` is False.
    """
    path = os.fspath(path)
    if not path.endswith(".html"):
        raise ValueError(
            f"`path` must end in '.html'. Received: path={path!r}."
        )
    check_output(path, overwrite)
    figures = model_figures(model, original, words, data, frontier, word_tests)
    with replacing(path, overwrite) as temporary:
        write_page(figures, temporary)


def write_page(figures, path):
    """Writes the page of `ModelFigures`."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(html_page(figures))


def model_figures(
    model,
    original=None,
    words=None,
    data=None,
    frontier=None,
    word_tests=(),
):
    """All that `html_report` shows, as `ModelFigures`."""
    layers, words = check_arguments(model, original, words, data, word_tests)
    if frontier is not None and not isinstance(frontier, compression.Frontier):
        raise ValueError(
            "`frontier` must be a `keras_compembed.compression.Frontier`. "
            f"Received: frontier={frontier!r}."
        )
    original_model = original if isinstance(original, keras.Model) else None
    # First: data may not be what the model takes.
    measured = scores(model, original_model, data) if data is not None else {}
    sizes = size_report(model, original, words, word_tests)
    return ModelFigures(
        name=model.name,
        sizes=sizes,
        original_sizes=original_model and size_report(original_model),
        layers=all_layer_figures(layers, original, words),
        num_compressed=len(compressed_layers(layers)),
        left=tuple(left_tables(model)),
        scores=measured,
        frontier=frontier,
        place=frontier and _place(model, sizes, frontier),
    )


def check_arguments(model, original=None, words=None, data=None, word_tests=()):
    """Raises if these are not what `html_report` takes."""
    if not isinstance(model, keras.layers.Layer):
        raise ValueError(
            "`model` must be a Keras model or layer. "
            f"Received: model={model!r} (of type {type(model).__name__})."
        )
    layers = named_layers(model, _LAYERS)
    compressed = compressed_layers(layers)
    check_word_tests(word_tests, original, words, "original")
    words = words_by_layer(layers, words)
    if original is not None:
        find_originals(compressed, original, "original")
    if data is not None:
        check_data(model, data)
    return layers, words


def _place(model, sizes, frontier):
    """The `FrontierPoint` of a model beside those of a frontier."""
    counted = _file_bytes(model, frontier)
    if counted is None and sizes.total_bytes is None:
        return None
    return compression.FrontierPoint(
        methods={},
        file_bytes=counted or sizes.total_bytes,
        error=_error(sizes),
        is_exported=counted is not None,
    )


def _error(sizes):
    """Squared error of all compressed rows over their spread, or None."""
    error = spread = 0.0
    for row in sizes.embeddings:
        near = row.fidelity
        if near is None or not near.centred_relative_squared_error:
            continue
        own = near.mean_squared_distance * row.input_dim
        error += own
        spread += own / near.centred_relative_squared_error
    return error / spread if spread else None


def _file_bytes(model, frontier):
    if not isinstance(model, keras.Model):
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.tflite")
        try:
            export_litert(
                model,
                path,
                quantize=frontier.quantize,
                min_runtime=frontier.min_runtime,
                verbose=0,
            )
        except Exception:
            # Whatever a model that cannot be exported makes TensorFlow raise;
            # the page says that nothing was counted.
            return None
        return os.path.getsize(path)
