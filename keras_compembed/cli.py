"""The command `keras-compembed`: compress, export, report."""

import argparse
import json
import os
import re
import sys
import warnings
import zipfile

from keras_compembed.learners.code_learner import check_code_shape
from keras_compembed.utils.extras import require
from keras_compembed.utils.files import check_output
from keras_compembed.utils.files import replacing
from keras_compembed.version import __version__

_PROGRAM = "keras-compembed"
_FAILED, _BAD_INPUT, _INTERRUPTED = 1, 2, 130
# Steps of `KDCodeLearner` at --effort 1.
_KD_ITERATIONS = 10_000
_KERAS_FILES = {"config.json", "metadata.json", "model.weights.h5"}


def main(argv=None):
    """Runs the command line; returns its exit status.

    Args:
        argv: Optional list of strings, the arguments. Defaults to those of
            the process.

    Returns:
        `0`, `1` after a failure such as a full disk, `2` after bad arguments
        or input, `130` after Ctrl-C.
    """
    try:
        arguments = _parser().parse_args(argv)
        arguments.run(arguments)
    except SystemExit as finished:
        # argparse ends this way after --help, --version and bad arguments.
        return finished.code
    except KeyboardInterrupt:
        return _complain("interrupted", _INTERRUPTED)
    except (
        FileExistsError,
        FileNotFoundError,
        IsADirectoryError,
        ImportError,
        TypeError,
        ValueError,
    ) as error:
        return _complain(error, _BAD_INPUT)
    except (MemoryError, OSError, RuntimeError) as error:
        return _complain(error, _FAILED)
    return 0


def _complain(problem, status):
    """Says on one line of stderr what went wrong; returns `status`."""
    line = " ".join(str(problem).split()) or type(problem).__name__
    line = line.replace("Pass `overwrite=True`", "Pass --overwrite")
    print(f"{_PROGRAM}: error: {line}", file=sys.stderr)
    return status


def _warn(message, *where, **more):
    """Says on one line of stderr what Python warns of."""
    line = " ".join(str(message).split())
    print(f"{_PROGRAM}: warning: {line}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with arguments in one line."""

    def error(self, message):
        line = f"{message} (see {self.prog} --help)"
        self.exit(_complain(line, _BAD_INPUT))


def _parser():
    parser = _Parser(
        prog=_PROGRAM,
        description="Makes the embedding tables of Keras models 10 to 100 "
        "times smaller.",
    )
    parser.add_argument(
        "--version", action="version", version=f"{_PROGRAM} {__version__}"
    )
    commands = parser.add_subparsers(
        required=True, metavar="compress | export | report"
    )
    _add_compress(commands)
    _add_export(commands)
    _add_report(commands)
    return parser


def _add_command(commands, run, name, text):
    command = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    command.set_defaults(run=run)
    return command


def _add_overwrite(command):
    command.add_argument(
        "--overwrite",
        action="store_true",
        help="replace outputs that exist (default: refuse)",
    )


def _add_compress(commands):
    command = _add_command(
        commands,
        _compress,
        "compress",
        "replace large embedding tables of a trained model by codes",
    )
    command.add_argument("model", help="the trained model, a .keras file")
    command.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="the smaller model to write, a .keras file",
    )
    command.add_argument(
        "-m",
        "--num-codebooks",
        type=_whole_number,
        default=32,
        metavar="M",
        help="subcodes per id (default: %(default)s)",
    )
    command.add_argument(
        "-k",
        "--codebook-size",
        type=_whole_number,
        default=16,
        metavar="K",
        help="codewords per codebook, best a power of two "
        "(default: %(default)s)",
    )
    command.add_argument(
        "--composition",
        choices=("sum", "concat", "linear", "lstm"),
        default="sum",
        help="how codewords become a vector (default: %(default)s)",
    )
    command.add_argument(
        "--layers",
        nargs="+",
        metavar="NAME",
        help="names of the Embedding layers to replace, or paths such as "
        "tower_a/embedding where names repeat (default: all of --min-bytes or "
        "more)",
    )
    command.add_argument(
        "--min-bytes",
        type=_whole_number,
        metavar="N",
        help="leave smaller tables as they are (default: 65536)",
    )
    command.add_argument(
        "--effort",
        type=_positive_number,
        default=1.0,
        metavar="X",
        help="search longer for lower loss; time grows about in proportion "
        "(default: %(default)s)",
    )
    command.add_argument(
        "--max-time",
        type=_positive_number,
        metavar="S",
        help="seconds to learn the codes of one layer, for the composition "
        "sum (default: no limit)",
    )
    command.add_argument(
        "--seed",
        type=_whole_number,
        metavar="N",
        help="makes the result repeatable (default: a random seed)",
    )
    _add_overwrite(command)


def _add_export(commands):
    command = _add_command(
        commands,
        _export,
        "export",
        "write a model as a LiteRT (TFLite) file of built-in ops",
    )
    command.add_argument("model", help="the model, a .keras file")
    command.add_argument("output", help="the .tflite file to write")
    command.add_argument(
        "--top-k",
        type=_whole_number,
        metavar="K",
        help="of a model that ends in CANESoftmax: answer the K best classes "
        "and their probabilities",
    )
    command.add_argument(
        "--quantize",
        choices=("float16", "int8"),
        help="how to store codebooks and other weights (default: float32)",
    )
    command.add_argument(
        "--min-runtime",
        metavar="VERSION",
        help="the oldest TFLite runtime that must run the file, e.g. 2.17 "
        "(default: the fastest form, for new runtimes)",
    )
    _add_overwrite(command)


def _add_report(commands):
    command = _add_command(
        commands,
        _report,
        "report",
        "show what the embeddings of a model take, and would take otherwise",
    )
    command.add_argument("model", help="the model, a .keras file")
    command.add_argument(
        "--reference",
        metavar="FILE",
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
    _add_overwrite(command)


def _whole_number(text):
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"not a whole number: {text!r}")
    return int(text)


def _positive_number(text):
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"not a positive number: {text!r}")
    return number


def _compress(arguments):
    _check_model_file(arguments.model)
    _check_suffix(arguments.output, ".keras")
    check_output(arguments.output, arguments.overwrite)
    check_code_shape(arguments.num_codebooks, arguments.codebook_size)
    if arguments.max_time is not None and arguments.composition != "sum":
        raise ValueError(
            "--max-time must not be given with a composition other than sum. "
            f"Received: --composition {arguments.composition}."
        )
    try:
        model = _load(arguments.model, compile=True)
    except ValueError:
        # Perhaps only for a loss or a metric that the file does not hold.
        model = _load(arguments.model)
        print("The result is not compiled: its loss is not in the file.")

    from keras_compembed.compression.compress_model import compress_model
    from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
    from keras_compembed.learners.kd_code_learner import KDCodeLearner
    from keras_compembed.learners.training import Training
    from keras_compembed.reports.size_report import size_report

    def make_learner(num_codebooks, codebook_size):
        if arguments.composition != "sum":
            return KDCodeLearner(
                num_codebooks,
                codebook_size,
                arguments.composition,
                training=Training(
                    max(1, round(_KD_ITERATIONS * arguments.effort))
                ),
                seed=arguments.seed,
            )
        return AdditiveQuantizer(
            num_codebooks,
            codebook_size,
            effort=arguments.effort,
            max_time=arguments.max_time,
            seed=arguments.seed,
        )

    options = {}
    if arguments.min_bytes is not None:
        options["min_bytes"] = arguments.min_bytes
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _warn
        small = compress_model(
            model,
            num_codebooks=arguments.num_codebooks,
            codebook_size=arguments.codebook_size,
            layers=arguments.layers,
            composition=arguments.composition,
            learner=make_learner,
            **options,
        )
    with replacing(arguments.output, arguments.overwrite) as temporary:
        try:
            small.save(temporary)
        except (OSError, RuntimeError) as error:
            raise OSError(
                f"Cannot write {arguments.output!r}: {error}."
            ) from error
    print(f"\n{size_report(small)}\n\nWritten: {arguments.output}")


def _export(arguments):
    _check_model_file(arguments.model)
    _check_suffix(arguments.output, ".tflite")
    check_output(arguments.output, arguments.overwrite)
    model = _load(arguments.model)

    from keras_compembed.export.export_litert import export_litert

    export_litert(
        model,
        arguments.output,
        top_k=arguments.top_k,
        quantize=arguments.quantize,
        min_runtime=arguments.min_runtime,
        overwrite=arguments.overwrite,
    )


def _report(arguments):
    _check_model_file(arguments.model)
    if arguments.reference:
        _check_model_file(arguments.reference)
    for output in filter(None, (arguments.json, arguments.plot)):
        check_output(output, arguments.overwrite)
    if arguments.plot:
        require("matplotlib", "plots")
    model = _load(arguments.model)
    reference = arguments.reference and _load(arguments.reference)

    from keras_compembed.reports.size_report import size_report

    report = size_report(model, reference=reference or None)
    print(report)
    if arguments.json:
        with (
            replacing(arguments.json, arguments.overwrite) as temporary,
            open(temporary, "w", encoding="utf-8") as file,
        ):
            json.dump(report.to_dict(), file, indent=2)
            file.write("\n")
    if arguments.plot:
        report.plot(arguments.plot, overwrite=arguments.overwrite)


def _check_suffix(path, suffix):
    if not path.endswith(suffix):
        raise ValueError(
            f"The output must end in {suffix!r}. Received: {path!r}."
        )


def _check_model_file(path):
    """Raises if `path` is not, as a whole, a `.keras` file."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"No such file: {path!r}.")
    problem = None
    if not path.endswith(".keras"):
        problem = "its name does not end so"
    elif not zipfile.is_zipfile(path):
        problem = "it is truncated, or something else"
    else:
        with zipfile.ZipFile(path) as file:
            missing = _KERAS_FILES - set(file.namelist())
            if missing:
                problem = f"it has no {', '.join(sorted(missing))}"
            elif file.testzip():
                problem = f"{file.testzip()} in it is damaged"
    if problem:
        raise ValueError(f"{path!r} is not a `.keras` file: {problem}.")


def _load(path, compile=False):
    """Loads a model, with the classes of this package known."""
    import keras

    import keras_compembed.layers.code_embedding  # noqa: F401

    try:
        with warnings.catch_warnings():
            # Of optimizer state, which nothing here needs.
            warnings.simplefilter("ignore")
            return keras.saving.load_model(path, compile=compile)
    except Exception as error:
        # Whatever a foreign file makes Keras raise.
        reason = " ".join(str(error).split())
        unknown = re.search(r"Could not locate (\w+ '[^']+')", reason)
        if unknown:
            raise ValueError(
                f"{path!r} has parts that only your code knows: "
                f"{unknown[1]}. Import them and use the Python API: "
                "compression.compress_model, export.export_litert, "
                "reports.size_report of keras_compembed."
            ) from error
        if "safe_mode" in reason:
            raise ValueError(
                f"{path!r} holds Python code (a Lambda layer), which is not "
                "run from a file. If you trust it, use the Python API: "
                "keras.saving.load_model(..., safe_mode=False), then "
                "compression.compress_model, export.export_litert, "
                "reports.size_report of keras_compembed."
            ) from error
        raise ValueError(
            f"{path!r} cannot be loaded. Keras says: {reason[:300]}"
        ) from error
