"""`keras-compembed report`."""

import os

from keras_compembed.cli import files
from keras_compembed.cli import learn
from keras_compembed.compression.find_size import find_frontier
from keras_compembed.compression.frontier import Frontier
from keras_compembed.reports.html_report import html_report
from keras_compembed.reports.size_report import size_report
from keras_compembed.vectors.compressed_vectors import CompressedVectors
from keras_compembed.vectors.read_vectors import read_vectors
from keras_compembed.vectors.word_vectors import WordVectors

_OUTPUTS = {"json": "", "plot": "", "html": ".html"}


def run(arguments):
    path, overwrite = arguments.original, arguments.overwrite
    outputs = files.given(arguments, *_OUTPUTS)
    taken = [arguments.model, path]
    for name, output in outputs.items():
        files.check_output(output, _OUTPUTS[name], overwrite, *taken)
        taken.append(output)
    if arguments.model.endswith(".npz"):
        return _report_vectors(arguments)
    page = _page(arguments)
    model = files.load_model(arguments.model, arguments.imports)
    original = path and files.load_model(path, arguments.imports)
    if arguments.frontier == "compute":
        page["frontier"] = find_frontier(original, verbose=0)
    if arguments.html:
        page |= {"original": original, "overwrite": overwrite}
        report = html_report(model, arguments.html, **page)
    else:
        report = size_report(model, original)
    if arguments.json:
        files.write_json(report.to_dict(), arguments.json, overwrite)
    if arguments.plot:
        report.plot(arguments.plot, overwrite)
    return report


def _report_vectors(arguments):
    """The report of compressed vectors, as text."""
    for name in ("plot", "html", "words", "data", "frontier"):
        if getattr(arguments, name):
            raise ValueError(f"--{name} must be given with a model.")
    small = CompressedVectors.load(arguments.model)
    original = arguments.original and read_vectors(arguments.original)
    # The original may have more words, e.g. after `learn --limit`.
    if original and original.words[: len(small)] != small.words:
        raise ValueError(
            "ORIGINAL must begin with the words of the compressed vectors. "
            f"Received: {arguments.original!r}."
        )
    if original:
        rows = original.vectors[: len(small)]
        original = WordVectors(small.words, rows)
    found = learn.describe(small, original)
    if arguments.json:
        files.write_json(found, arguments.json, arguments.overwrite)
    return learn.format_lines(found)


def _page(arguments):
    """Arguments of `html_report`, read from files."""
    for name in ("words", "data", "frontier"):
        if getattr(arguments, name) and not arguments.html:
            raise ValueError(f"--{name} must be given with --html.")
    page = {"words": _read_words(arguments.words)}
    if arguments.data:
        data = files.read_data(arguments.data, "test", "validation")
        page["data"] = next(iter(data.values()))
    if arguments.frontier == "compute":
        if not arguments.original:
            raise ValueError("--frontier compute must be given with ORIGINAL.")
    elif arguments.frontier:
        page["frontier"] = Frontier.load(arguments.frontier)
    return page


def _read_words(texts):
    """Words, as `html_report` takes them."""
    words = {}
    for text in texts:
        layer, equals, path = text.partition("=")
        if not equals or os.path.exists(text):
            layer, path = None, text
        if None in words or layer in words or (words and layer is None):
            raise ValueError(
                "--words must be given once, or with a different layer each "
                f"time. Received: {', '.join(texts)}."
            )
        words[layer] = files.read_lines(path, "Words")
    return words.get(None, words or None)
