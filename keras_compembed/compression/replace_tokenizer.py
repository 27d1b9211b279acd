"""Another tokenizer in a model that takes texts."""

import keras
import numpy as np

from keras_compembed.compression.compile_copy import compile_like
from keras_compembed.compression.copy_check import made_up_inputs
from keras_compembed.compression.model_copy import copy_model
from keras_compembed.compression.replaced_table import float_policy
from keras_compembed.export.text_front import split_model
from keras_compembed.text.labelled_texts import check_tokenizer
from keras_compembed.utils.layer_names import layer_paths
from keras_compembed.utils.swapped import swapped


def replace_tokenizer(model, tokenizer):
    """A copy of a model with another tokenizer, to be trained.

    For a model whose own, e.g. a `keras.layers.TextVectorization` of single
    characters, no phone runs. Every `keras.layers.Embedding` that reads the
    ids is made anew, with a row for each id of the new tokenizer and random
    numbers, trainable; all other layers keep their weights. The model given
    is left as it is. If it was compiled, so is the copy, with a fresh
    optimizer of the same configuration.

    `keras_compembed.text.retrain` does this and trains the copy.

    Example:

    >>> texts = ["a red apple", "a green apple", "two red pears"]
    >>> letters = keras.layers.TextVectorization(split="character")
    >>> letters.adapt(texts)
    >>> model = keras.Sequential(
    ...     [
    ...         keras.Input((), dtype="string"),
    ...         letters,
    ...         keras.layers.Embedding(letters.vocabulary_size(), 8),
    ...         keras.layers.GlobalAveragePooling1D(),
    ...     ]
    ... )
    >>> words = kc.text.WordTokenizer.train(texts)
    >>> copy = replace_tokenizer(model, words)
    >>> copy.layers[1].input_dim == words.vocabulary_size
    True

    Args:
        model: A built Sequential or functional `keras.Model` from texts.
        tokenizer: A tokenizer of `keras_compembed.text`; the copy has one
            made of its config. If it has no `sequence_length` and what it
            replaces has one, it gets that.

    Returns:
        A new model.

    Raises:
        ValueError: if the model does not take texts, no `Embedding` reads its
            ids or something else does, or the tokenizer's padding is not what
            a mask leaves out.
    """
    check_tokenizer(tokenizer)
    split = split_model(model) if isinstance(model, keras.Model) else None
    if split is None:
        raise ValueError(
            "`model` must be a Sequential or functional model that takes "
            f"texts. Received: an object of type {type(model).__name__} that "
            "does not."
        )
    old = split.layer
    config = tokenizer.get_config()
    if config["sequence_length"] is None:
        # What stands behind may need as many.
        config["sequence_length"] = split.model.inputs[0].shape[1]
    new = type(tokenizer).from_config(config)
    tables = {}
    for name, layer in _readers(model, old).items():
        if layer.mask_zero and new.pad_id != 0:
            raise ValueError(
                "`tokenizer` must have the padding 0, the id that the layer "
                f"{name!r} leaves out. Received: pad_id={new.pad_id}."
            )
        tables[id(layer)] = _with_rows(layer, new.vocabulary_size)
    replacements = {id(old): new, **tables}
    copy, _ = copy_model(model, replacements)
    for layer in tables.values():
        # Random numbers are nothing to keep.
        layer.trainable = True
    compile_like(copy, model)
    return copy


def _readers(model, old):
    """Embedding layers that read the ids of a layer, by their paths."""
    seen = {}

    def watch(layer):
        call = layer.call

        def watched(inputs, *args, **kwargs):
            seen[id(layer)] = inputs
            return call(inputs, *args, **kwargs)

        return swapped(layer, call=watched)

    texts = made_up_inputs(model)[1]
    paths = {
        path: layer
        for path, layer in layer_paths(model).items()
        if hasattr(layer, "input_dim")
    }
    _run(model, texts, [watch(layer) for layer in paths.values()])
    ids = keras.ops.convert_to_numpy(old(texts))
    readers = {
        path: layer
        for path, layer in paths.items()
        if id(layer) in seen and _is_same(seen[id(layer)], ids)
    }
    for path, layer in readers.items():
        if not isinstance(layer, keras.layers.Embedding):
            raise ValueError(
                "The ids of `model` must go to Embedding layers, which are "
                f"made anew: do so before you compress it. Received: the "
                f"layer {path!r} ({type(layer).__name__})."
            )
    if not readers:
        raise ValueError(
            "The ids of `model` must go to an Embedding layer, which gets a "
            f"row for each id of the tokenizer. Received: {old.name!r} with "
            "none behind it. `keras_compembed.text.train_classifier` makes a "
            "model of texts and labels alone."
        )
    return readers


def _run(model, texts, contexts):
    if not contexts:
        model(texts)
        return
    with contexts[0]:
        _run(model, texts, contexts[1:])


def _is_same(inputs, ids):
    return np.array_equal(keras.ops.convert_to_numpy(inputs), ids)


def _with_rows(layer, number):
    """An Embedding of the same settings with so many rows, not built."""
    config = layer.get_config()
    # Which are of the old ids.
    config.pop("weights", None)
    config.pop("lora_rank", None)
    config.pop("quantization_config", None)
    config["dtype"] = keras.saving.serialize_keras_object(
        float_policy(layer.dtype_policy)
    )
    return type(layer).from_config({**config, "input_dim": number})
