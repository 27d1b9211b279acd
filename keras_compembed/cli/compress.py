"""`keras-compembed compress`."""

import functools
import warnings

from keras_compembed.cli import arguments as common
from keras_compembed.cli import limits
from keras_compembed.cli.inputs import check_different
from keras_compembed.cli.inputs import check_imports
from keras_compembed.cli.inputs import check_model_file
from keras_compembed.cli.inputs import check_suffix
from keras_compembed.cli.inputs import load_model
from keras_compembed.cli.lines import answering
from keras_compembed.cli.lines import show
from keras_compembed.cli.lines import warn
from keras_compembed.utils.files import check_output
from keras_compembed.utils.files import replacing
from keras_compembed.utils.validation import check_code_shape

WHAT_IT_DOES = "replace large embedding tables of a trained model by codes"
# Steps of `KDCodeLearner` at --effort 1.
_KD_ITERATIONS = 10_000


def add_arguments(command):
    command.add_argument(
        "model",
        help="the trained model, a .keras file, or .h5 of Keras 2",
    )
    command.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="the smaller model to write, a .keras file",
    )
    command.add_argument(
        "-m",
        "--num-codebooks",
        type=common.whole_number,
        metavar="M",
        help="subcodes per id (default: 32)",
    )
    command.add_argument(
        "-k",
        "--codebook-size",
        type=common.whole_number,
        metavar="K",
        help="codewords per codebook, best a power of two (default: 16)",
    )
    command.add_argument(
        "--composition",
        choices=("sum", "concat", "linear", "lstm"),
        help="how codewords become a vector (default: sum)",
    )
    command.add_argument(
        "--optimize-for",
        choices=("latency",),
        help="latency: fewer, larger codebooks with as many bits per row, "
        "where the result stays small and LiteRT files look rows up faster "
        "(default: M and K as given)",
    )
    command.add_argument(
        "--layers",
        nargs="+",
        metavar="NAME",
        help="names of the Embedding layers to replace, or paths such as "
        "tower_a/embedding where names repeat (default: all of --min-bytes or "
        "more)",
    )
    command.add_argument(
        "--min-bytes",
        type=common.whole_number,
        metavar="N",
        help="leave smaller tables as they are (default: 65536)",
    )
    command.add_argument(
        "--effort",
        type=common.positive_number,
        metavar="X",
        help="search longer for lower loss; time grows about in proportion "
        "(default: 1.0)",
    )
    command.add_argument(
        "--max-time",
        type=common.positive_number,
        metavar="S",
        help="seconds to learn the codes of one layer, for the composition "
        "sum, or of a whole search, see below (default: no limit)",
    )
    common.add_seed(command)
    command.add_argument(
        "--keep-partial",
        action="store_true",
        help="on Ctrl-C while codes are learned, write a model with the best "
        "codes found so far; tables not begun by then stay tables, which the "
        "same command on that model replaces later; Ctrl-C again ends without "
        "a file (default: Ctrl-C ends without a file)",
    )
    limits.add_arguments(command)
    common.add_imports(command)
    common.add_overwrite(command)


def check(arguments):
    limits.check_method(arguments)
    check_code_shape(arguments.num_codebooks, arguments.codebook_size)
    if arguments.max_time is not None and arguments.composition != "sum":
        raise ValueError(
            "--max-time must not be given with a composition other than sum. "
            f"Received: --composition {arguments.composition}."
        )
    check_imports(arguments.imports)
    check_model_file(arguments.model)
    check_suffix(arguments.output, ".keras")
    check_different(arguments.model, arguments.output)
    check_output(arguments.output, arguments.overwrite)
    limits.check(arguments)


def run(arguments, stops):
    try:
        model = load_model(arguments.model, arguments.imports, compile=True)
    except ValueError:
        # Perhaps only for a loss or a metric that the file does not hold.
        model = load_model(arguments.model, arguments.imports)
        print("The result is not compiled: its loss is not in the file.")
    check_output(arguments.output, arguments.overwrite, _least_bytes(model))

    from keras_compembed.compression.compress_model import compress_model
    from keras_compembed.reports.size_report import size_report

    compress = functools.partial(compress_model, model, layers=arguments.layers)
    if arguments.min_bytes is not None:
        compress = functools.partial(compress, min_bytes=arguments.min_bytes)
    found = None
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = warn
        if limits.has_limit(arguments):
            small, found, said = _within_limit(compress, arguments, stops)
        else:
            small, said = _in_codes(compress, model, arguments, stops)
    report = size_report(small)
    show(f"writing {arguments.output}")
    with replacing(arguments.output, arguments.overwrite) as temporary:
        try:
            small.save(temporary)
        except (OSError, RuntimeError) as error:
            raise OSError(
                f"Cannot write {arguments.output!r}: {error}."
            ) from error
    if arguments.frontier:
        found.save(arguments.frontier, arguments.overwrite)
    with answering():
        print(f"\n{report}\n\nWritten: {arguments.output}")
        if said:
            print(said)


def _in_codes(compress, model, arguments, stops):
    """The model with codes of the shape given, and what to say of it."""
    from keras_compembed.cli.partial import compress_until_stopped

    compress = functools.partial(
        compress,
        **arguments.given_codes,
        optimize_for=arguments.optimize_for,
    )
    make_learner = functools.partial(_make_learner, arguments)
    if arguments.keep_partial:
        return compress_until_stopped(compress, model, make_learner, stops)
    return compress(learner=make_learner), ""


def _within_limit(compress, arguments, stops):
    """The best model within a limit, its frontier, and what to say of it."""
    search = limits.make_search(arguments)
    compress = functools.partial(
        compress,
        max_bytes=arguments.max_bytes,
        ratio=arguments.ratio,
        max_loss=arguments.max_loss,
        search=search,
        seed=arguments.seed,
    )
    if not arguments.keep_partial:
        return compress(), search.frontier, ""
    with stops.raising_once():
        small = compress()
    said = "Stopped by Ctrl-C: the best found so far." if stops.asked else ""
    return small, search.frontier, said


def _least_bytes(model):
    """What the model takes without any of its tables."""
    import keras

    from keras_compembed.utils.layer_names import named_layers
    from keras_compembed.utils.sizes import count_bytes

    tables = {
        id(variable)
        for layer in named_layers(model, keras.layers.Embedding).values()
        for variable in layer.weights
    }
    return count_bytes(x for x in model.weights if id(x) not in tables)


def _make_learner(arguments, num_codebooks, codebook_size):
    from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
    from keras_compembed.learners.kd_code_learner import KDCodeLearner
    from keras_compembed.learners.training import Training

    if arguments.composition != "sum":
        return KDCodeLearner(
            num_codebooks,
            codebook_size,
            arguments.composition,
            training=Training(max(1, round(_KD_ITERATIONS * arguments.effort))),
            seed=arguments.seed,
        )
    return AdditiveQuantizer(
        num_codebooks,
        codebook_size,
        effort=arguments.effort,
        max_time=arguments.max_time,
        seed=arguments.seed,
    )
