"""`keras-compembed compress`."""

import warnings

from keras_compembed import cli
from keras_compembed.cli import files
from keras_compembed.cli.export import OF_FILE
from keras_compembed.cli.export import read_options
from keras_compembed.compression.budget import Budget
from keras_compembed.compression.budget import TuningData
from keras_compembed.compression.budget import count_file
from keras_compembed.compression.compress_model import compress_model
from keras_compembed.compression.distill import distill
from keras_compembed.methods.codes import Codes
from keras_compembed.reports.size_report import size_report
from keras_compembed.utils.files import replacing

_LIMITS = "max_bytes", "max_loss"
_CODES = "num_codebooks", "codebook_size", "effort"
_OF_BUDGET = *OF_FILE, "data", "epochs", "max_time", "frontier"


def run(arguments):
    path, frontier = arguments.output, arguments.frontier
    how = _how(arguments)
    files.check_output(path, ".keras", arguments.overwrite, arguments.model)
    if frontier:
        files.check_output(frontier, ".json", arguments.overwrite)
    model = files.load_model(arguments.model, arguments.imports)
    samples = files.read_inputs(arguments.sample_inputs, model)
    if samples is None and arguments.inputs:
        samples = files.some_inputs(
            files.read_signature(arguments.inputs, model)
        )
    has_budget = isinstance(how, Budget)
    if not has_budget:
        _try_export(model, samples)
    elif arguments.distill:
        how = _how(arguments, samples)
    options = arguments.layers, arguments.seed, samples
    with cli.keeping(arguments.keep_partial):
        small = compress_model(model, how, *options)
        if arguments.distill and not has_budget:
            distill(small, model, samples, seed=arguments.seed)
    with replacing(path, arguments.overwrite) as temporary:
        try:
            small.save(temporary)
        except (OSError, RuntimeError) as error:
            raise OSError(f"Cannot write {path!r}: {error}.") from error
    if frontier:
        how.frontier.save(frontier, arguments.overwrite)
    lines = ["", str(size_report(small)), "", f"Written: {path}"]
    if not model.compiled:
        lines.append("The written model is not compiled.")
    return "\n".join(lines)


def _try_export(model, samples):
    """Warns before learning starts if the model cannot be exported."""
    try:
        count_file(model, Budget(), "int8", samples)
    except (ImportError, RuntimeError, ValueError) as error:
        warnings.warn(
            f"The model cannot be exported to LiteRT. {error}", stacklevel=2
        )


def _how(arguments, inputs=None):
    """A `Budget`, `Codes`, or None without such options."""
    if arguments.distill and (arguments.data or not arguments.sample_inputs):
        raise ValueError("--distill needs --sample-inputs, and not --data.")
    limit = files.given(arguments, *_LIMITS)
    codes = files.given(arguments, *_CODES)
    others = files.given(arguments, *(_CODES if limit else _OF_BUDGET))
    if others:
        names = ", ".join(f"--{x.replace('_', '-')}" for x in others)
        rule = "must not" if limit else "must"
        raise ValueError(
            f"{names} {rule} be given with --max-bytes or --max-loss."
        )
    if not limit:
        return Codes(**codes) if codes else None
    data = None
    if arguments.data is not None:
        data = files.read_data(arguments.data, "validation", "train")
        epochs = files.given(arguments, "epochs")
        data = TuningData(data.get("train"), data["validation"], **epochs)
    return Budget(
        **limit,
        **read_options(arguments),
        data=data,
        max_time=arguments.max_time,
        inputs=inputs,
    )
