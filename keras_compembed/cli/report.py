"""`keras-compembed report`."""

import contextlib
import json

from keras_compembed.cli import arguments as common
from keras_compembed.cli.inputs import check_different
from keras_compembed.cli.inputs import check_imports
from keras_compembed.cli.inputs import check_model_file
from keras_compembed.cli.inputs import load_model
from keras_compembed.cli.lines import answering
from keras_compembed.utils.extras import require
from keras_compembed.utils.files import check_output
from keras_compembed.utils.files import replacing

WHAT_IT_DOES = (
    "show what the embeddings of a model take, and would take otherwise"
)


def add_arguments(command):
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
    common.add_imports(command)
    common.add_overwrite(command)


def check(arguments):
    check_imports(arguments.imports)
    check_model_file(arguments.model)
    if arguments.reference:
        check_model_file(arguments.reference)
    outputs = list(filter(None, (arguments.json, arguments.plot)))
    check_different(arguments.model, *outputs)
    if arguments.reference:
        check_different(arguments.reference, *outputs)
    for output in outputs:
        check_output(output, arguments.overwrite)
    if arguments.plot:
        require("matplotlib", "plots")


def run(arguments, stops):
    model = load_model(arguments.model, arguments.imports)
    reference = None
    if arguments.reference:
        reference = load_model(arguments.reference, arguments.imports)

    from keras_compembed.reports.size_report import size_report

    report = size_report(model, reference=reference)
    # Both files are there, or none.
    with contextlib.ExitStack() as files:
        if arguments.json:
            write_json(report, arguments.json, arguments.overwrite, files)
        if arguments.plot:
            report.plot(
                files.enter_context(
                    replacing(arguments.plot, arguments.overwrite)
                )
            )
    with answering():
        print(report)


def write_json(report, path, overwrite, files):
    """Writes `report.to_dict()`; `path` is there when `files` closes."""
    temporary = files.enter_context(replacing(path, overwrite))
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(report.to_dict(), file, indent=2)
        file.write("\n")
