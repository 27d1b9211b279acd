"""`keras-compembed export`."""

import dataclasses

from keras_compembed.cli import files
from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.inspect_litert import inspect_litert
from keras_compembed.export.target import Target

# Options of the file, shared with `compress`.
OF_FILE = "labels", "top_k", "quantize", "name", "runtime", "min_runtime"
OF_FILE += "task", "optimize_for", "unroll"


def run(arguments):
    path, labels = arguments.output, arguments.labels
    inputs = arguments.model, labels
    files.check_output(path, ".tflite", arguments.overwrite, *inputs)
    options = read_options(arguments)
    if arguments.max_bytes is not None:
        limit = None if arguments.max_bytes == "none" else arguments.max_bytes
        target = dataclasses.replace(options["target"], max_bytes=limit)
        options["target"] = target
    model = files.load_model(arguments.model, arguments.imports)
    export = export_litert(
        model,
        path,
        input_signature=files.read_signature(arguments.inputs, model),
        sample_inputs=files.read_inputs(arguments.sample_inputs, model),
        **options,
        overwrite=arguments.overwrite,
        verbose=0,
    )
    return f"{export}\n{inspect_litert(path).describe(max_parts=5)}"


def read_options(arguments):
    """Arguments of `export_litert` that shape the file."""
    _check_task(arguments)
    given = files.given(arguments, *OF_FILE)
    options = {x: given.pop(x) for x in OF_FILE[:3] if x in given}
    if "labels" in options:
        options["labels"] = files.read_lines(options["labels"], "Labels")
    if options.get("quantize") == "none":
        options["quantize"] = None
    if "name" in given:
        given["metadata"] = {"name": given.pop("name")}
    return {**options, "target": Target(**given)}


def _check_task(arguments):
    if arguments.runtime != "mediapipe":
        if arguments.task is not None:
            raise ValueError("--task must be given with --runtime mediapipe.")
    elif (arguments.task == "embedder") != (arguments.labels is None):
        raise ValueError(
            "--runtime mediapipe must be given with either --labels FILE or "
            "--task embedder (which outputs text vectors)."
        )
