"""`compress --max-bytes`, `--ratio` and `--max-loss`: limits, and data."""

from keras_compembed.cli import arguments as common
from keras_compembed.cli.data_file import HELP
from keras_compembed.cli.data_file import find_parts
from keras_compembed.cli.data_file import read_part
from keras_compembed.cli.data_file import require_parts
from keras_compembed.cli.inputs import check_different
from keras_compembed.cli.inputs import check_suffix
from keras_compembed.utils.files import check_output

_LIMITS = ("max_bytes", "ratio", "max_loss")
# What says the method, and its default.
_METHOD = {
    "num_codebooks": 32,
    "codebook_size": 16,
    "composition": "sum",
    "optimize_for": None,
    "effort": 1.0,
}
# How copies are trained and compared on data, by default.
_TRAINING = {"epochs": 3, "num_tuned": 3, "batch_size": 32, "mode": None}
_NEEDS_LIMIT = (
    "quantize",
    "min_runtime",
    "runtime",
    "data",
    "frontier",
    *_TRAINING,
)


def add_arguments(command):
    """Adds the arguments of a search to `compress`."""
    group = command.add_argument_group(
        "limits",
        "in place of -m, -k and the like: the methods that lose least within "
        "one of these",
    )
    group.add_argument(
        "--max-bytes",
        type=common.number_of_bytes,
        metavar="N",
        help="bytes that the LiteRT file may have, e.g. 500000, 500k or 2M "
        "(k is 1,000 bytes)",
    )
    group.add_argument(
        "--ratio",
        type=common.positive_number,
        metavar="X",
        help="how many times smaller than the float32 LiteRT file of the model",
    )
    group.add_argument(
        "--max-loss",
        type=_number,
        metavar="X",
        help="how much worse the model's first metric may get on validation "
        "data; the smallest file within it; needs --data",
    )
    group.add_argument(
        "--quantize",
        choices=("float16", "int8", "int8_codebooks"),
        help="how `export` will write the file (default: float32)",
    )
    group.add_argument(
        "--min-runtime",
        metavar="VERSION",
        help="the oldest runtime that the file must run on",
    )
    group.add_argument(
        "--runtime",
        choices=("litert", "tf-text", "mediapipe"),
        help="what the file will be for, as in `export`: for the last two it "
        "holds the tokenizer, which counts (default: litert)",
    )
    group.add_argument(
        "--data",
        metavar="FILE",
        help=f"{HELP}; without x_train and y_train, only to choose on",
    )
    group.add_argument(
        "--epochs",
        type=common.positive_whole_number,
        metavar="N",
        help="to train each of the best few (default: 3)",
    )
    group.add_argument(
        "--num-tuned",
        type=common.positive_whole_number,
        metavar="N",
        help="how many to train (default: 3)",
    )
    group.add_argument(
        "--batch-size",
        type=common.positive_whole_number,
        metavar="N",
        help="examples of a step (default: 32)",
    )
    group.add_argument(
        "--mode",
        choices=("max", "min"),
        help="whether more of the model's first metric is better (default: "
        "as Keras knows it)",
    )
    group.add_argument(
        "--frontier",
        metavar="FILE",
        help="write the sizes and losses that were looked at, a .json file",
    )


def _number(text):
    return 0.0 if text.strip("0.") == "" else common.positive_number(text)


def has_limit(arguments):
    """Whether a search is asked for."""
    return any(getattr(arguments, name) is not None for name in _LIMITS)


def _given_limits(arguments):
    return [_option(x) for x in _LIMITS if getattr(arguments, x) is not None]


def check_method(arguments):
    """Raises if the method is given with a limit, else fills it in."""
    given = _given_limits(arguments)
    codes = "num_codebooks", "codebook_size", "composition"
    arguments.given_codes = {name: getattr(arguments, name) for name in codes}
    for name, default in _METHOD.items():
        value = getattr(arguments, name)
        if value is None:
            setattr(arguments, name, default)
        elif given:
            raise ValueError(
                f"{given[0]} must not be given with {_option(name)}: it "
                "searches for the method and its settings. Received: "
                f"{_option(name)} {value}."
            )


def check(arguments):
    """Raises for arguments that do not go together, or files not there."""
    given = _given_limits(arguments)
    if len(given) > 1:
        raise ValueError(
            "One of --max-bytes, --ratio and --max-loss must be given, and no "
            f"more. Received: {' and '.join(given)}."
        )
    if not given:
        idle = [x for x in _NEEDS_LIMIT if getattr(arguments, x) is not None]
        if idle:
            raise ValueError(
                f"{_option(idle[0])} must be given with --max-bytes, --ratio "
                f"or --max-loss. Received: {_option(idle[0])} "
                f"{getattr(arguments, idle[0])}."
            )
        return
    if arguments.max_loss is not None and arguments.data is None:
        raise ValueError(
            "--max-loss must be given with --data, on which the loss is "
            "measured. Received: no --data."
        )
    if arguments.data is None:
        for name in _TRAINING:
            if getattr(arguments, name) is not None:
                raise ValueError(
                    f"{_option(name)} must be given with --data, on which the "
                    f"best are compared. Received: {_option(name)} "
                    f"{getattr(arguments, name)}."
                )
    if arguments.frontier is not None:
        check_suffix(arguments.frontier, ".json")
        check_different(arguments.model, arguments.output, arguments.frontier)
        check_output(arguments.frontier, arguments.overwrite)
    if arguments.data is not None:
        require_parts(arguments.data, "validation")


def make_search(arguments):
    """The `BudgetSearch` that the arguments ask for."""
    from keras_compembed.compression.budget_search import BudgetSearch

    options = {}
    if arguments.data is not None:
        training = {
            name: getattr(arguments, name) or default
            for name, default in _TRAINING.items()
        }
        options = {
            **_read(arguments.data),
            "fit_options": {"batch_size": training.pop("batch_size")},
            **training,
        }
    return BudgetSearch(
        quantize=arguments.quantize,
        min_runtime=arguments.min_runtime,
        runtime=arguments.runtime or "litert",
        max_time=arguments.max_time,
        **options,
    )


def _option(name):
    return "--" + name.replace("_", "-")


def _read(path):
    """`train_data` and `validation_data` of a data file."""
    data = {"validation_data": read_part(path, "validation")}
    if "train" in find_parts(path):
        data["train_data"] = read_part(path, "train")
    return data
