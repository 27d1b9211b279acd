"""`keras-compembed export`."""

from keras_compembed.cli import files
from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.inspect_litert import inspect_litert
from keras_compembed.export.target import Target


def run(arguments):
    path, labels = arguments.output, arguments.labels
    inputs = arguments.model, labels
    files.check_output(path, ".tflite", arguments.overwrite, *inputs)
    _check_task(arguments)
    export = export_litert(
        files.load_model(arguments.model, arguments.imports),
        path,
        quantize=arguments.quantize,
        labels=labels and files.read_lines(labels, "Labels"),
        top_k=arguments.top_k,
        target=Target(
            arguments.runtime,
            arguments.min_runtime,
            arguments.task,
            arguments.optimize_for,
            arguments.name and {"name": arguments.name},
        ),
        overwrite=arguments.overwrite,
        verbose=0,
    )
    return f"{export}\n{inspect_litert(path).describe(max_parts=5)}"


def _check_task(arguments):
    if arguments.runtime != "mediapipe":
        if arguments.task is not None:
            raise ValueError("--task must be given with --runtime mediapipe.")
    elif (arguments.task == "embedder") != (arguments.labels is None):
        raise ValueError(
            "--runtime mediapipe must be given with either --labels FILE or "
            "--task embedder, for vectors of texts."
        )
