"""Replaces the embedding tables of a trained model by codes."""

import warnings

import keras
import numpy as np

from keras_compembed.codes.code_learner import check_code_shape
from keras_compembed.codes.compositions import count_values
from keras_compembed.codes.compositions import get_composition
from keras_compembed.codes.compositions import is_same_composition
from keras_compembed.codes.packing import bytes_per_row
from keras_compembed.compression.model_copy import copy_model
from keras_compembed.compression.model_copy import exchangeable_layers
from keras_compembed.compression.model_copy import is_searchable
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.reports.fidelity import fidelity
from keras_compembed.utils.sizes import format_bytes
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_sample_weight

_SETTINGS = (
    "num_codebooks",
    "codebook_size",
    "composition",
    "learner",
    "sample_weight",
    "seed",
)


def compress_model(
    model,
    num_codebooks=32,
    codebook_size=16,
    layers=None,
    layer_settings=None,
    min_bytes=65_536,
    composition=None,
    learner=None,
    recode_every=None,
    seed=None,
    verbose=1,
):
    """Returns a copy of a trained model with codes in place of its tables.

    Every `keras.layers.Embedding` of at least `min_bytes` becomes a
    `CodeEmbedding` of the same name, mask, dtype policy and trainability,
    with codes and codebooks learned from its table. All other layers are
    copied with their state. The model given is left as it is. If it was
    compiled, so is the copy, with a fresh optimizer of the same
    configuration.

    Sequential and functional models are searched, and such models nested in
    them; a layer used several times is replaced once, in all places. What is
    held inside other layers or inside subclassed models is not reached: make
    a `CodeEmbedding.from_table` there yourself. Regularizers and constraints
    of tables are not carried over to codebooks.

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((None,), dtype="int32"),
    ...     keras.layers.Embedding(2000, 64),
    ...     keras.layers.GlobalAveragePooling1D(),
    ...     keras.layers.Dense(2),
    ... ])
    >>> small = compress_model(
    ...     model, num_codebooks=8, codebook_size=16, verbose=0
    ... )
    >>> type(small.layers[0]).__name__
    'CodeEmbedding'

    Args:
        model: A built Sequential or functional `keras.Model`.
        num_codebooks: Integer. Subcodes an id. Defaults to `32`.
        codebook_size: Integer from 2 to 65536. Codewords a codebook. Defaults
            to `16`.
        layers: Optional list of names: replace these layers only, whatever
            their size. Defaults to `None`: every one of `min_bytes` or more.
        layer_settings: Optional dict from a layer's name to a dict of its own
            `num_codebooks`, `codebook_size`, `composition`, `learner`, `seed`
            or `sample_weight` (array `(input_dim,)`, how much each row counts,
            e.g. how often its token occurs).
        min_bytes: Integer. Smaller tables are left alone. Defaults to
            `65536`.
        composition: Optional composition of codewords: `"sum"`, `"concat"`,
            `"linear"`, `"lstm"` or a `Composition`. Defaults to `None`: that
            of the learner, or `"sum"`.
        learner: Optional callable `learner(num_codebooks, codebook_size)`
            that makes a `CodeLearner`, e.g. the class `GumbelCodeLearner`.
            Defaults to `None`: `AdditiveQuantizer`, or for compositions other
            than `"sum"` `KDCodeLearner`.
        recode_every: Optional integer. Lets codes follow the task while the
            copy is trained with the callback `RecodeEmbeddings`, which gives
            ids new codes every so many steps. Defaults to `None`: codes are
            fixed.
        seed: Optional integer. Seed of the default learner.
        verbose: `0` or `1`, whether to show progress and to say what was
            replaced and what was skipped. Defaults to `1`.

    Returns:
        A new model.

    Raises:
        TypeError: if `model` is no Sequential or functional model.
        ValueError: if the model is not built, a name or setting is unknown,
            or there is nothing to compress.
    """
    _check_model(model)
    check_code_shape(num_codebooks, codebook_size)
    check_positive_int("min_bytes", min_bytes, minimum=0)
    if recode_every is not None:
        check_positive_int("recode_every", recode_every)
    found = _embeddings(model)
    _check_names(found, layers, layer_settings or {})
    defaults = {
        "num_codebooks": num_codebooks,
        "codebook_size": codebook_size,
        "composition": composition,
        "learner": learner,
        "sample_weight": None,
        "seed": seed,
    }
    exchangeable = {id(layer) for layer in exchangeable_layers(model)}
    chosen, skipped = [], []
    for layer in found:
        settings = {**defaults, **(layer_settings or {}).get(layer.name, {})}
        if layers is not None and layer.name not in layers:
            reason = "not named in `layers`"
        elif id(layer) not in exchangeable:
            reason = "held inside another layer or a subclassed model"
        else:
            smallest = min_bytes if layers is None else 0
            reason = _reason_to_skip(layer, settings, smallest)
        if reason:
            skipped.append(f"{layer.name}: left as it is, {reason}")
        else:
            check_sample_weight(settings["sample_weight"], layer.input_dim)
            chosen.append((layer, settings))
    if not chosen:
        raise ValueError(
            f"Nothing to compress in the model {model.name!r}: "
            + ("; ".join(skipped) or "it has no Embedding layers")
            + "."
        )
    if verbose:
        print(*skipped, sep="\n", end="\n" if skipped else "")
    replacements = {
        id(layer): _compress_layer(layer, settings, recode_every, verbose)
        for layer, settings in chosen
    }
    small = copy_model(model, replacements)
    if model.compiled:
        _compile_like(small, model)
    return small


def _check_model(model):
    if not isinstance(model, keras.Model) or not is_searchable(model):
        raise TypeError(
            "`model` must be a Sequential or functional `keras.Model`. In a "
            "subclassed model, assign `CodeEmbedding.from_table(...)` "
            f"yourself. Received: model={model!r}."
        )
    if not model.built:
        raise ValueError(
            "`model` must be built, so that it has tables to learn from. "
            f"Received: the unbuilt model {model.name!r}."
        )


def _embeddings(model):
    """Embedding layers, however deep, each once."""
    found = {
        id(layer): layer
        for layer in model._flatten_layers(include_self=False)
        if isinstance(layer, keras.layers.Embedding)
    }
    return list(found.values())


def _check_names(found, layers, layer_settings):
    known = sorted({layer.name for layer in found})
    if isinstance(layers, str):
        raise ValueError(
            f"`layers` must be a list of names. Received: layers={layers!r}."
        )
    for argument, names in (
        ("layers", layers or ()),
        ("layer_settings", layer_settings),
    ):
        for name in names:
            if name not in known:
                raise ValueError(
                    f"`{argument}` must name Embedding layers of the model, "
                    f"which are {known}. Received: {name!r}."
                )
    for name, settings in layer_settings.items():
        unknown = sorted(set(settings) - set(_SETTINGS))
        if unknown:
            raise ValueError(
                f"`layer_settings` may set {', '.join(_SETTINGS)}. "
                f"Received: {unknown} for the layer {name!r}."
            )
        check_code_shape(
            settings.get("num_codebooks", 1), settings.get("codebook_size", 2)
        )


def _reason_to_skip(layer, settings, smallest):
    """Why a layer cannot or need not be replaced, or None."""
    if layer.quantization_mode:
        return f"already quantized to {layer.quantization_mode}"
    cls = type(layer)
    if (
        cls.call is not keras.layers.Embedding.call
        or cls.build is not keras.layers.Embedding.build
        or _mask_zero(layer) is None
    ):
        return f"its class {cls.__name__} does more than an Embedding"
    before = 4 * layer.input_dim * layer.output_dim
    if before < smallest:
        return f"{format_bytes(before)} is below `min_bytes`"
    if settings["num_codebooks"] > layer.output_dim and is_same_composition(
        settings["composition"] or "sum", "concat"
    ):
        return "it is narrower than `num_codebooks` parts side by side"
    if _code_bytes(layer, settings) >= before:
        return "codes and codebooks would be no smaller than the table"
    return None


def _mask_zero(layer):
    """The `mask_zero` that masks as the layer does, or None if none does."""
    if type(layer).compute_mask is keras.layers.Embedding.compute_mask:
        return layer.mask_zero
    ids = np.arange(layer.input_dim, dtype="int32")[None]
    mask = layer.compute_mask(ids)
    if mask is None:
        return False
    same = np.array_equal(keras.ops.convert_to_numpy(mask), ids != 0)
    return True if same else None


def _code_bytes(layer, settings):
    num_codebooks = settings["num_codebooks"]
    codebook_size = settings["codebook_size"]
    row = bytes_per_row(num_codebooks, codebook_size)
    composition = get_composition(
        settings["composition"] or "sum",
        num_codebooks,
        codebook_size,
        layer.output_dim,
    )
    return layer.input_dim * row + 4 * count_values(composition)


def _compress_layer(layer, settings, recode_every, verbose):
    table = keras.ops.convert_to_numpy(layer.embeddings)
    shape = settings["num_codebooks"], settings["codebook_size"]
    make_learner = settings["learner"]
    if verbose:
        print(f"{layer.name}: learning {shape[0]} x {shape[1]} codes")
    small = CodeEmbedding.from_table(
        table,
        *shape,
        composition=settings["composition"],
        learner=make_learner(*shape) if make_learner else None,
        sample_weight=settings["sample_weight"],
        seed=settings["seed"],
        verbose=verbose,
        learn_codes="follow" if recode_every else None,
        recode_every=recode_every,
        mask_zero=_mask_zero(layer),
        name=layer.name,
        dtype=layer.dtype_policy,
    )
    if verbose:
        before = 4 * layer.input_dim * layer.output_dim
        after = _code_bytes(layer, settings)
        # Neighbours, which take long in a large table, are not said here.
        near = fidelity(table, small, num_queries=1)
        print(
            f"{layer.name}: {layer.input_dim} x {layer.output_dim} table, "
            f"{format_bytes(before)} -> {format_bytes(after)}, "
            f"{before / after:.1f} times smaller, "
            f"mean cosine {near.mean_cosine or 0:.3f}"
        )
    return small


def _compile_like(small, model):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            small.compile_from_config(model.get_compile_config())
    except (TypeError, ValueError) as error:
        print(
            "The copy is not compiled, since the original's compile "
            f"arguments could not be copied ({error}). Call `compile` on it."
        )
