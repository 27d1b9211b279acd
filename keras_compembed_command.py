"""Starts the command `keras-compembed`.

`import keras_compembed` takes seconds, as it imports TensorFlow. This module is
outside the package and imports it after it has parsed the arguments.
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
_MODEL = "a .keras file, or an .h5 file of Keras 2"
_BYTES = "e.g. 500000, 500k or 2MB (k is 1,000)"
_QUANTIZE = ("none", "float16", "int8", "int8_codebooks")
# Advice in error messages, and the same advice for the command line.
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
            # Hide TensorFlow's logs of the machine; failures raise anyway.
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            from keras_compembed.cli import run

            answer = run(arguments)
        try:
            print(answer, flush=True)
        except BrokenPipeError:
            # A reader such as `head` may stop early.
            _drop_output()
    except SystemExit as finished:
        # argparse exits like this after --help, --version or bad arguments.
        return finished.code
    except KeyboardInterrupt:
        return _complain("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        _drop_output()
        return _complain("stdout was closed before the end", _FAILED)
    except _BAD_INPUTS as error:
        return _complain(error, _BAD_INPUT)
    except (MemoryError, OSError, RuntimeError) as error:
        return _complain(error, _FAILED)
    return 0


class _Parser(argparse.ArgumentParser):
    """Reports a bad argument in one line."""

    def error(self, message):
        line = f"{message} (see {self.prog} --help)"
        self.exit(_complain(line, _BAD_INPUT))


def _parser():
    parser = _Parser(
        prog=PROGRAM,
        description="Make the embedding tables of Keras models 10 to 100 "
        "times smaller.",
    )
    version = importlib.metadata.version("keras-compembed")
    parser.add_argument(
        "--version", action="version", version=f"{PROGRAM} {version}"
    )
    verbs = {
        "compress": (_add_compress, "compress the tables of a trained model"),
        "export": (_add_export, "write a model as a LiteRT (TFLite) file"),
        "report": (_add_report, "show the size of each embedding"),
        "inspect": (_add_inspect, "list the parts of a LiteRT or vector file"),
        "learn": (_add_learn, "compress a file of word vectors"),
    }
    commands = parser.add_subparsers(
        dest="verb", required=True, metavar=" | ".join(verbs)
    )
    for verb, (add_arguments, text) in verbs.items():
        about = f"{text[0].upper()}{text[1:]}."
        command = commands.add_parser(verb, help=text, description=about)
        add_arguments(command, command.add_argument)
        command.add_argument(
            "--overwrite", action="store_true", help="replace existing outputs"
        )
    return parser


def _add_compress(command, add):
    add("model", help=f"the trained model: {_MODEL}")
    add("-o", "--output", required=True, help="the .keras file to write")
    _add_code_shape(add)
    add(
        "--layers",
        nargs="+",
        help="names of the layers to compress (default: all tables of at "
        "least 65,536 bytes)",
    )
    add("--effort", type=float, help="relative search time (default: 1.0)")
    _add_learning(add)
    _add_inputs(add)
    add(
        "--distill",
        action="store_true",
        help="train compressed tables towards the model's outputs for the "
        "sample inputs, without labels",
    )
    _add_imports(add)
    group = command.add_argument_group(
        "size or loss limit",
        "set one limit to choose the best method within it; the other options "
        "describe the LiteRT file and the search",
    )
    add = group.add_mutually_exclusive_group().add_argument
    add("--max-bytes", help=f"size limit of the LiteRT file, {_BYTES}")
    add("--max-loss", type=float, help="allowed drop of the validation metric")
    add = group.add_argument
    _add_file(add)
    add(
        "--data",
        help="an .npz file with x_validation and y_validation to choose a "
        "method, and x_train and y_train to train the best few; with several "
        "inputs, one array per input, such as x_train_NAME",
    )
    add("--epochs", type=int, help="training epochs for the best few methods")
    add("--max-time", type=float, help="time limit of the search, in seconds")
    add("--frontier", help="a .json file to write the search results to")


def _add_export(command, add):
    add("model", help=_MODEL)
    add("output", help="the .tflite file to write")
    add(
        "--max-bytes",
        help="size limit, or none (default: the limit given to `compress`)",
    )
    _add_file(add)
    _add_inputs(add)
    _add_imports(add)


def _add_file(add):
    add(
        "--runtime",
        choices=_RUNTIMES,
        help="the runtime of the app: litert (ids in), tf-text (texts in, "
        "LiteRT with the ops of tensorflow-text) or mediapipe (texts in, "
        "MediaPipe Tasks) (default: litert)",
    )
    add(
        "--min-runtime",
        help="oldest TFLite runtime: 2.18 for LiteRT 1.0.1 and MediaPipe, "
        "2.17 for the pod TensorFlowLiteSwift (default: 2.18)",
    )
    add(
        "--task",
        choices=("classifier", "embedder"),
        help="the MediaPipe task (default: classifier)",
    )
    add("--labels", help="a text file with a class name on each line")
    add("--name", help="name of the model, stored in the file")
    add("--top-k", type=int, help="output TOP_K best classes; 0: as in Keras")
    add(
        "--quantize", choices=_QUANTIZE, help="dtype of weights (default: int8)"
    )
    add(
        "--optimize-for",
        choices=("latency", "size", "memory"),
        help="goal for embedding lookups (default: the fastest that make the "
        "file at most 2 percent larger)",
    )
    add(
        "--unroll",
        action="store_true",
        default=None,
        help="unroll recurrent layers; MediaPipe has no loops",
    )


def _add_inputs(add):
    add(
        "--input",
        dest="inputs",
        action="append",
        default=[],
        metavar="NAME:SHAPE:DTYPE",
        help="an input of a subclassed model, e.g. ids:1x32:int32, or "
        "ids:?x32:int32 for any batch size; repeat it for a dict of several "
        "inputs",
    )
    add(
        "--sample-inputs",
        help="typical inputs: an .npz file, or a .txt file of texts, one per "
        "line",
    )


def _add_report(command, add):
    add("model", help=f"{_MODEL}, or compressed vectors, .npz")
    add("original", nargs="?", help="the uncompressed model or vectors")
    add("--json", help="also write the figures to this .json file")
    add("--plot", help="plot the sizes to this file, e.g. a .png file")
    add("--html", help="write the report as this .html page")
    add(
        "--words",
        action="append",
        default=[],
        metavar="[LAYER=]FILE",
        help="for the page: a text file with the word of each row, one per "
        "line; without LAYER, for every layer of that length",
    )
    add("--data", help="for the page: an .npz file with x_test and y_test")
    add(
        "--frontier",
        help="for the page: a .json file of `compress --frontier`, or compute",
    )
    _add_imports(add)


def _add_inspect(command, add):
    add("file", help="a .tflite file, or compressed vectors, .npz")
    add("--json", help="also write the contents to this .json file")


def _add_learn(command, add):
    add("vectors", help="a file of vectors, a folder, or hf://USER/REPOSITORY")
    add("-o", "--output", required=True, help="the .npz file to write")
    add("--max-bytes", help=f"size limit of the output with words, {_BYTES}")
    _add_code_shape(add)
    add("--format", help="format of the vectors (default: detected)")
    add("--words", help="a text file with the word of each row, one per line")
    add("--tensor", help="name of the array to read, if there are several")
    add("--limit", type=int, help="keep only the first LIMIT words")
    add("--encoding", default="utf-8", help="for words (default: utf-8)")
    add(
        "--unicode-errors",
        choices=("strict", "ignore", "replace", "backslashreplace"),
        default="strict",
        help="how to handle words that cannot be decoded (default: strict)",
    )
    add(
        "--subwords",
        nargs="?",
        const=True,
        default=False,
        type=int,
        help="keep fastText's character n-grams, for unknown words; at most "
        "SUBWORDS of them (without a number: as many as words)",
    )
    _add_learning(add)


def _add_code_shape(add):
    add("-m", "--num-codebooks", type=int, help="codebooks (default: 32)")
    add("-k", "--codebook-size", type=int, help="codewords each (default: 16)")


def _add_learning(add):
    add("--seed", type=int, help="random seed, for repeatable results")
    add(
        "--keep-partial",
        action="store_true",
        help="on Ctrl-C, keep the best result so far of the current table or "
        "search and continue with the next (default: stop without a file)",
    )


def _add_imports(add):
    add(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="import this module first, for custom layers, losses and "
        "functions; may be repeated",
    )


@contextlib.contextmanager
def _ending_on_signals():
    """Ends the process on a signal and leaves no partial files."""
    before = {}
    try:
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            # Keep signals that are ignored, e.g. by `nohup`.
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
        # Not `print`: the signal may have interrupted it.
        os.write(2, line.encode())
    finally:
        # Also if the terminal is gone.
        os._exit(128 + number)


def _complain(problem, status):
    line = " ".join(str(problem).split()) or type(problem).__name__
    for words, option in _IN_SHELL.items():
        line = line.replace(words, option)
    print(f"{PROGRAM}: error: {line}", file=sys.stderr)
    return status


def _drop_output():
    """Discards output for a closed stdout; Python would complain at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _prepare_streams():
    """Opens missing streams and makes them accept any character."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            # After `2>&-`, the first file opened would become stderr.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))
        elif mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
