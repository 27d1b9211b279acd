"""The part of a model that turns texts into ids, and the part behind it."""

import dataclasses

import keras
import tensorflow as tf

from keras_compembed.export.model_metadata import UNKNOWN
from keras_compembed.export.model_metadata import VOCABULARY
from keras_compembed.export.model_metadata import AttachedFile
from keras_compembed.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_compembed.text.tokenizer import Tokenizer
from keras_compembed.text.vectorization import as_tokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class SplitModel:
    """A model that takes texts, in two parts.

    Attributes:
        layer: The layer of the model that turns texts into ids: a `Tokenizer`
            or a `keras.layers.TextVectorization`.
        model: `keras.Model` from ids to what the whole returns.
    """

    layer: keras.layers.Layer
    model: keras.Model

    def signature(self, batch=None):
        """Specs of the ids. Tokenizers give int32 in files."""
        shape = (batch, *self.model.inputs[0].shape[1:])
        return tf.TensorSpec(shape, "int32", "ids")

    def vocabulary_files(self):
        """What an app needs to turn texts into ids, as `AttachedFile`s."""
        if isinstance(self.layer, SentencePieceTokenizer):
            return [AttachedFile("tokenizer.model", self.layer.model, UNKNOWN)]
        lines = "".join(f"{token}\n" for token in self.vocabulary)
        return [AttachedFile("vocabulary.txt", lines.encode(), VOCABULARY)]

    @property
    def vocabulary(self):
        """List of strings, the token of each id."""
        return self.layer.get_vocabulary()

    def as_tokenizer(self):
        """A `Tokenizer` that gives the ids of the layer."""
        if isinstance(self.layer, Tokenizer):
            return self.layer
        return as_tokenizer(self.layer)


def split_model(model):
    """Cuts a model behind the layer that turns its texts into ids.

    Args:
        model: A `keras.Model`.

    Returns:
        `SplitModel`, or None if the model does not take texts.

    Raises:
        ValueError: if it takes texts and cannot be cut: more than one text,
            other inputs besides, or texts that go elsewhere.
    """
    inputs = getattr(model, "inputs", None) or []
    texts = [each for each in inputs if each.dtype == "string"]
    if not texts:
        return None
    if len(inputs) > 1:
        raise ValueError(
            "A model that takes texts must have one input, the text. "
            f"Received: {len(inputs)} inputs, "
            f"{', '.join(repr(each.name) for each in inputs)}."
        )
    nodes = list_readers(model.outputs, texts[0])
    layers = {id(node.operation): node.operation for node in nodes}
    inner = nodes[0].operation
    if len(nodes) == 1 and getattr(inner, "inputs", None):
        return _split_inner(model, nodes[0])
    kinds = (Tokenizer, keras.layers.TextVectorization)
    if len(nodes) != 1 or not isinstance(nodes[0].operation, kinds):
        names = ", ".join(
            f"{layer.name!r} ({type(layer).__name__})"
            for layer in layers.values()
        )
        raise ValueError(
            "The text of a model must go to one layer that turns it into ids, "
            "a tokenizer of `keras_compembed.text` or a "
            "`keras.layers.TextVectorization`, called once. Received: a text "
            f"that goes to {names}."
        )
    (ids,) = nodes[0].output_tensors
    if isinstance(model, keras.Sequential):
        # As files name the output of any Sequential.
        outputs = {"output_0": model.outputs[0]}
    else:
        outputs = model.output
    behind = keras.Model(ids, outputs, name=model.name)
    return SplitModel(nodes[0].operation, behind)


def _split_inner(model, node):
    """Cuts a model whose text goes to a model in it, the node's operation."""
    inner = split_model(node.operation)
    ids = keras.Input(
        batch_shape=inner.model.inputs[0].shape,
        dtype=inner.model.inputs[0].dtype,
    )
    found = keras.tree.flatten(inner.model(ids))
    new = {
        id(old): each
        for old, each in zip(node.output_tensors, found, strict=True)
    }
    outputs = model.output
    if all(id(old) in new for old in keras.tree.flatten(outputs)):
        outputs = keras.tree.map_structure(lambda old: new[id(old)], outputs)
    else:
        outputs = keras.Model(list(node.output_tensors), outputs)(found)
    return SplitModel(inner.layer, keras.Model(ids, outputs, name=model.name))


def list_readers(outputs, text):
    """Nodes on the way to some outputs that read one tensor."""
    found, seen = [], set()
    left = list(outputs)
    while left:
        history = left.pop()._keras_history
        node = history.operation._inbound_nodes[history.node_index]
        if id(node) in seen:
            continue
        seen.add(id(node))
        tensors = node.input_tensors
        if any(tensor is text for tensor in tensors):
            found.append(node)
        left += tensors
    return found


def convert_tokenizer(tokenizer):
    """Bytes of a LiteRT file from one text `(1,)` to ids `(1, length)`.

    Its tokenizer is an op that a runtime may lack.
    """

    @tf.function(
        input_signature=[tf.TensorSpec((1,), "string", "text")],
        autograph=False,
    )
    def serve(text):
        return {"ids": tokenizer(text)}

    function = serve.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function], tokenizer
    )
    # With ops of TensorFlow allowed, the tokenizer would be one of them.
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    converter.allow_custom_ops = True
    return converter.convert()
