"""Codebooks that several layers hold as one."""

import sys
import uuid

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.compositions.registry import check_composition
from keras_compembed.compositions.registry import get_composition
from keras_compembed.compositions.registry import is_same_composition
from keras_compembed.utils.shared_parts import freeze_part
from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_table

# Functions that make all layers of a model again.
_COPIERS = frozenset(("clone_model", "copy_model"))
_MAKERS = _COPIERS | {"deserialize_keras_object", "load_model"}
_MODULES = ("keras.src.", "keras_compembed.compression.")
_KEY = "_codebooks_made_here"


@keras.saving.register_keras_serializable(package="keras_compembed")
class Codebooks(keras.layers.Layer):
    """Codebooks and composition of several `CodeEmbedding` layers.

    Layers that are given the same `Codebooks` hold one variable of codewords.
    It is trained by the gradients of all of them, saved once, and stored once
    in LiteRT files, so that each table takes its codes alone. Codebooks
    outweigh codes in small vocabularies: those of 64 x 16 codewords of width
    256 take as much as the codes of 32,768 ids.

    `keras_compembed.compression.compress_model` learns them for tables of a
    model with `share_codebooks`. By hand, learn them for the tables together:

    Example:

    >>> tables = np.random.default_rng(0).normal(size=(2, 500, 64))
    >>> learner = kc.learners.AdditiveQuantizer(8, 16, verbose=0)
    >>> learner = learner.train(tables.reshape(1000, 64))
    >>> shared = kc.Codebooks(64, 8, 16, values=learner.codebooks)
    >>> first = kc.CodeEmbedding(
    ...     500, 64, 8, 16, codes=learner.codes[:500], codebooks=shared
    ... )
    >>> second = kc.CodeEmbedding(
    ...     500, 64, 8, 16, codes=learner.codes[500:], codebooks=shared
    ... )
    >>> first.codebooks is second.codebooks
    True

    It is a layer inside the layers that hold it, and so follows the rules of
    Keras: `layer.trainable = False` of one of them freezes the codebooks of
    all; `trainable=False` given to the constructor of one does not. A model
    that is saved, loaded or cloned as a whole shares as before; a layer made
    again alone, by its own config, has codebooks of its own.

    Args:
        output_dim: Integer. Width of the vectors.
        num_codebooks: Integer. Subcodes per id (M). Defaults to `32`.
        codebook_size: Integer from 2 to 65536. Codewords per codebook (K).
            Defaults to `16`.
        composition: `"sum"`, `"concat"`, `"linear"`, `"lstm"` or a
            `Composition`. How codewords become a vector. Defaults to `"sum"`.
        values: Optional array of the codebooks' shape, see `CodeEmbedding`.
            Defaults to `None`: `initializer` fills them.
        initializer: Initializer of the codebooks. Defaults to `"uniform"`.
        regularizer: Optional regularizer of the codebooks.
        constraint: Optional constraint of the codebooks.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        subcodes: Integer tensor `(ids, num_codebooks)`.

    Output shape:
        `(ids, output_dim)`, the vectors that subcodes stand for.

    Attributes:
        values: Keras variable, the codebooks.
        composition: The layer's own `Composition`.

    Raises:
        ValueError: if a size is out of range, `composition` is unknown, or
            `values` has the wrong shape or is not finite.

    References:
        - [Shu & Nakayama, 2018](https://arxiv.org/abs/1711.01068)
    """

    def __init__(
        self,
        output_dim,
        num_codebooks=32,
        codebook_size=16,
        composition="sum",
        values=None,
        initializer="uniform",
        regularizer=None,
        constraint=None,
        **kwargs,
    ):
        output_dim = check_positive_int("output_dim", output_dim)
        num_codebooks, codebook_size = check_code_shape(
            num_codebooks, codebook_size
        )
        super().__init__(**kwargs)
        self.output_dim = output_dim
        self.num_codebooks = num_codebooks
        self.codebook_size = codebook_size
        self.composition = get_composition(
            composition,
            num_codebooks,
            codebook_size,
            output_dim,
            dtype=self.variable_dtype,
        )
        freeze_part(self, self.composition)
        self.initializer = keras.initializers.get(initializer)
        self.regularizer = keras.regularizers.get(regularizer)
        self.constraint = keras.constraints.get(constraint)
        self.autocast = False
        # Unlike its `id`, of no other object, then or in another process.
        self._key = uuid.uuid4().hex
        if values is not None:
            values = check_codebooks(
                values, self.composition.codebooks_shape, "values"
            )
            self.build()
            self.values.assign(values)

    def build(self, input_shape=None):
        if self.built:
            return
        self.values = self.add_weight(
            shape=self.composition.codebooks_shape,
            initializer=self.initializer,
            regularizer=self.regularizer,
            constraint=self.constraint,
            autocast=False,
            name="values",
        )
        self.built = True

    def call(self, subcodes):
        return self.composition.compose_codes(
            tf.convert_to_tensor(self.values.value),
            tf.cast(subcodes, tf.int32),
        )

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.output_dim)

    def check_fits(self, output_dim, code_shape, composition, dtype):
        """Raises if a layer of these settings cannot hold the codebooks."""
        own = self.output_dim, self.num_codebooks, self.codebook_size
        got = output_dim, *code_shape
        if got != own:
            raise ValueError(
                "`codebooks` must have the layer's `output_dim`, "
                f"`num_codebooks` and `codebook_size`, {got}. Received: "
                f"`Codebooks` of {own}."
            )
        composition = check_composition(composition)
        if not is_same_composition(composition, self.composition):
            raise ValueError(
                "`composition` must be that of `codebooks`. Received: "
                f"composition={composition!r} and `Codebooks` with "
                f"{type(self.composition.unscaled()).__name__}."
            )
        if dtype != self.variable_dtype:
            raise ValueError(
                "`codebooks` must be of the layer's variable dtype. Received: "
                f"`Codebooks` of {self.variable_dtype} for a layer of {dtype}."
            )

    def check_alone(self, **arguments):
        """Raises if a layer has one of the codebooks' arguments itself."""
        for name, value in arguments.items():
            own = getattr(self, name)
            if value is not None and value != "uniform" and value is not own:
                raise ValueError(
                    f"`codebooks_{name}` must be left out with a `Codebooks`, "
                    f"which has its own. Received: codebooks_{name}={value!r}. "
                    "Give it to the `Codebooks`."
                )

    def serialize(self):
        """The serialized form, which tells objects apart.

        Keras tells so for a layer that several hold in files alone, not in
        the config of a model.
        """
        return {
            **keras.saving.serialize_keras_object(self),
            "shared_object_id": self._key,
        }

    def get_build_config(self):
        # Who holds the codebooks builds them.
        return None

    def get_config(self):
        return {
            **super().get_config(),
            "output_dim": self.output_dim,
            "num_codebooks": self.num_codebooks,
            "codebook_size": self.codebook_size,
            "composition": keras.saving.serialize_keras_object(
                self.composition
            ),
            "initializer": keras.initializers.serialize(self.initializer),
            "regularizer": keras.regularizers.serialize(self.regularizer),
            "constraint": keras.constraints.serialize(self.constraint),
        }


def get_codebooks(identifier):
    """A `Codebooks`, of one or of its serialized form."""
    if isinstance(identifier, Codebooks):
        return identifier
    known = _made_in_one_go()
    key = identifier.get("shared_object_id")
    if key not in known:
        known[key] = keras.saving.deserialize_keras_object(identifier)
    return known[key]


def _made_in_one_go():
    """A dict that lives as long as the outermost call that makes layers."""
    frame, found, copies = sys._getframe(1), None, False
    while frame is not None:
        if _makes_layers(frame):
            name = frame.f_code.co_name
            if copies and name not in _COPIERS:
                # A model may copy another while it is made itself.
                break
            found, copies = frame, name in _COPIERS
            if name == "load_model":
                # A file read twice gives two models.
                break
        frame = frame.f_back
    # A name that no code reads stays with the call.
    return {} if found is None else found.f_locals.setdefault(_KEY, {})


def _makes_layers(frame):
    name = frame.f_code.co_name
    if name == "from_config":
        cls = frame.f_locals.get("cls")
        return isinstance(cls, type) and issubclass(cls, keras.layers.Layer)
    module = frame.f_globals.get("__name__", "")
    return name in _MAKERS and module.startswith(_MODULES)


def check_codebooks(codebooks, shape, name="codebooks"):
    """Returns an array of codewords, or raises if it is none."""
    codebooks = np.asarray(codebooks)
    if codebooks.shape != shape:
        raise ValueError(
            f"`{name}` must have shape {shape}, as the composition's are. "
            f"Received: an array of shape {codebooks.shape}."
        )
    flat = check_table(codebooks.reshape(-1, shape[-1]), name=name)
    return flat.reshape(shape)
