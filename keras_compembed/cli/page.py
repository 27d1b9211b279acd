"""`keras-compembed page`."""

import shlex

from keras_compembed.cli import arguments as common
from keras_compembed.cli.inputs import check_file
from keras_compembed.cli.inputs import read_lines
from keras_compembed.cli.lines import answering
from keras_compembed.cli.lines import show
from keras_compembed.cli.page_server import check_port
from keras_compembed.cli.page_server import page_server
from keras_compembed.utils.files import check_output_folder
from keras_compembed.utils.tasks_text import check_tasks_text

WHAT_IT_DOES = "write a page on which a text classifier is tried in a browser"


def add_arguments(command):
    command.add_argument(
        "file",
        help="the .tflite file, which takes a text: export --runtime mediapipe "
        "writes one",
    )
    command.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FOLDER",
        help="the folder to write, which works without a network",
    )
    command.add_argument(
        "--beside",
        metavar="FILE",
        help="another .tflite file to show beside it, e.g. that of the float32 "
        "model",
    )
    command.add_argument("--title", help="(default: the name of the file)")
    command.add_argument(
        "--examples", metavar="FILE", help="texts to click on, one a line"
    )
    command.add_argument(
        "--tasks-text",
        metavar="FOLDER",
        help="npm's package @mediapipe/tasks-text, fetched before (default: "
        "npm fetches it)",
    )
    command.add_argument(
        "--serve",
        type=common.positive_whole_number,
        metavar="PORT",
        help="then serve the page at http://localhost:PORT until Ctrl-C",
    )
    common.add_overwrite(command)


def check(arguments):
    for path in (arguments.file, arguments.beside, arguments.examples):
        if path is not None:
            check_file(path)
    if arguments.serve:
        check_port(arguments.serve)
    # What is in a folder that is there is looked at later.
    check_output_folder(arguments.output, overwrite=arguments.overwrite)
    check_tasks_text(arguments.tasks_text)


def run(arguments, stops):
    from keras_compembed.reports.text_page import text_page

    examples = ()
    if arguments.examples:
        lines = read_lines(arguments.examples, "Examples")
        examples = [line for line in lines if line.strip()]
    if not arguments.tasks_text:
        show("fetching MediaPipe's package with npm")
    text_page(
        arguments.file,
        arguments.output,
        beside=arguments.beside,
        title=arguments.title,
        examples=examples,
        tasks_text=arguments.tasks_text,
        overwrite=arguments.overwrite,
    )
    if arguments.serve:
        _serve(arguments.output, arguments.serve, stops)
        return
    with answering():
        print(
            "Serve it: python -m http.server -d "
            f"{shlex.quote(arguments.output)}"
            "\nand go to http://localhost:8000"
        )


def _serve(folder, port, stops):
    with page_server(folder, port) as server, stops.raising_once():
        try:
            with answering():
                print(
                    f"Go to http://localhost:{port}; Ctrl-C ends it.",
                    flush=True,
                )
            server.serve_forever()
        except KeyboardInterrupt:
            pass
