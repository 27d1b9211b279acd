"""`keras-compembed export`."""

from keras_compembed.cli import arguments as common
from keras_compembed.cli.inputs import check_different
from keras_compembed.cli.inputs import check_file
from keras_compembed.cli.inputs import check_imports
from keras_compembed.cli.inputs import check_model_file
from keras_compembed.cli.inputs import check_suffix
from keras_compembed.cli.inputs import load_model
from keras_compembed.cli.inputs import read_lines
from keras_compembed.cli.lines import answering
from keras_compembed.cli.lines import show
from keras_compembed.utils.files import check_output
from keras_compembed.utils.validation import check_version

WHAT_IT_DOES = "write a model as a LiteRT (TFLite) file"
_FIELDS = {
    "name": "what the model is called",
    "description": "what it is for",
    "model-version": "its version, e.g. 1.0",
    "author": "who made it",
    "license": "its license, e.g. Apache-2.0",
}


def add_arguments(command):
    command.add_argument(
        "model", help="the model, a .keras file, or .h5 of Keras 2"
    )
    command.add_argument("output", help="the .tflite file to write")
    command.add_argument(
        "--runtime",
        choices=("litert", "tf-text", "mediapipe"),
        default="litert",
        help="what runs the file: litert, with built-in ops, which takes ids; "
        "tf-text, an interpreter with ops of tensorflow-text, or mediapipe, "
        "MediaPipe Tasks as they are, which take texts (default: litert)",
    )
    command.add_argument(
        "--task",
        choices=("classifier", "embedder"),
        help="with --runtime mediapipe, which of its objects opens the file: "
        "TextClassifier or TextEmbedder (default: classifier)",
    )
    command.add_argument(
        "--labels",
        metavar="FILE",
        help="the names of the classes, one a line, for the file to hold; "
        "MediaPipe's TextClassifier needs them",
    )
    for field, text in _FIELDS.items():
        command.add_argument(
            f"--{field}", metavar="TEXT", help=f"{text}, for the file to say"
        )
    command.add_argument(
        "--top-k",
        type=common.whole_number,
        metavar="K",
        help="answer the K best only: classes and their probabilities of a "
        "model that ends in CANESoftmax, ids and their scores of one that ends "
        "in a reverse call of its embedding; 0 for the features or scores that "
        "the model returns (default: the probabilities of all classes, or of "
        "more than 2,000 the 10 best)",
    )
    command.add_argument(
        "--quantize",
        choices=("float16", "int8", "int8_codebooks"),
        help="how to store codebooks and other weights; int8_codebooks leaves "
        "the other weights in float32 (default: float32)",
    )
    command.add_argument(
        "--optimize-for",
        choices=("latency", "size", "memory"),
        help="which to favour where a look-up can be written in several ways: "
        "the fastest, the smallest file, or the least memory while it runs "
        "(default: the fastest of those within 2 percent of the smallest file)",
    )
    command.add_argument(
        "--no-fold",
        action="store_true",
        help="keep codebooks and a layer behind a look-up or pooling apart "
        "(default: one matrix of both, where that makes the file faster and "
        "not more than 2 percent larger)",
    )
    command.add_argument(
        "--min-runtime",
        metavar="VERSION",
        help="the oldest TFLite runtime that must run the file, e.g. 2.17: a "
        "file that needs a newer one is refused (default: any)",
    )
    common.add_imports(command)
    common.add_overwrite(command)


def check(arguments):
    if arguments.min_runtime is not None:
        check_version("--min-runtime", arguments.min_runtime)
    check_imports(arguments.imports)
    check_model_file(arguments.model)
    check_suffix(arguments.output, ".tflite")
    _check_task(arguments)
    files = [arguments.model, arguments.output]
    if arguments.labels is not None:
        files.append(arguments.labels)
        check_file(arguments.labels)
        read_lines(arguments.labels, "Labels")
    check_different(*files)
    check_output(arguments.output, arguments.overwrite)


def _check_task(arguments):
    if arguments.runtime != "mediapipe":
        if arguments.task is not None:
            raise ValueError(
                "--task needs --runtime mediapipe. "
                f"Received: --runtime {arguments.runtime}."
            )
    elif (arguments.task == "embedder") != (arguments.labels is None):
        raise ValueError(
            "--runtime mediapipe needs --labels FILE, or --task embedder for "
            "vectors of texts, which have none. Received: "
            + ("neither." if arguments.labels is None else "both.")
        )


def run(arguments, stops):
    model = load_model(arguments.model, arguments.imports)

    from keras_compembed.export.export_litert import export_litert
    from keras_compembed.export.file_metadata import FileMetadata

    labels = metadata = None
    if arguments.labels is not None:
        labels = read_lines(arguments.labels, "Labels")
    said = {
        field.removeprefix("model-"): getattr(
            arguments, field.replace("-", "_")
        )
        for field in _FIELDS
    }
    if any(text is not None for text in said.values()):
        metadata = FileMetadata(**said)
    show(f"converting {arguments.model}")
    # It prints once the file is there.
    with answering():
        export_litert(
            model,
            arguments.output,
            runtime=arguments.runtime,
            task=arguments.task,
            labels=labels,
            metadata=metadata,
            top_k=arguments.top_k,
            quantize=arguments.quantize,
            optimize_for=arguments.optimize_for,
            fold=not arguments.no_fold,
            min_runtime=arguments.min_runtime,
            overwrite=arguments.overwrite,
        )
