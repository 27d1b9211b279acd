"""Starts the command `keras-compembed`.

`import keras_compembed` imports TensorFlow, for seconds. So this module is
outside of the package, and imports it once the arguments are parsed.
"""

import argparse
import contextlib
import importlib.metadata
import os
import signal
import sys

PROGRAM = "keras-compembed"
_FAILED, _BAD_INPUT, _INTERRUPTED = 1, 2, 130
_BAD_INPUTS = (
    *(FileExistsError, FileNotFoundError, IsADirectoryError),
    *(ImportError, TypeError, ValueError),
)
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_MODEL = "a .keras file, or .h5 of Keras 2"
_BYTES = "bytes, e.g. 500000, 500k or 2MB (k is 1,000),"
_QUANTIZE = ("none", "float16", "int8", "int8_codebooks")
# What errors advise, and the options for it.
_IN_SHELL = {
    "Pass `overwrite=True`": "Pass --overwrite",
    "Give `Budget` the `quantize`, `labels`, `top_k` and `target` of the "
    "export": "Give `compress` the options of `export`",
    "Target(max_bytes=None)": "--max-bytes none",
    "Target('mediapipe', unroll=True)": "--unroll",
    "Target(runtime='litert')": "--runtime litert",
    "Target(runtime='tf-text')": "--runtime tf-text",
    "quantize='float16'": "--quantize float16",
}
_RUNTIMES = ("litert", "tf-text", "mediapipe")


def main(argv=None):
    """Runs the command line; returns its exit status."""
    _prepare_streams()
    try:
        arguments = _parser().parse_args(argv)
        with _ending_on_signals():
            # TensorFlow tells of the machine; what fails is raised anyway.
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            from keras_compembed.cli import run

            answer = run(arguments)
        try:
            print(answer, flush=True)
        except BrokenPipeError:
            # A reader, as `head`, may leave early.
            _drop_output()
    except SystemExit as finished:
        # argparse ends this way after --help, --version and bad arguments.
        return finished.code
    except KeyboardInterrupt:
        return _complain("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        _drop_output()
        return _complain("stdout was closed before the work was done", _FAILED)
    except _BAD_INPUTS as error:
        return _complain(error, _BAD_INPUT)
    except (MemoryError, OSError, RuntimeError) as error:
        return _complain(error, _FAILED)
    return 0


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with arguments in one line."""

    def error(self, message):
        line = f"{message} (see {self.prog} --help)"
        self.exit(_complain(line, _BAD_INPUT))


def _parser():
    parser = _Parser(
        prog=PROGRAM,
        description="Makes the embedding tables of Keras models 10 to 100 "
        "times smaller.",
    )
    version = importlib.metadata.version("keras-compembed")
    parser.add_argument(
        "--version", action="version", version=f"{PROGRAM} {version}"
    )
    verbs = {
        "compress": (_add_compress, "compress the tables of a trained model"),
        "export": (_add_export, "write a model as a LiteRT (TFLite) file"),
        "report": (_add_report, "show what embeddings take, in bytes"),
        "inspect": (_add_inspect, "show what a LiteRT file or vectors hold"),
        "learn": (_add_learn, "compress a file of word vectors"),
    }
    commands = parser.add_subparsers(
        dest="verb", required=True, metavar=" | ".join(verbs)
    )
    for verb, (add_arguments, text) in verbs.items():
        command = commands.add_parser(verb, help=text, description=f"{text}.")
        add_arguments(command, command.add_argument)
        command.add_argument(
            "--overwrite", action="store_true", help="replace outputs"
        )
    return parser


def _add_compress(command, add):
    add("model", help=f"the trained model, {_MODEL}")
    add("-o", "--output", required=True, help="a .keras file")
    _add_code_shape(add)
    add(
        "--layers",
        nargs="+",
        help="names of tables to replace (default: all of at least 65,536 "
        "bytes)",
    )
    add("--effort", type=float, help="time to learn codes (default: 1.0)")
    _add_learning(add)
    _add_inputs(add)
    _add_imports(add)
    group = command.add_argument_group(
        "limits", "search for the method of least loss within one of these"
    )
    add = group.add_mutually_exclusive_group().add_argument
    add("--max-bytes", help=f"{_BYTES} of the LiteRT file")
    add("--max-loss", type=float, help="of a metric, on validation data")
    add = group.add_argument
    _add_file(add)
    add(
        "--data",
        help="an .npz file with x_validation and y_validation, to choose on, "
        "and x_train and y_train, to train the best few on; arrays of several "
        "inputs are x_train_NAME and so on",
    )
    add("--epochs", type=int, help="to train each of the best few")
    add("--max-time", type=float, help="seconds of the search")
    add("--frontier", help="write what was found, a .json file")


def _add_export(command, add):
    add("model", help=_MODEL)
    add("output", help="the .tflite file to write")
    add(
        "--max-bytes",
        help="of the file, or none (default: those of `compress`)",
    )
    _add_file(add)
    _add_inputs(add)
    _add_imports(add)


def _add_file(add):
    add(
        "--runtime",
        choices=_RUNTIMES,
        help="what runs the file: litert, which takes ids; tf-text, an "
        "interpreter with ops of tensorflow-text, or mediapipe, MediaPipe "
        "Tasks, which take texts (default: litert)",
    )
    add(
        "--min-runtime",
        help="the oldest that must run it: 2.18, LiteRT 1.0.1 and MediaPipe; "
        "2.17, the pod TensorFlowLiteSwift (default: 2.18)",
    )
    add(
        "--task",
        choices=("classifier", "embedder"),
        help="of MediaPipe (default: classifier)",
    )
    add("--labels", help="a file of the names of the classes, one a line")
    add("--name", help="what the model is called, for the file to say")
    add("--top-k", type=int, help="give the K best classes or ids; 0: scores")
    add("--quantize", choices=_QUANTIZE, help="weights (default: int8)")
    add(
        "--optimize-for",
        choices=("latency", "size", "memory"),
        help="what to favor in look-ups (default: latency within 2 percent of "
        "the smallest file)",
    )
    add(
        "--unroll",
        action="store_true",
        default=None,
        help="recurrent layers without a loop, which MediaPipe lacks",
    )


def _add_inputs(add):
    add(
        "--input",
        dest="inputs",
        action="append",
        default=[],
        metavar="NAME:SHAPE:DTYPE",
        help="an input of a model that does not know its own, e.g. "
        "ids:1x32:int32, or ids:?x32:int32 for any batch; several are a dict "
        "by name",
    )
    add("--sample-inputs", help="an .npz file of inputs to compare copies on")


def _add_report(command, add):
    add("model", help=f"{_MODEL}, or compressed vectors, .npz")
    add("original", nargs="?", help="the original, to compare with")
    add("--json", help="write the figures there too")
    add("--plot", help="draw the sizes, e.g. a .png file")
    add("--html", help="write a page to look at in a browser")
    add(
        "--words",
        action="append",
        default=[],
        metavar="[LAYER=]FILE",
        help="for the page: words of the rows of a layer, or of every layer "
        "of as many rows, one a line",
    )
    add("--data", help="for the page: an .npz file with x_test and y_test")
    add("--frontier", help="for the page: of `compress`, or the word compute")
    _add_imports(add)


def _add_inspect(command, add):
    add("file", help="a .tflite file, or compressed vectors, .npz")
    add("--json", help="write what was found there too")


def _add_learn(command, add):
    add("vectors", help="a file of vectors, a folder, or hf://USER/REPOSITORY")
    add("-o", "--output", required=True, help="an .npz file")
    add("--max-bytes", help=f"{_BYTES} of the output, words included")
    _add_code_shape(add)
    add("--format", help="what the vectors are (default: what they look like)")
    add("--words", help="a file of the words of rows, one a line")
    add("--tensor", help="which array of a file to read")
    add("--limit", type=int, help="keep so many of the first words")
    add("--encoding", default="utf-8", help="of words (default: utf-8)")
    add(
        "--unicode-errors",
        choices=("strict", "ignore", "replace", "backslashreplace"),
        default="strict",
        help="for words that are not in this encoding (default: strict)",
    )
    add(
        "--subwords",
        nargs="?",
        const=True,
        default=False,
        type=int,
        help="keep vectors of fastText's character n-grams, for unknown "
        "words: so many at most (default: as many as words)",
    )
    _add_learning(add)


def _add_code_shape(add):
    add("-m", "--num-codebooks", type=int, help="subcodes a row (default: 32)")
    add("-k", "--codebook-size", type=int, help="codewords (default: 16)")


def _add_learning(add):
    add("--seed", type=int, help="makes the result repeatable")
    add(
        "--keep-partial",
        action="store_true",
        help="on Ctrl-C, keep the best found so far of the table or search "
        "under way, and go on with the next (default: end without a file)",
    )


def _add_imports(add):
    add(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="import this module first, for layers, losses and functions of "
        "your own; may be given several times",
    )


@contextlib.contextmanager
def _ending_on_signals():
    """Ends the process when it is asked to, with nothing half-written."""
    before = {}
    try:
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            # Ignored in the background, e.g. by `nohup`.
            if number and signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, _end)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number, frame):
    try:
        files = sys.modules.get("keras_compembed.utils.files")
        if hasattr(files, "remove_temporary_folders"):
            files.remove_temporary_folders()
        line = f"{PROGRAM}: error: ended by {signal.Signals(number).name}\n"
        # Not `print`, which may be what was interrupted.
        os.write(2, line.encode())
    finally:
        # Even where the terminal is gone.
        os._exit(128 + number)


def _complain(problem, status):
    line = " ".join(str(problem).split()) or type(problem).__name__
    for words, option in _IN_SHELL.items():
        line = line.replace(words, option)
    print(f"{PROGRAM}: error: {line}", file=sys.stderr)
    return status


def _drop_output():
    """Lets go of what a closed stdout did not take, else Python complains."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _prepare_streams():
    """Opens streams that are missing, and lets them take any character."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            # As by `2>&-`: the first file would take its place otherwise.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))
        elif mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
