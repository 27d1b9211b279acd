"""Replaces the embedding tables of a trained model by smaller layers."""

import keras

from keras_compembed.compositions.registry import is_same_composition
from keras_compembed.compression.budget_search import check_budget
from keras_compembed.compression.budget_search import check_search
from keras_compembed.compression.code_shapes import code_shape_for_latency
from keras_compembed.compression.compile_copy import compile_like
from keras_compembed.compression.find_size import FindSize
from keras_compembed.compression.only_readers import find_poolings
from keras_compembed.compression.pooling_choice import get_pooling
from keras_compembed.compression.pooling_choice import keep_shared_poolings
from keras_compembed.compression.replaceable_layers import is_embed_reduce
from keras_compembed.compression.replaceable_layers import reason_to_skip
from keras_compembed.compression.replaced_table import ReplacedTable
from keras_compembed.compression.replaced_table import read_tables
from keras_compembed.compression.searched_tables import find_searched_tables
from keras_compembed.compression.table_choice import CODES
from keras_compembed.compression.table_choice import check_found
from keras_compembed.compression.table_choice import layers_that_hold
from keras_compembed.compression.table_choice import leave
from keras_compembed.compression.table_choice import read_names
from keras_compembed.compression.table_choice import why_left
from keras_compembed.compression.table_copies import copy_with_tables
from keras_compembed.methods.codes import Codes
from keras_compembed.methods.exact_methods import exact_methods
from keras_compembed.methods.method import check_method
from keras_compembed.reports.size_report import size_report
from keras_compembed.utils.layer_names import named_layers
from keras_compembed.utils.sizes import format_bytes
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

_SHAPE = frozenset(("num_codebooks", "codebook_size", "method"))
_METHOD = _SHAPE | {"composition"}
_CODES_BY_DEFAULT = {
    "num_codebooks": 32,
    "codebook_size": 16,
    "composition": None,
    "learner": None,
}


def compress_model(
    model,
    num_codebooks=None,
    codebook_size=None,
    layers=None,
    layer_settings=None,
    min_bytes=65_536,
    composition=None,
    learner=None,
    method=None,
    optimize_for=None,
    recode_every=None,
    max_bytes=None,
    ratio=None,
    max_loss=None,
    search=None,
    seed=None,
    sample_inputs=None,
    verbose=1,
):
    """Returns a copy of a trained model with codes in place of its tables.

    Every `keras.layers.Embedding` of at least `min_bytes` becomes a
    `CodeEmbedding` of the same name, mask, dtype policy and trainability,
    with codes and codebooks learned from its table. So do
    `keras.layers.ReversibleEmbedding`, with two tables of codes where its
    weights are not tied, and `keras_rs.layers.EmbedReduce`.

    An `Embedding` whose rows only a pooling reads becomes one with a
    `combiner`: vectors are summed in code space, and none is composed. The
    pooling may be a `GlobalAveragePooling1D`, masked or not, or a
    `keras.ops.mean` or `sum` over time, in the graph of a Sequential or
    functional model. In its place, and of its name, is then a
    `keras.layers.Identity` or another that passes on what it gets:
    `get_layer(name).output` of both are pooled vectors. Tables that anything
    else reads as well, or that are pooled in the `call` of a class, give rows;
    `export_litert` pools in code space there too.

    All other layers are made again from their class and config, and given
    the original's state. If the model was compiled, so is the copy, with fresh
    metrics and a fresh optimizer. Before any codes are learned, the copy,
    still with the rows of the original tables, is run beside the model on
    `sample_inputs`, and must give the same in every layer.

    Tables are found wherever Keras tracks them, however deep. A layer used
    several times is replaced once, in all places. Layers and models that make
    a table in their constructor must have a config, as for saving; the copy
    is then an instance of a subclass, whose config has the layer of codes as
    well, and `keras.saving.load_model` loads its files where
    `keras_compembed` and the modules of the model's classes are imported. A
    table that another layer has as a variable of its own is left as it is.

    If neither a code shape, a composition nor a method is given, tables that
    are at least half zeros are stored by `keras_compembed.methods.Pruned`, and
    those of at most 256 different numbers as codes of single numbers: both
    lose nothing. `keras_compembed.from_tf_keras` gives such tables of models
    that tensorflow-model-optimization pruned or clustered.

    Tables that Keras quantized become floats first, and updates of LoRA are
    merged into them. A subclass of Embedding that only adds methods is
    replaced by a layer without them; one that computes something else is
    left, by name. Regularizers and constraints of tables are not carried
    over to codebooks. Ctrl-C ends the learning of one table, with the best
    codes so far, and goes on to the next.

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((None,), dtype="int32"),
    ...     keras.layers.Embedding(2000, 64),
    ...     keras.layers.GlobalAveragePooling1D(),
    ...     keras.layers.Dense(2),
    ... ])
    >>> small = compress_model(model, num_codebooks=8, verbose=0)
    >>> small.layers[0].combiner.name
    'mean'

    Args:
        model: A built `keras.Model`: Sequential, functional or subclassed.
        num_codebooks: Optional integer. Subcodes per id. Defaults to `None`:
            32.
        codebook_size: Optional integer from 2 to 65536. Codewords per
            codebook. Defaults to `None`: 16.
        layers: Optional list of names: replace these layers only, whatever
            their size. Where several Embedding layers have one name, name
            them by path, e.g. `"tower_a/embedding"`. Defaults to `None`:
            every one of `min_bytes` or more.
        layer_settings: Optional dict from a layer's name, or path, to a dict
            of its own `num_codebooks`, `codebook_size`, `composition`,
            `learner`, `method`, `seed`, `sample_weight` (array
            `(input_dim,)`, how much each row counts, e.g. how often its token
            occurs) or `pooled` (boolean: `False` for a layer that shall give
            rows though only a pooling reads them, `True` to raise an error
            where it cannot give pooled vectors).
        min_bytes: Integer. Tables of fewer bytes, as stored, are left alone.
            Defaults to `65536`.
        composition: Optional composition of codewords: `"sum"`, `"concat"`,
            `"linear"`, `"lstm"` or a `Composition`. Defaults to `None`: that
            of the learner, or `"sum"`.
        learner: Optional callable `learner(num_codebooks, codebook_size)`
            that makes a `CodeLearner`, e.g. the class `GumbelCodeLearner`. If
            it takes a `seed` too, it gets the one below where it has none of
            its own. Defaults to `None`: `AdditiveQuantizer`, or for
            compositions other than `"sum"` `KDCodeLearner`.
        method: Optional method of `keras_compembed.methods`, another way to
            store tables, in place of the four arguments on codes. Defaults
            to `None`: `keras_compembed.methods.Codes` of these.
        optimize_for: `None` or `"latency"`, which codes tables that give rows
            in fewer, larger codebooks with as many bits a row, which LiteRT
            files look up faster, if the table is still 10 times smaller.
            Layers whose own shape is in `layer_settings` keep it, as do
            tables that are pooled, and compositions other than `"sum"`.
            Defaults to `None`: codes of the shape given.
        recode_every: Optional integer. Lets codes follow the task while the
            copy is trained with the callback `RecodeEmbeddings`, which gives
            ids new codes every so many steps. Defaults to `None`: codes are
            fixed.
        max_bytes: Optional integer. Bytes that the LiteRT file of the result
            may have: in place of a method and its settings, those that lose
            least are searched for, and the file comes as near to the limit as
            helps. Tables share the bytes by what each gains.
        ratio: Optional number above 1, in place of `max_bytes`: how many
            times smaller than the float32 LiteRT file of the model as it is.
        max_loss: Optional number of at least 0, in place of `max_bytes`: how
            much worse a metric on validation data may get. The smallest file
            within it is searched for.
        search: Optional `BudgetSearch`, how to search for one of these three.
            What was looked at is its `frontier`.
        seed: Optional integer. Seed of the learners.
        sample_inputs: Optional inputs, arrays as the model is called with
            them, for the comparison of the copy, and to build copies whose
            layers are built by a call. Defaults to `None`: random ids, words
            and numbers; if the model does not take them, a warning says so,
            and nothing is compared.
        verbose: `0` or `1`, whether to show progress and to say what was
            replaced and what was skipped. Sizes shown are without the latent
            vectors that `recode_every` needs and `kc.strip` drops. Defaults
            to `1`.

    Returns:
        A new model.

    Raises:
        ValueError: if a name or setting is unknown, a table is not finite,
            there is nothing to compress, a layer cannot be copied, the copy
            is not the same function, or no file is within a limit (the
            message names the smallest).
    """
    check_model(model)
    codes = (num_codebooks, codebook_size, composition, learner)
    given = {
        name: value
        for name, value in zip(CODES, codes, strict=True)
        if value is not None
    }
    codes = {**_CODES_BY_DEFAULT, **given}
    check_code_shape(codes["num_codebooks"], codes["codebook_size"])
    limits = {"max_bytes": max_bytes, "ratio": ratio, "max_loss": max_loss}
    if search is not None or any(x is not None for x in limits.values()):
        others = {
            **given,
            "method": method,
            "optimize_for": optimize_for,
            "recode_every": recode_every,
        }
        return _within_limit(
            model,
            limits,
            check_search(search),
            [name for name, value in others.items() if value is not None],
            (layers, layer_settings, min_bytes, seed),
            sample_inputs,
            verbose,
        )
    if method is not None:
        _check_alone(method, given, recode_every, optimize_for)
    check_choice("optimize_for", optimize_for, (None, "latency"))
    check_positive_int("min_bytes", min_bytes, minimum=0)
    if recode_every is not None:
        check_positive_int("recode_every", recode_every)
    names = named_layers(model, keras.layers.Embedding)
    wanted, own_settings = read_names(model, layers, layer_settings or {})
    defaults = {
        **codes,
        "method": method,
        "pooled": None,
        "sample_weight": None,
        "seed": seed,
    }
    held = layers_that_hold(model)
    # A learner says only how codes are learned.
    is_open = not (
        _METHOD.intersection(given) or method or optimize_for or recode_every
    )
    poolings = find_poolings(model)
    chosen, skipped = [], []
    for name, layer in names.items():
        own = own_settings.get(id(layer), {})
        settings = {**defaults, **own}
        settings["method"] = _method_of(settings, own)
        reason = why_left(
            layer, settings["method"], layers, wanted, min_bytes, held
        )
        if not reason:
            if is_open and not _METHOD.intersection(own):
                settings["method"] = _exact(layer, settings["method"], held)
            pooling = get_pooling(name, layer, settings, poolings)
            if optimize_for and not _SHAPE.intersection(own):
                if pooling is None and not is_embed_reduce(layer):
                    settings["method"] = _faster(name, layer, settings, verbose)
            table = ReplacedTable(
                name, layer, settings, recode_every, verbose, pooling
            )
            if table.bytes_after >= table.bytes_before:
                reason = (
                    f"{settings['method'].name} would be no smaller than it is"
                )
        if reason:
            skipped.append(leave(name, layer, wanted, reason))
        else:
            chosen.append(table)
    keep_shared_poolings(chosen, poolings)
    check_found(model, chosen, skipped, verbose)
    small = copy_with_tables(model, chosen, sample_inputs)
    compile_like(small, model)
    for table in chosen:
        table.learn()
    if verbose:
        before = size_report(model).total_bytes
        after = size_report(small).total_bytes
        print(
            f"{model.name}: {format_bytes(before)} -> {format_bytes(after)} "
            f"in all, {before / after:.1f} times smaller"
        )
    return small


def _method_of(settings, own):
    """The `Method` of a layer: its own, or codes of its own settings."""
    method = settings["method"]
    own_codes = {name: own[name] for name in CODES if name in own}
    if method is not None and not own_codes:
        return method
    if method is not None and method.can_follow:
        return method.with_settings(**own_codes)
    return Codes(*(settings[name] for name in CODES))


def _exact(layer, method, held):
    """A method by which a table loses nothing, or else the one given."""
    tables = read_tables(layer)
    for exact in exact_methods(tables[0]) if len(tables) == 1 else ():
        if reason_to_skip(layer, exact, 0, held) is None:
            return exact
    return method


def _faster(name, layer, settings, verbose):
    """Codes of the shape that files look up fastest."""
    codes = settings["method"]
    if not is_same_composition(codes.composition or "sum", "sum"):
        return codes
    asked = codes.num_codebooks, codes.codebook_size
    fast = code_shape_for_latency(layer.input_dim, layer.output_dim, *asked)
    if verbose and fast != asked:
        print(
            f"{name}: {fast[0]} x {fast[1]} codes in place of {asked[0]} x "
            f"{asked[1]}, for latency"
        )
    return codes.with_settings(num_codebooks=fast[0], codebook_size=fast[1])


def _within_limit(
    model, limits, search, others, choice, sample_inputs, verbose
):
    """The best copy of a model within a limit."""
    check_budget(model, **limits, search=search)
    if others:
        raise ValueError(
            "A limit must not be given with "
            f"{', '.join(f'`{name}`' for name in others)}: it searches for "
            "the method and its settings. `methods` of a "
            "`keras_compembed.compression.BudgetSearch` are those to choose "
            "from."
        )
    layers, layer_settings, min_bytes, seed = choice
    check_positive_int("min_bytes", min_bytes, minimum=0)
    tables = find_searched_tables(
        model, layers, layer_settings, min_bytes, seed, search, verbose
    )
    find = FindSize(model, tables, search, seed, sample_inputs, verbose)
    if limits["max_bytes"] is not None:
        return find.within_bytes(limits["max_bytes"])
    if limits["ratio"] is not None:
        return find.within_ratio(limits["ratio"])
    return find.within_loss(limits["max_loss"])


def _check_alone(method, given, recode_every, optimize_for):
    check_method("method", method)
    if given:
        raise ValueError(
            f"`method` must not be given with {', '.join(given)}, which are "
            f"settings of codes. Received: method={method.name!r}. Pass "
            "`method=keras_compembed.methods.Codes(...)` with them."
        )
    require(
        method.can_follow or (recode_every is None and optimize_for is None),
        "`recode_every` and `optimize_for` must be None with a method other "
        "than codes.",
        recode_every=recode_every,
        optimize_for=optimize_for,
        method=method.name,
    )


def check_model(model):
    if not isinstance(model, keras.Model):
        raise TypeError(
            f"`model` must be a `keras.Model`. Received: model={model!r}."
        )
    if not model.built:
        raise ValueError(
            "`model` must be built, so that it has tables to learn from. "
            f"Received: the unbuilt model {model.name!r}."
        )
