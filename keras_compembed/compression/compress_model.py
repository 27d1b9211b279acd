"""Replaces the embedding tables of a trained model by smaller layers."""

import keras

from keras_compembed.compression.budget import Budget
from keras_compembed.compression.find_size import FindSize
from keras_compembed.compression.prune_vocabulary import drop_unread_rows
from keras_compembed.compression.row_counts import batches_of
from keras_compembed.compression.row_counts import weights_by_counts
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
from keras_compembed.utils.text_tensors import with_text_tensors
from keras_compembed.utils.validation import require


def compress_model(
    model: keras.Model,
    how: Method | dict | Budget | None = None,
    layers: list | None = None,
    seed: int | None = None,
    sample_inputs: object = None,
    verbose: int = 1,
) -> keras.Model:
    """Returns a copy of a trained model with compressed embedding layers.

    Each `keras.layers.Embedding` of at least 65,536 bytes is replaced by a
    compressed layer, such as a `CodeEmbedding` learned from its table. Name,
    mask, dtype policy and trainability stay the same.
    `keras.layers.ReversibleEmbedding` and `keras_rs.layers.EmbedReduce` are
    replaced as well. The given model does not change.

    Without `how`, the method depends on the table, if it gets smaller:

    - At least half zeros: `keras_compembed.methods.Pruned`, without loss.
    - At most 256 different values: one code per value, without loss.
    - All others: `keras_compembed.methods.Codes(32, 16)`.

    `keras_compembed.from_tf_keras` reads models with such tables that
    tensorflow-model-optimization pruned or clustered.

    Pooling: if only a pooling layer reads a table's rows, the new layer has a
    `combiner` and pools the rows itself. This covers `GlobalAveragePooling1D`,
    masked or not, and `keras.ops.mean` or `sum` over time, in Sequential and
    functional models. A layer with the same name replaces the pooling layer.

    Texts: if the model takes texts, table rows beyond its vocabulary are
    dropped first, e.g. if a `TextVectorization(max_tokens=20000)` has 2,000
    words.

    Copies: the model is copied by its config and weights, as Keras saves and
    loads it. A class that Keras cannot load raises an error that says what to
    add. The copy, still with the original tables, is compared with the model on
    `sample_inputs` before learning starts. If the model is compiled, the copy
    is compiled in the same way, with new metrics and a new optimizer.

    Nested layers: a layer used several times is replaced once, in all places.
    Layers and models that make a table in their constructor need a config, as
    for saving, and become instances of a subclass. Import `keras_compembed` and
    the modules of their classes before you load the copy's file. A table stays
    as it is if another layer holds the same variable.

    Tables that Keras quantized become floats first, and LoRA updates are
    merged. A subclass of `Embedding` that only adds methods is replaced by a
    layer without them. If it computes something else, it is skipped with a
    message. Regularizers and constraints of tables are dropped. Ctrl-C stops
    learning the current table, keeps its best codes, and continues with the
    next table.

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
        how: Optional method of `keras_compembed.methods` for all tables, dict
            from layer names to methods, or `keras_compembed.Budget`, which
            searches for the best methods. If several Embedding layers share
            a name, use the path, e.g. `"tower_a/embedding"`. Defaults to
            `None`: as above.
        layers: Optional list of names of the layers to replace, whatever their
            size. Defaults to `None`: those in the dict, or all of at least
            65,536 bytes.
        seed: Optional integer. Seed of the learners. Defaults to `None`.
        sample_inputs: Optional typical inputs: arrays or texts. In Sequential
            and functional models, rows that they read often weigh more in
            learning, unless `how` has weights or data. The first of them also
            serve to compare the copy, and to build layers that are built by a
            call. Defaults to `None`: equal weights; random ids, words and
            numbers to compare. If the model does not take these, a warning says
            that nothing is compared.
        verbose: `0` or `1`. Whether to print progress, replaced layers and
            skipped layers. Sizes shown leave out latent vectors of codes that
            follow a task, which `kc.strip` drops. Defaults to `1`.

    Returns:
        A new `keras.Model`.

    Raises:
        TypeError: If `model` or `how` has the wrong type.
        ValueError: If a name is unknown, a table or layer cannot be replaced or
            copied, or no file fits the budget (the message gives the smallest).
    """
    check_model(model)
    sample_inputs = with_text_tensors(sample_inputs)
    if isinstance(how, Budget):
        how.check(model)
        if not how.sample_weight:
            model = drop_unread_rows(model, sample_inputs, verbose)
        search = FindSize(model, how, layers, seed, sample_inputs, verbose)
        return search.within_budget()
    batches = batches_of(None, sample_inputs)
    return compress_by(
        model, how, layers, seed, sample_inputs, verbose, batches
    )


def compress_by(model, how, layers, seed, sample_inputs, verbose, batches):
    """A copy; rows are weighted by how often batches of inputs read them."""
    model, small, chosen = with_new_tables(
        model, how, layers, seed, sample_inputs, verbose
    )
    compile_like(small, model)
    for table in chosen:
        table.learn(weights_by_counts(model, table.layer, batches))
    if verbose:
        before = size_report(model).total_bytes
        after = size_report(small).total_bytes
        print(
            f"{model.name}: {describe_bytes(before)} -> "
            f"{describe_bytes(after)} in total, {before / after:.1f} times "
            "smaller"
        )
    return small


def with_new_tables(model, how, layers, seed, sample_inputs, verbose):
    """The model without unread rows, its copy, and tables to learn there."""
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
            "`layers` must be None if `how` is a dict.",
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
        return f"{method.name} would not make it smaller"

    chosen = choose_tables(model, wanted, argument, replaced, verbose)
    small = copy_with_tables(model, chosen, poolings, sample_inputs)
    return model, small, chosen


def _method_by_default(layer):
    """The smallest method without loss, or else codes."""
    tables = read_tables(layer)
    for exact in exact_methods(tables[0]) if len(tables) == 1 else ():
        if reason_against(layer, exact) is None:
            return exact
    return Codes()
