"""`keras-compembed report`."""

import contextlib
import json
import os

from keras_compembed.cli import arguments as common
from keras_compembed.cli.data_file import HELP
from keras_compembed.cli.data_file import read_part
from keras_compembed.cli.data_file import require_parts
from keras_compembed.cli.inputs import check_different
from keras_compembed.cli.inputs import check_file
from keras_compembed.cli.inputs import check_imports
from keras_compembed.cli.inputs import check_model_file
from keras_compembed.cli.inputs import check_suffix
from keras_compembed.cli.inputs import load_model
from keras_compembed.cli.inputs import read_lines
from keras_compembed.cli.lines import answering
from keras_compembed.cli.lines import show
from keras_compembed.utils.extras import require
from keras_compembed.utils.files import check_output
from keras_compembed.utils.files import replacing

WHAT_IT_DOES = (
    "show what the embeddings of a model take, and would take otherwise"
)
_COMPUTE = "compute"
# The part of the data that models are evaluated on, the first there is.
_EVALUATED = ("test", "validation")


def add_arguments(command):
    command.add_argument(
        "model", help="the model, a .keras file, or .h5 of Keras 2"
    )
    command.add_argument(
        "original",
        nargs="?",
        help="the original model, a .keras file: shows how near to it the "
        "codes are",
    )
    command.add_argument(
        "--json", metavar="FILE", help="write the figures there too"
    )
    command.add_argument(
        "--plot",
        metavar="FILE",
        help="draw the sizes there (.png, .svg or .pdf; needs the extra "
        "`plots`)",
    )
    command.add_argument(
        "--html",
        metavar="FILE",
        help="write a page to look at in a browser: sizes, neighbours of "
        "words, how codes are used",
    )
    command.add_argument(
        "--words",
        action="append",
        default=[],
        metavar="[LAYER=]FILE",
        help="for the page and --word-test: the words of the rows of a layer, "
        "one a line; of every layer of as many rows if none is named; may be "
        "given several times",
    )
    command.add_argument(
        "--word-test",
        action="append",
        default=[],
        metavar="FILE",
        help="word pairs and how similar people find them (SimLex-999, MEN), "
        "or analogies (questions-words.txt): shows how well vectors agree, "
        "beside those of ORIGINAL; may be given several times",
    )
    command.add_argument(
        "--data",
        metavar="FILE",
        help=f"for the page: {HELP}; the models are evaluated on the test "
        "part, or the validation part if there is none",
    )
    command.add_argument(
        "--frontier",
        metavar="FILE",
        help="for the page: sizes that could be had, a .json file of "
        f"`Frontier.save`, or the word {_COMPUTE}: computed from ORIGINAL",
    )
    common.add_imports(command)
    common.add_overwrite(command)


def check(arguments):
    check_imports(arguments.imports)
    check_model_file(arguments.model)
    if arguments.original:
        check_model_file(arguments.original)
    outputs = list(
        filter(None, (arguments.json, arguments.plot, arguments.html))
    )
    inputs = [arguments.model, *_check_for_page(arguments)]
    for path in inputs:
        check_different(path, *outputs)
    for output in outputs:
        check_output(output, arguments.overwrite)
    if arguments.plot:
        require("matplotlib", "plots")


def _check_for_page(arguments):
    """Checks what only the page needs; returns the files that are read."""
    files = [_split_words(text)[1] for text in arguments.words]
    files += arguments.word_test
    if arguments.data:
        require_parts(arguments.data, *_EVALUATED)
        files.append(arguments.data)
    if arguments.frontier and arguments.frontier != _COMPUTE:
        files.append(arguments.frontier)
    for path in files:
        check_file(path)
    if arguments.original:
        files.append(arguments.original)
    if arguments.html:
        check_suffix(arguments.html, ".html")
    for name in ("words", "data", "frontier"):
        shown = arguments.html or (name == "words" and arguments.word_test)
        if getattr(arguments, name) and not shown:
            raise ValueError(
                f"--{name} must be given with --html, whose page shows it."
            )
    if arguments.word_test and not (arguments.original and arguments.words):
        raise ValueError(
            "--word-test must be given with ORIGINAL, whose vectors are asked "
            "too, and --words."
        )
    if arguments.frontier == _COMPUTE and not arguments.original:
        raise ValueError(
            f"--frontier {_COMPUTE} must be given with ORIGINAL, from whose "
            "tables it is computed."
        )
    return files


def run(arguments, stops):
    frontier = data = None
    if arguments.frontier and arguments.frontier != _COMPUTE:
        from keras_compembed.compression.frontier import Frontier

        frontier = Frontier.load(arguments.frontier)
    if arguments.data:
        part = require_parts(arguments.data, *_EVALUATED)
        data = read_part(arguments.data, part)
    words = _read_words(arguments.words)
    word_tests = [_read_word_test(path) for path in arguments.word_test]
    model = _load(arguments.model, arguments)
    original = None
    if arguments.original:
        original = _load(arguments.original, arguments)

    if arguments.html:
        from keras_compembed.reports.html_report import check_arguments
        from keras_compembed.reports.html_report import model_figures
        from keras_compembed.reports.html_report import write_page

        check_arguments(model, original, words, data, word_tests)
        if arguments.frontier == _COMPUTE:
            frontier = _compute(original)
        show("looking at words")
        figures = model_figures(
            model, original, words, data, frontier, word_tests
        )
        report = figures.sizes
    else:
        from keras_compembed.reports.size_report import size_report

        report = size_report(model, original, words, word_tests)
    # All files are there, or none.
    with contextlib.ExitStack() as files:
        if arguments.json:
            write_json(report, arguments.json, arguments.overwrite, files)
        if arguments.plot:
            report.plot(
                files.enter_context(
                    replacing(arguments.plot, arguments.overwrite)
                )
            )
        if arguments.html:
            write_page(
                figures,
                files.enter_context(
                    replacing(arguments.html, arguments.overwrite)
                ),
            )
    with answering():
        print(report)


def _compute(original):
    from keras_compembed import compression

    show("computing sizes that could be had")
    return compression.find_frontier(original, verbose=0)


def _load(path, arguments):
    if arguments.data:
        with contextlib.suppress(ValueError):
            return load_model(path, arguments.imports, compile=True)
        # Perhaps only for a loss or a metric that the file does not hold.
    return load_model(path, arguments.imports)


def _split_words(text):
    """The layer, or None, and the file of `[LAYER=]FILE`."""
    layer, equals, path = text.partition("=")
    if not equals or os.path.exists(text):
        return None, text
    return layer, path


def _read_words(texts):
    """Words, as `html_report` takes them."""
    pairs = [_split_words(text) for text in texts]
    layers = [layer for layer, _ in pairs]
    if len(set(layers)) < len(layers) or (None in layers and len(layers) > 1):
        raise ValueError(
            "--words must be given once, or with a layer of its own each "
            f"time. Received: {', '.join(texts)}."
        )
    words = {layer: read_lines(path, "Words") for layer, path in pairs}
    return words.get(None, words or None)


def _read_word_test(path):
    from keras_compembed.reports.word_tests import read_word_test

    return read_word_test(path)


def write_json(report, path, overwrite, files):
    """Writes `report.to_dict()`; `path` is there when `files` closes."""
    temporary = files.enter_context(replacing(path, overwrite))
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(report.to_dict(), file, indent=2)
        file.write("\n")
