"""`keras-compembed compress`."""

import functools

from keras_compembed import cli
from keras_compembed.cli import files
from keras_compembed.compression.budget_search import BudgetSearch
from keras_compembed.compression.compress_model import compress_model
from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.reports.size_report import size_report
from keras_compembed.utils.byte_counts import number_of_bytes
from keras_compembed.utils.files import replacing

_LIMITS = ("max_bytes", "ratio", "max_loss")
_OF_SEARCH = ("quantize", "runtime", "min_runtime", "epochs", "max_time")


def run(arguments):
    path, frontier = arguments.output, arguments.frontier
    options = _options(arguments)
    files.check_output(path, ".keras", arguments.overwrite, arguments.model)
    if frontier:
        files.check_output(frontier, ".json", arguments.overwrite)
    model = files.load_model(arguments.model, arguments.imports)
    with cli.keeping(arguments.keep_partial):
        small = compress_model(
            model,
            num_codebooks=arguments.num_codebooks,
            codebook_size=arguments.codebook_size,
            layers=arguments.layers,
            min_bytes=arguments.min_bytes,
            seed=arguments.seed,
            **options,
        )
    with replacing(path, arguments.overwrite) as temporary:
        try:
            small.save(temporary)
        except (OSError, RuntimeError) as error:
            raise OSError(f"Cannot write {path!r}: {error}.") from error
    if frontier:
        options["search"].frontier.save(frontier, arguments.overwrite)
    lines = ["", str(size_report(small)), "", f"Written: {path}"]
    if not model.compiled:
        lines.append("The result is not compiled.")
    return "\n".join(lines)


def _options(arguments):
    """Arguments of `compress_model` on a limit, or on learning codes."""
    limit = files.given(arguments, *_LIMITS)
    search = files.given(arguments, *_OF_SEARCH)
    if not limit:
        others = files.given(arguments, *_OF_SEARCH, "data", "frontier")
        if others:
            names = ", ".join(f"--{x.replace('_', '-')}" for x in others)
            raise ValueError(
                f"{names} must be given with --max-bytes, --ratio or "
                "--max-loss."
            )
        effort = files.given(arguments, "effort")
        learner = functools.partial(AdditiveQuantizer, **effort)
        return {"learner": learner} if effort else {}
    if arguments.effort is not None:
        raise ValueError("--effort must not be given with a limit.")
    if arguments.max_bytes is not None:
        limit["max_bytes"] = number_of_bytes("max_bytes", arguments.max_bytes)
    if arguments.data is not None:
        data = files.read_data(arguments.data, "validation", "train")
        search |= {f"{part}_data": pair for part, pair in data.items()}
    return {**limit, "search": BudgetSearch(**search)}
