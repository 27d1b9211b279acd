"""A table of a model, and the layer of codes that takes its place."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.compositions.registry import is_same_composition
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.learners.following_codes import FollowingCodes
from keras_compembed.learners.registry import get_learner
from keras_compembed.reports.fidelity import fidelity
from keras_compembed.reports.size_report import size_report
from keras_compembed.utils.sizes import count_bytes
from keras_compembed.utils.sizes import format_bytes
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_table


class CodedTable:
    """A table, and the layer of codes that takes its place.

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
        check_table(self._read(), f"embeddings of {name}")
        self.learner = _make_learner(settings, verbose)
        self.options = {
            "num_codebooks": shape[0],
            "codebook_size": shape[1],
            "learn_codes": recode_every and FollowingCodes(recode_every),
            "mask_zero": mask_zero(layer),
            "name": layer.name,
            "dtype": layer.dtype_policy,
        }
        # Without codes yet: `learn` fills it.
        self.small = CodeEmbedding(
            layer.input_dim,
            layer.output_dim,
            composition=self.learner.composition,
            codes=np.zeros((layer.input_dim, shape[0]), "uint8"),
            **self.options,
        )

    @property
    def bytes_before(self):
        return count_bytes(self.layer.weights)

    @property
    def bytes_after(self):
        """Codes and codebooks, without what only learning codes needs."""
        return size_report(self.small).embedding_bytes

    def _read(self):
        # With LoRA, what its updates make of the table.
        return keras.ops.convert_to_numpy(self.layer.embeddings)

    @contextlib.contextmanager
    def original_rows(self):
        """Makes the layer of codes give the rows of the table for a while."""
        rows = tf.convert_to_tensor(self.layer.embeddings)
        with self.small.embed_with(lambda ids: tf.gather(rows, ids)):
            yield

    def learn(self):
        """Learns codes and codebooks from the table."""
        shape = self.learner.num_codebooks, self.learner.codebook_size
        if self.verbose:
            if self.layer.lora_enabled:
                print(f"{self.name}: updates of LoRA merged into the table")
            print(f"{self.name}: learning {shape[0]} x {shape[1]} codes")
        table = self._read()
        learned = CodeEmbedding.from_table(
            table,
            learner=self.learner,
            sample_weight=self.sample_weight,
            **self.options,
        )
        self.small.set_weights(learned.get_weights())
        if self.verbose:
            self._say_what_was_done(table)

    def _say_what_was_done(self, table):
        before, after = self.bytes_before, self.bytes_after
        # Not those of neighbours, which take long in a large table.
        near = fidelity(table, self.small, num_queries=1)
        print(
            f"{self.name}: {self.layer.input_dim} x {self.layer.output_dim} "
            f"table, {format_bytes(before)} -> {format_bytes(after)}, "
            f"{before / after:.1f} times smaller, "
            f"mean cosine {near.mean_cosine or 0:.3f}"
        )
        more = count_bytes(self.small.weights) - after
        if more:
            print(
                f"{self.name}: besides, {format_bytes(more)} of latent "
                "vectors until `freeze_codes`"
            )


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
        return "held inside another layer or a subclassed model"
    if holders:
        others = ", ".join(map(repr, holders.values()))
        return f"its table is also read by {others}"
    if layer.quantization_mode:
        return f"already quantized to {layer.quantization_mode}"
    cls = type(layer)
    if (
        cls.call is not keras.layers.Embedding.call
        or cls.build is not keras.layers.Embedding.build
        or mask_zero(layer) is None
    ):
        return f"its class {cls.__name__} does more than an Embedding"
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
    if type(layer).compute_mask is keras.layers.Embedding.compute_mask:
        return layer.mask_zero
    ids = np.arange(layer.input_dim, dtype="int32")[None]
    mask = layer.compute_mask(ids)
    if mask is None:
        return False
    same = np.array_equal(keras.ops.convert_to_numpy(mask), ids != 0)
    return True if same else None


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
