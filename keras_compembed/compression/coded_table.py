"""A table of a model, and the layer of codes that takes its place."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.compositions.registry import is_same_composition
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.layers.reversible_code_embedding import (
    ReversibleCodeEmbedding,
)
from keras_compembed.learners.following_codes import FollowingCodes
from keras_compembed.learners.registry import get_learner
from keras_compembed.reports.fidelity import fidelity
from keras_compembed.reports.size_report import size_report
from keras_compembed.utils.sizes import count_bytes
from keras_compembed.utils.sizes import format_bytes
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_table

_CHUNK_ELEMENTS = 1 << 22
_REVERSE_OPTIONS = ("tie_weights", "reverse_dtype", "logit_soft_cap")
# What a subclass may have without computing something else.
_HARMLESS = {"get_config", "from_config"}
_METHOD_TYPES = (property, classmethod, staticmethod)


class CodedTable:
    """A table, and the layer of codes that takes its place.

    A `ReversibleEmbedding` whose weights are not tied has two tables.

    Args:
        name: String, what to call it in messages.
        layer: An Embedding layer.
        settings: Dict of what `layer_settings` may hold.
        recode_every: Same as in `compress_model`.
        verbose: Same as in `compress_model`.
    """

    def __init__(self, name, layer, settings, recode_every, verbose):
        self.name = name
        self.layer = layer
        self.verbose = verbose
        self.sample_weight = settings["sample_weight"]
        shape = settings["num_codebooks"], settings["codebook_size"]
        check_sample_weight(self.sample_weight, layer.input_dim)
        tables = read_tables(layer)
        for table in tables:
            check_table(table, f"embeddings of {name}")
        self.learners = [_make_learner(settings, verbose) for _ in tables]
        self.options = {
            "num_codebooks": shape[0],
            "codebook_size": shape[1],
            "learn_codes": recode_every and FollowingCodes(recode_every),
            "dtype": _float_policy(layer.dtype_policy),
        }
        cls, options = CodeEmbedding, {}
        if isinstance(layer, keras.layers.ReversibleEmbedding):
            cls = ReversibleCodeEmbedding
            options = {name: getattr(layer, name) for name in _REVERSE_OPTIONS}
        # Without codes yet: `learn` fills it.
        self.small = cls(
            layer.input_dim,
            layer.output_dim,
            composition=self.learners[0].composition,
            codes=np.zeros((layer.input_dim, shape[0]), "uint8"),
            mask_zero=mask_zero(layer),
            name=layer.name,
            **options,
            **self.options,
        )

    @property
    def bytes_before(self):
        return count_bytes(self.layer.weights)

    @property
    def bytes_after(self):
        """Codes and codebooks, without what only learning codes needs."""
        return size_report(self.small).embedding_bytes

    @contextlib.contextmanager
    def original_rows(self):
        """Makes the layer of codes compute as the one it replaces."""

        layer = self.layer
        # Not the layer itself, which reads variables in another precision
        # when it is called within a layer.
        compute = (
            layer.quantized_call if layer.quantization_mode else layer.call
        )

        def call(inputs, **kwargs):
            # What the original reads is not read by the copy.
            with keras.StatelessScope():
                return compute(inputs, **kwargs)

        def read():
            if layer.quantization_mode:
                return tf.convert_to_tensor(read_tables(layer)[0])
            with keras.StatelessScope():
                return tf.convert_to_tensor(layer.embeddings)

        methods = {"embed_all": read}
        if isinstance(self.small, ReversibleCodeEmbedding):
            methods["logits"] = lambda inputs: call(inputs, reverse=True)
        with self.small.embed_with(call, **methods):
            yield

    def learn(self):
        """Learns codes and codebooks from the table."""
        shape = self.options["num_codebooks"], self.options["codebook_size"]
        if self.verbose:
            print(*self._what_is_lost(), sep="", end="")
            print(f"{self.name}: learning {shape[0]} x {shape[1]} codes")
        tables = read_tables(self.layer)
        weights = []
        options = dict(self.options)
        for table, learner in zip(tables, self.learners, strict=True):
            learned = CodeEmbedding.from_table(
                table,
                learner=learner,
                sample_weight=self.sample_weight,
                **options,
            )
            weights += learned.get_weights()
            # Codes of the second table are fixed.
            options["learn_codes"] = None
        self.small.set_weights(weights)
        if self.verbose:
            self._say_what_was_done(tables)

    def _what_is_lost(self):
        """Yields lines on what the layer of codes does not have."""
        if self.layer.lora_enabled:
            yield f"{self.name}: updates of LoRA merged into the table\n"
        if self.layer.quantization_mode:
            yield (
                f"{self.name}: {self.layer.quantization_mode} numbers turned "
                "back into floats\n"
            )
        _, added = _differences(self.layer)
        if added:
            yield (
                f"{self.name}: a {type(self.small).__name__} without "
                f"{_listed(added)} of the class {type(self.layer).__name__}\n"
            )

    def _say_what_was_done(self, tables):
        before, after = self.bytes_before, self.bytes_after
        parts = [self.small, getattr(self.small, "reverse_embedding", None)]
        cosines = []
        for table, part in zip(tables, parts, strict=False):
            # Not those of neighbours, which take long in a large table.
            near = fidelity(table, part, num_queries=1)
            cosines.append(f"{near.mean_cosine or 0:.3f}")
        print(
            f"{self.name}: {self.layer.input_dim} x {self.layer.output_dim} "
            f"{'table' if len(tables) == 1 else 'tables, two'}, "
            f"{format_bytes(before)} -> {format_bytes(after)}, "
            f"{before / after:.1f} times smaller, "
            f"mean cosine {' and '.join(cosines)}"
        )
        more = count_bytes(self.small.weights) - after
        if more:
            print(
                f"{self.name}: besides, {format_bytes(more)} of latent "
                "vectors until `freeze_codes`"
            )


def read_tables(layer):
    """The float arrays `(input_dim, output_dim)` that a layer stands for.

    With LoRA, what its updates make of the table; of a quantized layer, what
    its look-ups give.

    Args:
        layer: An Embedding layer.

    Returns:
        List of a table, and of the one of reverse calls if it has its own.
    """
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


def _float_policy(policy):
    """The policy of a layer before it was quantized."""
    if policy.quantization_mode is None:
        return policy
    compute = policy.compute_dtype
    mixed = compute != policy.variable_dtype
    return keras.DTypePolicy(f"mixed_{compute}" if mixed else compute)


def reason_to_skip(layer, settings, smallest, held):
    """Why a layer cannot or need not be replaced, or None.

    Args:
        layer: An Embedding layer.
        settings: Dict of what `layer_settings` may hold.
        smallest: Integer, `min_bytes`.
        held: What `layers_that_hold` gives.
    """
    holders = {}
    for variable in layer.variables:
        holders.update(held.get(id(variable), {}))
    if holders.pop(id(layer), None) is None:
        return "it has no table yet, as it was never called"
    if holders:
        others = ", ".join(map(repr, holders.values()))
        return f"its table is also read by {others}"
    own, _ = _differences(layer)
    if own or mask_zero(layer) is None:
        cls = type(layer).__name__
        return (
            f"its class {cls} does more than an Embedding, by "
            f"{_listed(own or ['compute_mask'])}: write the same in a subclass "
            "of `CodeEmbedding`, and put its `from_table` of the table in the "
            "layer's place"
        )
    before = count_bytes(layer.weights)
    if before < smallest:
        return f"{format_bytes(before)} is below `min_bytes`"
    if settings["num_codebooks"] > layer.output_dim and is_same_composition(
        settings["composition"] or "sum", "concat"
    ):
        return "it is narrower than `num_codebooks` parts side by side"
    return None


def mask_zero(layer):
    """The `mask_zero` that masks as the layer does, or None if none does."""
    if type(layer).compute_mask is _kind(layer).compute_mask:
        return layer.mask_zero
    ids = np.arange(layer.input_dim, dtype="int32")[None]
    mask = layer.compute_mask(ids)
    if mask is None:
        return False
    same = np.array_equal(keras.ops.convert_to_numpy(mask), ids != 0)
    return True if same else None


def _kind(layer):
    """The class of Keras that a layer is of."""
    if isinstance(layer, keras.layers.ReversibleEmbedding):
        return keras.layers.ReversibleEmbedding
    return keras.layers.Embedding


def _differences(layer):
    """Names of methods that a class has of its own.

    Returns:
        Two lists: of those that are in the place of Keras's, and of others.
    """
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
        # `mask_zero` finds out what it does.
        names.discard("compute_mask")
    own = sorted(name for name in names if hasattr(kind, name))
    added = sorted(names.difference(own))
    return own, [name for name in added if not name.startswith("_")]


def _listed(names):
    return ", ".join(f"`{name}`" for name in names)


def _make_learner(settings, verbose):
    shape = settings["num_codebooks"], settings["codebook_size"]
    make = settings["learner"]
    return get_learner(
        make and make(*shape),
        settings["composition"],
        *shape,
        seed=settings["seed"],
        verbose=verbose,
    )
