"""`keras-compembed inspect`."""

import contextlib

from keras_compembed.cli import arguments as common
from keras_compembed.cli.inputs import check_different
from keras_compembed.cli.inputs import check_file
from keras_compembed.cli.lines import answering
from keras_compembed.cli.report import write_json
from keras_compembed.utils.files import check_output

WHAT_IT_DOES = (
    "show the inputs, outputs, ops and sizes of a LiteRT (TFLite) file"
)


def add_arguments(command):
    command.add_argument("file", help="the .tflite file")
    command.add_argument(
        "--json", metavar="FILE", help="write what was found there too"
    )
    common.add_overwrite(command)


def check(arguments):
    check_file(arguments.file)
    if arguments.json:
        check_different(arguments.file, arguments.json)
        check_output(arguments.json, arguments.overwrite)


def run(arguments, stops):
    from keras_compembed.export.inspect_litert import inspect_litert

    found = inspect_litert(arguments.file)
    if arguments.json:
        with contextlib.ExitStack() as files:
            write_json(found, arguments.json, arguments.overwrite, files)
    with answering():
        print(found)
