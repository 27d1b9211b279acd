"""The tables of a model to compress, and their replacements."""

import collections
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.exchange.copy_check import CopyCheck
from keras_compembed.exchange.copy_with import copy_with
from keras_compembed.exchange.only_readers import Graphs
from keras_compembed.exchange.only_readers import find_poolings
from keras_compembed.exchange.only_readers import pooled_before
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.options import Combiner
from keras_compembed.layers.options import Reverse
from keras_compembed.learners.task_codes import FollowingCodes
from keras_compembed.methods.codes import Codes
from keras_compembed.reports.fidelity import fidelity
from keras_compembed.reports.size_report import size_report
from keras_compembed.utils.files import count_bytes
from keras_compembed.utils.files import describe_bytes
from keras_compembed.utils.files import format_bytes
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.model_parts import layer_paths
from keras_compembed.utils.model_parts import named_layers
from keras_compembed.utils.model_parts import own_variables
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require

# Smaller tables stay unless they are named.
SMALLEST_BYTES = 65_536
# Methods of a subclass that do not change what it computes.
_HARMLESS = {"get_config", "from_config"}
_METHOD_TYPES = (property, classmethod, staticmethod)


LeftTable = collections.namedtuple(
    "LeftTable", "name input_dim output_dim stored_bytes reason"
)
_CHUNK_ELEMENTS = 1 << 22


def check_model(model):
    if not isinstance(model, keras.Model):
        raise TypeError(
            f"`model` must be a `keras.Model`. Received: model={model!r}."
        )
    if not model.built:
        raise ValueError(
            "`model` must be built, so that its tables exist. "
            f"Received: model={model.name!r}, not built."
        )


def find_layers(model, argument, names):
    """Dict from the `id`s of named Embedding layers to names."""
    if names is None:
        return None
    require(
        not isinstance(names, str),
        f"`{argument}` must be a list of names.",
        **{argument: names},
    )
    paths = {
        path: layer
        for path, layer in layer_paths(model).items()
        if isinstance(layer, keras.layers.Embedding)
    }
    found = {}
    for name in names:
        layer = _find(argument, name, paths)
        require(
            id(layer) not in found,
            f"`{argument}` must name each layer once.",
            names=[found.get(id(layer)), name],
        )
        found[id(layer)] = name
    return found


def _find(argument, name, paths):
    """The Embedding layer with this path, or with this unique name."""
    if name in paths:
        return paths[name]
    found = {path: x for path, x in paths.items() if x.name == name}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise ValueError(
            f"`{argument}` must use paths for layers of the same name. "
            f"Received: {name!r}, the name of {sorted(found)}."
        )
    names = sorted({layer.name for layer in paths.values()})
    raise ValueError(
        f"`{argument}` must name Embedding layers of the model: "
        f"{names}. Received: {name!r}."
    )


def layers_that_hold(model):
    """Dict from the `id` of a variable to the layers that own it."""
    found = {}
    for path, layer in layer_paths(model).items():
        for variable in own_variables(layer):
            found.setdefault(id(variable), {})[id(layer)] = path
    return found


def choose_tables(model, wanted, argument, make, verbose):
    """The results of `make(name, layer)` for tables; strings are reasons.

    `wanted` is the result of `find_layers` for an argument, or None.
    """
    held = layers_that_hold(model)
    found, skipped = [], []
    for name, layer in named_layers(model, keras.layers.Embedding).items():
        is_wanted = wanted is not None and id(layer) in wanted
        if is_wanted or wanted is None:
            # Its size before rows were dropped counts.
            is_cut = hasattr(layer, "dropped_rows")
            smallest = 0 if is_wanted or is_cut else SMALLEST_BYTES
            made = reason_to_skip(layer, smallest, held) or make(name, layer)
        else:
            made = f"not named in `{argument}`"
        if not isinstance(made, str):
            found.append(made)
            continue
        if is_wanted:
            raise ValueError(
                f"`{argument}` must name layers that can be replaced. "
                f"Received: {name!r}, but {made}."
            )
        skipped.append(f"{name}: skipped, {made}")
    is_cut = any(hasattr(layer, "dropped_rows") for layer in all_layers(model))
    if not found and not is_cut:
        raise ValueError(
            f"`model` must have tables to compress. Received: {model.name!r}, "
            + ("; ".join(skipped) or _why_no_tables(model))
            + "."
        )
    if verbose:
        print(*skipped, sep="\n", end="\n" if skipped else "")
    return found


def _why_no_tables(model):
    """The message for a model without Embedding layers."""
    names = ", ".join(named_layers(model, LookupLayer))
    if not names:
        return "which has no Embedding layers"
    return (
        f"which has no Embedding layers and is compressed already: {names}. "
        "Pass the original model"
    )


def left_tables(model):
    """A model's Embedding layers, each with the reason to keep it."""
    method, held = Codes(), layers_that_hold(model)
    tables = []
    for name, layer in named_layers(model, keras.layers.Embedding).items():
        size = count_bytes(layer.weights)
        shape = layer.input_dim, layer.output_dim
        reason = reason_to_skip(layer, SMALLEST_BYTES, held)
        reason = reason or reason_against(layer, method)
        if not reason and method.litert_bytes(*shape) >= size:
            reason = f"{method.name} would be no smaller than it is"
        tables.append(LeftTable(name, *shape, size, reason))
    return tables


def reason_to_skip(layer, smallest, held):
    """Why a layer cannot or need not be replaced, or None."""
    holders = {}
    for variable in layer.variables:
        holders.update(held.get(id(variable), {}))
    if holders.pop(id(layer), None) is None:
        return "it has no table yet: call the layer first"
    if holders:
        others = ", ".join(map(repr, holders.values()))
        return f"its table is shared with {others}"
    own, _ = differences(layer)
    if own or mask_zero(layer) is None:
        cls = type(layer).__name__
        return (
            f"its class {cls} changes {listed(own or ['compute_mask'])} of "
            f"{_kind(layer).__name__}: write the same in a subclass of "
            "`CodeEmbedding`, and replace the layer by its `from_table` of the "
            "table"
        )
    before = count_bytes(layer.weights)
    if before < smallest:
        return f"{format_bytes(before)} is below {format_bytes(smallest)}"
    return None


def reason_against(layer, method):
    """Why a method cannot replace a layer, or None."""
    can_hold = True
    if is_embed_reduce(layer):
        if not method.pooled:
            return "it pools its rows: `pooled=False` is not possible"
        can_hold = method.combines
    elif isinstance(layer, keras.layers.ReversibleEmbedding):
        can_hold = method.reverses
    if not can_hold:
        return (
            f"{method.name} cannot replace a layer of class "
            f"{_kind(layer).__name__}"
        )
    return method.reason_against(layer.input_dim, layer.output_dim)


def mask_zero(layer):
    """The `mask_zero` of the same mask, or None if there is none."""
    if type(layer).compute_mask is _kind(layer).compute_mask:
        return layer.mask_zero
    ids = np.arange(layer.input_dim, dtype="int32")[None]
    mask = layer.compute_mask(ids)
    if mask is None:
        return False
    same = np.array_equal(keras.ops.convert_to_numpy(mask), ids != 0)
    return True if same else None


def is_embed_reduce(layer):
    """Whether a layer is a `keras_rs.layers.EmbedReduce`."""
    # Such a layer exists only if keras-rs is imported.
    layers = getattr(sys.modules.get("keras_rs"), "layers", None)
    cls = getattr(layers, "EmbedReduce", None)
    return cls is not None and isinstance(layer, cls)


def _kind(layer):
    """The Keras or keras-rs base class of a layer."""
    if isinstance(layer, keras.layers.ReversibleEmbedding):
        return keras.layers.ReversibleEmbedding
    if is_embed_reduce(layer):
        return sys.modules["keras_rs"].layers.EmbedReduce
    return keras.layers.Embedding


def differences(layer):
    """Names of methods that a layer's class overrides, and adds."""
    kind = _kind(layer)
    classes = type(layer).__mro__
    names = {
        name
        for cls in classes[: classes.index(kind)]
        for name, value in vars(cls).items()
        if callable(value) or isinstance(value, _METHOD_TYPES)
    }
    # Such as `__init__` and `__repr__`.
    names = {x for x in names if x == "__call__" or not x.startswith("__")}
    names -= _HARMLESS
    if kind is keras.layers.Embedding:
        # `mask_zero` runs it to find out.
        names.discard("compute_mask")
    own = sorted(name for name in names if hasattr(kind, name))
    added = sorted(names.difference(own))
    return own, [name for name in added if not name.startswith("_")]


def listed(names):
    """Names as code in a sentence."""
    return ", ".join(f"`{name}`" for name in names)


def find_table_poolings(model):
    """Poolings that are the only readers of a table's rows."""
    return find_poolings(Graphs(model), _is_plain_embedding)


def _is_plain_embedding(layer):
    """Whether a layer only looks up rows."""
    return (
        isinstance(layer, keras.layers.Embedding)
        and not isinstance(layer, keras.layers.ReversibleEmbedding)
        and not is_embed_reduce(layer)
        and layer.activity_regularizer is None
    )


class ReplacedTable:
    """A table and the layer that replaces it."""

    def __init__(self, name, layer, method, seed, verbose, poolings):
        self.name = name
        self.layer = layer
        self.method = method
        self.pooling = None
        if not is_embed_reduce(layer) and method.combines and method.pooled:
            self.pooling = poolings.get(id(layer))
        self.verbose = verbose
        check_sample_weight(method.sample_weight, layer.input_dim)
        tables = read_tables(layer)
        for table in tables:
            check_table(table, f"embeddings of {name}")
        seed = seed if method.seed is None else method.seed
        self._fits = [method.start(seed, verbose) for _ in tables]
        self._options = {"dtype": float_policy(layer.dtype_policy)}
        if method.recode_every is not None:
            self._options["codes"] = FollowingCodes(method.recode_every)
        self.small = self._make_layer()

    def _make_layer(self):
        layer = self.layer
        return self.method.new_layer(
            self._fits[0],
            layer.input_dim,
            layer.output_dim,
            activity_regularizer=layer.activity_regularizer,
            name=layer.name,
            **_options(layer, self.pooling),
            **self._options,
        )

    def keep_rows(self):
        """Makes the new layer return rows, without pooling."""
        self.pooling = None
        self.small = self._make_layer()

    @property
    def bytes_before(self):
        return count_bytes(self.layer.weights)

    @property
    def bytes_after(self):
        """Bytes of the new layer without training-only weights."""
        return size_report(self.small).embedding_bytes

    def learn(self, sample_weight=None):
        """Fits the new layer to the table."""
        if self.method.sample_weight is not None:
            sample_weight = self.method.sample_weight
        self._say_what_is_lost()
        self._say(f"learning {self.method.name}")
        tables = read_tables(self.layer)
        weights = []
        options = dict(self._options)
        for table, fit in zip(tables, self._fits, strict=True):
            learned = fit.from_table(
                table, sample_weight=sample_weight, **options
            )
            weights += learned.get_weights()
            # The second table's codes are fixed.
            options.pop("codes", None)
        self.small.set_weights(weights)
        if self.verbose:
            self._say_what_was_done(tables)

    def small_parts(self):
        """The new layers, one for each table."""
        other = self.small.reverse_embedding
        return [self.small] if other is None else [self.small, other]

    def _say(self, text):
        if self.verbose:
            print(f"{self.name}: {text}")

    def _say_what_is_lost(self):
        """Prints what the new layer lacks."""
        layer = self.layer
        if layer.lora_enabled:
            self._say("LoRA updates merged into the table")
        if layer.quantization_mode:
            mode = layer.quantization_mode
            self._say(f"{mode} values converted to floats")
        _, added = differences(layer)
        if added:
            self._say(
                f"replaced by a {type(self.small).__name__} without methods "
                f"{listed(added)} of {type(layer).__name__}"
            )

    def _say_what_was_done(self, tables):
        """Prints sizes, and how close the new layer is."""
        before, after = self.bytes_before, self.bytes_after
        cosines = []
        for table, part in zip(tables, self.small_parts(), strict=True):
            # Skips neighbors, which take long in a large table.
            near = fidelity(table, part, num_queries=1)
            cosines.append(f"{near.mean_cosine or 0:.3f}")
        self._say(
            f"{self.layer.input_dim} x {self.layer.output_dim} "
            f"{'table' if len(tables) == 1 else 'tables, two'}, "
            f"{describe_bytes(before)} -> {describe_bytes(after)}, "
            f"{before / after:.1f} times smaller, "
            f"mean cosine {' and '.join(cosines)}"
        )
        if self.pooling is not None:
            name = self.pooling.operation.name
            self._say(f"pools its rows itself, instead of {name!r}")
        more = count_bytes(self.small.weights) - after
        if more:
            more = format_bytes(more)
            self._say(f"plus {more} of latent vectors until `kc.strip`")


def _options(layer, pooling):
    """Arguments for the layer that replaces another."""
    if pooling is not None:
        return {
            "combiner": Combiner(pooling.combiner, pooling.empty_value),
            "mask_zero": pooling.mask_zero,
        }
    if is_embed_reduce(layer):
        # Its call treats id 0 like any other.
        return {"combiner": layer.combiner}
    options = {"mask_zero": mask_zero(layer)}
    if isinstance(layer, keras.layers.ReversibleEmbedding):
        options["reverse"] = Reverse(
            layer.tie_weights, layer.reverse_dtype, layer.logit_soft_cap
        )
    return options


def read_tables(layer):
    """The float arrays `(input_dim, output_dim)` of a layer."""
    to_array = keras.ops.convert_to_numpy
    if layer.quantization_mode:
        ids = np.arange(layer.input_dim, dtype="int32")
        tables = [_in_chunks(layer, ids, layer.output_dim)]
    else:
        tables = [to_array(layer.embeddings)]
    if getattr(layer, "tie_weights", True):
        return tables
    if not layer.quantization_mode:
        return [*tables, to_array(layer.reverse_embeddings).T]
    # A row's largest value is exact after quantization, so unit vectors are.
    cap, layer.logit_soft_cap = layer.logit_soft_cap, None
    try:
        columns = _in_chunks(
            lambda rows: layer(rows, reverse=True),
            np.eye(layer.output_dim, dtype="float32"),
            layer.input_dim,
        )
    finally:
        layer.logit_soft_cap = cap
    return [*tables, columns.T]


def _in_chunks(call, inputs, width):
    """The float32 output of a function, computed in parts."""
    outputs = np.empty((len(inputs), width), "float32")
    size = max(1, _CHUNK_ELEMENTS // width)
    for start in range(0, len(inputs), size):
        part = call(tf.constant(inputs[start : start + size]))
        part = keras.ops.cast(part, "float32")
        outputs[start : start + size] = keras.ops.convert_to_numpy(part)
    return outputs


def float_policy(policy):
    """A layer's dtype policy before quantization."""
    if policy.quantization_mode is None:
        return policy
    compute = policy.compute_dtype
    mixed = compute != policy.variable_dtype
    return keras.DTypePolicy(f"mixed_{compute}" if mixed else compute)


def copy_with_tables(
    model, tables, poolings, sample_inputs=None, is_checked=True
):
    """An uncompiled copy of a model with new layers for its tables."""
    needed, found = (
        collections.Counter(id(x.operation) for x in each if x is not None)
        for each in (poolings.values(), [table.pooling for table in tables])
    )
    exchanges = {}
    for table in tables:
        if table.pooling is not None:
            operation = table.pooling.operation
            if found[id(operation)] == needed[id(operation)]:
                place = pooled_before(operation, table.layer.output_dim)
                exchanges.setdefault(id(operation), (operation, place))
            else:
                # It also pools rows of layers that stay.
                table.keep_rows()
    exchanges = [(x.layer, x.small) for x in tables] + [*exchanges.values()]
    return copy_checked(model, exchanges, sample_inputs, is_checked)


def copy_checked(model, exchanges, sample_inputs=None, is_checked=True):
    """A copy with new layers, compared with the model."""
    # Eager: traced graphs would stay in memory.
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        check = CopyCheck(model, sample_inputs) if is_checked else None
        return copy_with(model, exchanges, check)
    finally:
        tf.config.run_functions_eagerly(before)
