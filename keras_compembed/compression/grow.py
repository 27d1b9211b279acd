"""Copies of models with more ids."""

import keras
import numpy as np

from keras_compembed.classes.noise import UniformNoise
from keras_compembed.classes.noise import UnigramNoise
from keras_compembed.classes.selectors import AllClasses
from keras_compembed.classes.selectors import FrequentClasses
from keras_compembed.compression.strip import Copied
from keras_compembed.compression.strip import compressed_layers
from keras_compembed.compression.strip import copy_like
from keras_compembed.exchange.exchange_layers import own_class
from keras_compembed.exchange.model_copy import custom_objects
from keras_compembed.layers.cane_softmax import CANESoftmax
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.saving import pack_array
from keras_compembed.utils.saving import unpack_array
from keras_compembed.utils.validation import check_new_rows
from keras_compembed.utils.validation import require


def grow(model: Copied, vectors: dict) -> Copied:
    """Copies a model with more ids in some of its compressed layers.

    New ids follow those that there are, and get the codes, the rounded rows
    or the weights of anchors nearest to their vectors. Codebooks, projections
    and anchors are used as they are, and other ids keep their vectors. The
    model given is left as it is; the copy is compiled as it is, with a new
    optimizer state.

    Logits of the same layer grow with it, and so does a `CANESoftmax` whose
    `class_embedding` it is, if candidates and noises are by counts: new
    classes count as the rarest.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 32))
    >>> layer = kc.CodeEmbedding.from_table(
    ...     table[:900], 8, 16, verbose=0, name="words"
    ... )
    >>> model = keras.Sequential([keras.Input((3,), dtype="int32"), layer])
    >>> grow(model, {"words": table[900:]}).get_layer("words").input_dim
    1000

    Args:
        model: A built `keras.Model`, or a single built layer.
        vectors: Dict from the name of a layer, or its path where several
            have one name, to an array `(new ids, output_dim)`. For a
            reversible layer whose weights are not tied, to a tuple of two
            such arrays: vectors, and rows of the second table.

    Returns:
        A new model, or a new layer.

    Raises:
        ValueError: if the model cannot be copied, or a layer cannot encode
            vectors: its codes are learned from nothing, its composition is not
            linear, its rows have no room for vectors so large, or its weights
            of anchors are a mixture or follow relations.
    """
    layers = compressed_layers(model)
    chosen = {}
    for name, arrays in vectors.items():
        require(
            name in layers,
            f"`vectors` must be for layers among {sorted(layers)}.",
            name=name,
        )
        layer = layers[name]
        tied = layer.reverse_embedding is None
        arrays = [arrays] if tied else list(arrays)
        require(
            tied or list(map(np.shape, arrays)) == 2 * [np.shape(arrays[0])],
            "`vectors` must be two arrays of one shape for untied weights.",
            name=name,
        )
        width = layer.output_dim
        chosen[layer] = [check_new_rows(x, width, name) for x in arrays]
    heads = [
        head
        for head in all_layers(model)
        if isinstance(head, CANESoftmax) and head.class_embedding in chosen
    ]
    for head in heads:
        require(
            isinstance(head.selector, (FrequentClasses, AllClasses))
            and isinstance(head.noise, (UniformNoise, UnigramNoise)),
            "A `CANESoftmax` that grows must have candidates and noises by "
            "counts.",
            layer=head.name,
            selector=head.selector,
            noise=head.noise,
        )
    with keras.utils.custom_object_scope(custom_objects(model)):
        grown = {id(x): x._grown(*arrays) for x, arrays in chosen.items()}
        for head in heads:
            grown[id(head)] = _grown_head(head, grown[id(head.class_embedding)])
    return copy_like(model, [*chosen, *heads], grown)


def _grown_head(head, class_embedding):
    # As its own class writes it, where a copy had to remember more.
    cls = own_class(head)
    config = cls.get_config(head)
    number = class_embedding.input_dim
    sampling = config["sampling"]["config"]
    for part, name in (
        (config, "class_counts"),
        (sampling["selector"]["config"], "counts"),
        (sampling["noise"]["config"], "counts"),
    ):
        counts = unpack_array(part.get(name))
        if counts is not None:
            part[name] = pack_array(_longer(counts, number))
    new = cls.from_config(
        {**config, "num_classes": number, "class_embedding": None}
    )
    new.class_embedding = class_embedding
    new.build(head.get_build_config()["input_shape"])
    if head.use_bias:
        new.bias.assign(_longer(head.bias.numpy(), number))
    return new


def _longer(values, number):
    """Numbers of classes, where further ones are as the least."""
    return np.pad(
        values, (0, number - len(values)), constant_values=values.min()
    )
