"""Replaces the embedding tables of a trained model by smaller layers."""

import keras

from keras_compembed.compression.budget import Budget
from keras_compembed.compression.find_size import FindSize
from keras_compembed.compression.prune_vocabulary import drop_unread_rows
from keras_compembed.compression.tables import ReplacedTable
from keras_compembed.compression.tables import check_model
from keras_compembed.compression.tables import choose_tables
from keras_compembed.compression.tables import copy_with_tables
from keras_compembed.compression.tables import find_layers
from keras_compembed.compression.tables import find_table_poolings
from keras_compembed.compression.tables import read_tables
from keras_compembed.compression.tables import reason_against
from keras_compembed.exchange.copy_with import compile_like
from keras_compembed.methods.codes import Codes
from keras_compembed.methods.method import Method
from keras_compembed.methods.settings import exact_methods
from keras_compembed.reports.size_report import size_report
from keras_compembed.utils.files import describe_bytes
from keras_compembed.utils.validation import require


def compress_model(
    model: keras.Model,
    how: Method | dict | Budget | None = None,
    layers: list | None = None,
    seed: int | None = None,
    sample_inputs: object = None,
    verbose: int = 1,
) -> keras.Model:
    """Returns a copy of a trained model with smaller layers for its tables.

    Every `keras.layers.Embedding` of at least 65,536 bytes becomes a layer of
    the same name, mask, dtype policy and trainability, such as a
    `CodeEmbedding` with codes and codebooks learned from its table. So do
    `keras.layers.ReversibleEmbedding`, with two tables of codes where its
    weights are not tied, and `keras_rs.layers.EmbedReduce`.

    An `Embedding` whose rows only a pooling reads becomes one with a
    `combiner`, which sums in code space. The pooling may be a
    `GlobalAveragePooling1D`, masked or not, or a `keras.ops.mean` or `sum`
    over time, in the graph of a Sequential or functional model. A layer of
    its name then passes on pooled vectors. Other tables give rows.

    The copy is what Keras saves and loads of the model, so a class that it
    cannot load again is an error, with what to add to it. If the model was
    compiled, so is the copy, with fresh metrics and a fresh optimizer. Before
    any codes are learned, the copy, still with the original tables, is run
    beside the model on `sample_inputs`, and must give the same.

    Tables are found wherever Keras tracks them, however deep. A layer used
    several times is replaced once, in all places. Layers and models that make
    a table in their constructor must have a config, as for saving; the copy
    is then an instance of a subclass, whose config has the layer of codes as
    well, and `keras.saving.load_model` loads its files where
    `keras_compembed` and the modules of the model's classes are imported. A
    table that another layer has as a variable of its own is left as it is.

    In a model that takes texts, rows that no token of its vocabulary has, as
    with `TextVectorization(max_tokens=20000)` of 2,000 words, are dropped
    first.

    Without `how`, tables that are at least half zeros are stored by
    `keras_compembed.methods.Pruned`, and those of at most 256 different
    numbers as codes of single numbers: both lose nothing.
    `keras_compembed.from_tf_keras` gives such tables of models that
    tensorflow-model-optimization pruned or clustered. All others are stored
    by `keras_compembed.methods.Codes(32, 16)`.

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
    >>> small = compress_model(model, kc.methods.Codes(8, 16), verbose=0)
    >>> small.layers[0].combiner.name
    'mean'

    Args:
        model: A built `keras.Model`: Sequential, functional or subclassed.
        how: Optional. How tables are stored: a method of
            `keras_compembed.methods`, a dict from names of layers to methods,
            for these layers only, or a `keras_compembed.Budget`, for which
            the best methods are searched for. Where several Embedding layers
            have one name, name them by path, e.g. `"tower_a/embedding"`.
            Defaults to `None`: without loss where that makes a table smaller,
            or else by codes.
        layers: Optional list of names: replace these layers only, whatever
            their size. Defaults to `None`: those of a dict, or every one of
            65,536 bytes or more.
        seed: Optional integer. Seed of the learners.
        sample_inputs: Optional inputs, arrays as the model is called with
            them, for the comparison of the copy, and to build copies whose
            layers are built by a call. Defaults to `None`: random ids, words
            and numbers; if the model does not take them, a warning says so,
            and nothing is compared.
        verbose: `0` or `1`, whether to show progress and to say what was
            replaced and what was skipped. Sizes shown are without the latent
            vectors of codes that follow a task, which `kc.strip` drops.
            Defaults to `1`.

    Returns:
        A new model.

    Raises:
        TypeError: if an argument is of another type.
        ValueError: if a name is unknown, a method does not fit a layer that
            is named, a table is not finite, there is nothing to compress, a
            layer cannot be copied, the copy is not the same function, or no
            file is within a budget (the message names the smallest).
    """
    check_model(model)
    if isinstance(how, Budget):
        how.check(model)
        if not how.sample_weight:
            model = drop_unread_rows(model, sample_inputs, verbose)
        search = FindSize(model, how, layers, seed, sample_inputs, verbose)
        return search.within_budget()
    methods = how if isinstance(how, dict) else {None: how}
    for method in methods.values():
        if how is not None and not isinstance(method, Method):
            raise TypeError(
                "`how` must be a method such as `keras_compembed.methods."
                "Codes(32, 16)`, a dict from names of layers to methods, or a "
                f"`keras_compembed.Budget`. Received: how={how!r}."
            )
    if all(getattr(x, "sample_weight", None) is None for x in methods.values()):
        model = drop_unread_rows(model, sample_inputs, verbose)
    argument, names = "layers", layers
    if isinstance(how, dict):
        argument, names = "how", how
        require(
            layers is None,
            "`layers` must be None where `how` names layers.",
            layers=layers,
        )
    wanted = find_layers(model, argument, names)
    poolings = find_table_poolings(model)

    def replaced(name, layer):
        key = wanted[id(layer)] if isinstance(how, dict) else None
        method = methods[key] or _method_by_default(layer)
        reason = reason_against(layer, method)
        if reason:
            return reason
        table = ReplacedTable(name, layer, method, seed, verbose, poolings)
        if table.bytes_after < table.bytes_before:
            return table
        return f"{method.name} would be no smaller than it is"

    chosen = choose_tables(model, wanted, argument, replaced, verbose)
    small = copy_with_tables(model, chosen, poolings, sample_inputs)
    compile_like(small, model)
    for table in chosen:
        table.learn()
    if verbose:
        before = size_report(model).total_bytes
        after = size_report(small).total_bytes
        print(
            f"{model.name}: {describe_bytes(before)} -> "
            f"{describe_bytes(after)} in all, {before / after:.1f} times "
            "smaller"
        )
    return small


def _method_by_default(layer):
    """A method by which a table loses nothing, or else codes."""
    tables = read_tables(layer)
    for exact in exact_methods(tables[0]) if len(tables) == 1 else ():
        if reason_against(layer, exact) is None:
            return exact
    return Codes()
