"""A table of a model, and the layer that takes its place."""

import collections

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.compression.table_choice import differences
from keras_compembed.compression.table_choice import is_embed_reduce
from keras_compembed.compression.table_choice import listed
from keras_compembed.compression.table_choice import mask_zero
from keras_compembed.exchange.copy_check import CopyCheck
from keras_compembed.exchange.copy_with import copy_with
from keras_compembed.exchange.only_readers import pooled_before
from keras_compembed.layers.options import Combiner
from keras_compembed.layers.options import Reverse
from keras_compembed.learners.task_codes import FollowingCodes
from keras_compembed.reports.fidelity import fidelity
from keras_compembed.reports.size_report import size_report
from keras_compembed.utils.sizes import count_bytes
from keras_compembed.utils.sizes import format_bytes
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_table

_CHUNK_ELEMENTS = 1 << 22


class ReplacedTable:
    """A table, and the layer that takes its place."""

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
        """Makes the layer in its place give rows, whatever pools them."""
        self.pooling = None
        self.small = self._make_layer()

    @property
    def bytes_before(self):
        return count_bytes(self.layer.weights)

    @property
    def bytes_after(self):
        """The compressed layer, without weights that only learning needs."""
        return size_report(self.small).embedding_bytes

    def learn(self):
        """Fits the layer in its place to the table."""
        self._say_what_is_lost()
        self._say(f"learning {self.method.name}")
        tables = read_tables(self.layer)
        weights = []
        options = dict(self._options)
        for table, fit in zip(tables, self._fits, strict=True):
            learned = fit.from_table(
                table, sample_weight=self.method.sample_weight, **options
            )
            weights += learned.get_weights()
            # Codes of the second table are fixed.
            options.pop("codes", None)
        self.small.set_weights(weights)
        if self.verbose:
            self._say_what_was_done(tables)

    def small_parts(self):
        """The layers that hold a table each in its place."""
        other = self.small.reverse_embedding
        return [self.small] if other is None else [self.small, other]

    def _say(self, text):
        if self.verbose:
            print(f"{self.name}: {text}")

    def _say_what_is_lost(self):
        """Prints what the layer in its place does not have."""
        layer = self.layer
        if layer.lora_enabled:
            self._say("updates of LoRA merged into the table")
        if layer.quantization_mode:
            mode = layer.quantization_mode
            self._say(f"{mode} numbers turned back into floats")
        _, added = differences(layer)
        if added:
            self._say(
                f"a {type(self.small).__name__} without {listed(added)} of the "
                f"class {type(layer).__name__}"
            )

    def _say_what_was_done(self, tables):
        """Prints sizes, and how near the layer in its place is."""
        before, after = self.bytes_before, self.bytes_after
        cosines = []
        for table, part in zip(tables, self.small_parts(), strict=True):
            # Not those of neighbours, which take long in a large table.
            near = fidelity(table, part, num_queries=1)
            cosines.append(f"{near.mean_cosine or 0:.3f}")
        self._say(
            f"{self.layer.input_dim} x {self.layer.output_dim} "
            f"{'table' if len(tables) == 1 else 'tables, two'}, "
            f"{format_bytes(before)} -> {format_bytes(after)}, "
            f"{before / after:.1f} times smaller, "
            f"mean cosine {' and '.join(cosines)}"
        )
        if self.pooling is not None:
            name = self.pooling.operation.name
            self._say(f"pooled by the layer itself, in place of {name!r}")
        more = count_bytes(self.small.weights) - after
        if more:
            more = format_bytes(more)
            self._say(f"besides, {more} of latent vectors until `kc.strip`")


def _options(layer, pooling):
    """Arguments that what takes a layer's place needs."""
    if pooling is not None:
        return {
            "combiner": Combiner(pooling.combiner, pooling.empty_value),
            "mask_zero": pooling.mask_zero,
        }
    if is_embed_reduce(layer):
        # Its call reads id 0 as any other, whatever it masks.
        return {"combiner": layer.combiner}
    options = {"mask_zero": mask_zero(layer)}
    if isinstance(layer, keras.layers.ReversibleEmbedding):
        options["reverse"] = Reverse(
            layer.tie_weights, layer.reverse_dtype, layer.logit_soft_cap
        )
    return options


def read_tables(layer):
    """The float arrays `(input_dim, output_dim)` that a layer stands for."""
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
    # Each vector of the basis is one of the largest numbers of its row, which
    # has no error when it is quantized.
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
    """What a function gives for inputs, as a float32 array, part by part."""
    outputs = np.empty((len(inputs), width), "float32")
    size = max(1, _CHUNK_ELEMENTS // width)
    for start in range(0, len(inputs), size):
        part = call(tf.constant(inputs[start : start + size]))
        part = keras.ops.cast(part, "float32")
        outputs[start : start + size] = keras.ops.convert_to_numpy(part)
    return outputs


def float_policy(policy):
    """The policy of a layer before it was quantized."""
    if policy.quantization_mode is None:
        return policy
    compute = policy.compute_dtype
    mixed = compute != policy.variable_dtype
    return keras.DTypePolicy(f"mixed_{compute}" if mixed else compute)


def copy_with_tables(
    model, tables, poolings, sample_inputs=None, is_checked=True
):
    """A copy of a model, not compiled, with other layers for its tables."""
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
                # It pools rows of others too, which stay.
                table.keep_rows()
    exchanges = [(x.layer, x.small) for x in tables] + [*exchanges.values()]
    # Graphs of what runs here would be kept.
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        check = CopyCheck(model, sample_inputs) if is_checked else None
        return copy_with(model, exchanges, check)
    finally:
        tf.config.run_functions_eagerly(before)
