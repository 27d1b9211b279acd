"""The command line as a whole: which commands there are, and how they end."""

import argparse
import tempfile

from keras_compembed.cli import compress
from keras_compembed.cli import export
from keras_compembed.cli import inspect
from keras_compembed.cli import learn
from keras_compembed.cli import page
from keras_compembed.cli import report
from keras_compembed.cli.lines import PROGRAM
from keras_compembed.cli.lines import complain
from keras_compembed.cli.lines import drop_output
from keras_compembed.cli.package import load_package
from keras_compembed.cli.stops import Stops
from keras_compembed.utils.files import check_temporary_folder
from keras_compembed.utils.files import temporary_folder
from keras_compembed.version import __version__

_FAILED, _BAD_INPUT, _INTERRUPTED = 1, 2, 130
_COMMANDS = (compress, export, report, inspect, page, learn)


def main(argv=None, stops=None):
    """Runs the command line; returns its exit status."""
    stops = stops or Stops()
    try:
        arguments = _parser().parse_args(argv)
        arguments.check(arguments)
        check_temporary_folder()
        load_package()
        with temporary_folder(tempfile.gettempdir()) as folder:
            _run_in(folder, arguments, stops)
    except SystemExit as finished:
        # argparse ends this way after --help, --version and bad arguments.
        return finished.code
    except KeyboardInterrupt:
        return complain("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        drop_output()
        return complain("stdout was closed before the work was done", _FAILED)
    except (
        FileExistsError,
        FileNotFoundError,
        IsADirectoryError,
        ImportError,
        TypeError,
        ValueError,
    ) as error:
        return complain(error, _BAD_INPUT)
    except (MemoryError, OSError, RuntimeError) as error:
        return complain(error, _FAILED)
    return 0


def _run_in(folder, arguments, stops):
    """Runs a command; its temporary files go into a folder of its own."""
    before = tempfile.tempdir
    tempfile.tempdir = folder
    try:
        arguments.run(arguments, stops)
        # What is written is whole, and stays.
        stops.ignore()
    finally:
        tempfile.tempdir = before


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with arguments in one line."""

    def error(self, message):
        line = f"{message} (see {self.prog} --help)"
        self.exit(complain(line, _BAD_INPUT))


def _parser():
    parser = _Parser(
        prog=PROGRAM,
        description="Makes the embedding tables of Keras models 10 to 100 "
        "times smaller.",
    )
    parser.add_argument(
        "--version", action="version", version=f"{PROGRAM} {__version__}"
    )
    names = [module.__name__.rpartition(".")[2] for module in _COMMANDS]
    commands = parser.add_subparsers(required=True, metavar=" | ".join(names))
    for name, module in zip(names, _COMMANDS, strict=True):
        text = module.WHAT_IT_DOES
        command = commands.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + "."
        )
        command.set_defaults(check=module.check, run=module.run)
        module.add_arguments(command)
    return parser
