"""Copies of models with new ids."""

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
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.model_parts import named_layers
from keras_compembed.utils.saving import pack_array
from keras_compembed.utils.saving import unpack_array
from keras_compembed.utils.validation import check_new_rows
from keras_compembed.utils.validation import require


def grow(model: Copied, vectors: dict) -> Copied:
    """Returns a copy of a model with new ids in some compressed layers.

    New ids follow the existing ids. They get the codes, quantized rows or
    anchor weights nearest to the given vectors. Codebooks, projections and
    anchors stay fixed, and existing ids keep their vectors. The given model
    does not change. If it is compiled, so is the copy, with a new optimizer.

    Logits of a reversible layer grow with it. A `CANESoftmax` grows with its
    `class_embedding` if its candidates and noise classes are chosen by counts.
    New classes then count as the rarest.

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
        vectors: Dict from layer names to arrays `(new ids, output_dim)`. Use
            the path where several layers have one name. A reversible layer with
            untied weights takes a tuple of two arrays of one shape: vectors,
            and rows of the second table.

    Returns:
        A new model, or a new layer.

    Raises:
        ValueError: If the model cannot be copied, or a layer cannot encode new
            vectors, e.g. because its codes were learned from scratch.
    """
    stores = [x.store for x in named_layers(model, LookupLayer).values()]
    # Parts of other layers do not grow alone.
    held = {id(part) for x in stores for part in x.parts().values()}
    layers = compressed_layers(model)
    layers = {name: x for name, x in layers.items() if id(x) not in held}
    chosen = {}
    for name, arrays in vectors.items():
        require(
            name in layers,
            f"`vectors` must have names of layers from {sorted(layers)}.",
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
            "A `CANESoftmax` that grows must choose candidates and noise "
            "classes by counts.",
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
    # The config of the original class, not of a copy's subclass.
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
    if head.temperature == "learned":
        new.log_temperature.assign(head.log_temperature)
    return new


def _longer(values, number):
    """Class counts, where new classes get the smallest count."""
    return np.pad(
        values, (0, number - len(values)), constant_values=values.min()
    )
