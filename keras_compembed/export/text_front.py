"""The part of a model that turns texts into ids, and the part behind it."""

import dataclasses
import warnings

import keras
import tensorflow as tf

from keras_compembed.export.check import num_ids_of_inputs
from keras_compembed.export.model_metadata import UNKNOWN
from keras_compembed.export.model_metadata import VOCABULARY
from keras_compembed.export.model_metadata import AttachedFile
from keras_compembed.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_compembed.text.tokenizer import Tokenizer
from keras_compembed.text.vectorization import as_tokenizer
from keras_compembed.utils.model_outputs import is_open
from keras_compembed.utils.swapped import swapped
from keras_compembed.utils.validation import require

# Name of the input of files that take texts.
TEXT = "text"


@dataclasses.dataclass(frozen=True, eq=False)
class SplitModel:
    """A model that takes texts, in two parts."""

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
        if any(set("\r\n") & set(token) for token in self.vocabulary):
            warnings.warn(
                "The file holds no vocabulary: tokens of "
                f"{self.layer.name!r} have line ends, and would not be lines.",
                stacklevel=3,
            )
            return []
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
    """Cuts a model behind the layer that turns its texts into ids."""
    inputs = getattr(model, "inputs", None) or []
    if not any(each.dtype == "string" for each in inputs):
        return None
    layer, behind = _cut(model)
    require(
        behind is not None,
        "The ids of a tokenizer must go to other layers of the model, and not "
        "out of it.",
        outputs=layer.name,
    )
    split = SplitModel(layer, behind)
    (rows,) = num_ids_of_inputs(behind, [None])
    require(
        rows is None or len(split.vocabulary) <= rows,
        "The vocabulary of a model must not be larger than the table that its "
        "ids go to: ids beyond have no row.",
        tokens=len(split.vocabulary),
        input_dim=rows,
    )
    return split


def _cut(model):
    """The layer of a model that reads its text, and the model behind it."""
    node = _find_reader(model)
    layer, inner = node.operation, None
    if is_open(layer):
        layer, inner = _cut(layer)
    if isinstance(model, keras.Sequential):
        # As files name the output of any Sequential.
        outputs = {"output_0": model.outputs[0]}
    else:
        outputs = model.output
    if inner is None:
        (ids,) = node.output_tensors
        if any(each is ids for each in keras.tree.flatten(outputs)):
            return layer, None
        # TextVectorization makes int64 numbers, which all that reads them
        # would have to turn into int32.
        with swapped(ids, _dtype="int32"):
            return layer, keras.Model(ids, outputs, name=model.name)
    ids = keras.Input(batch_shape=inner.inputs[0].shape, dtype="int32")
    found = keras.tree.flatten(inner(ids))
    new = {
        id(old): each
        for old, each in zip(node.output_tensors, found, strict=True)
    }
    if all(id(old) in new for old in keras.tree.flatten(outputs)):
        outputs = keras.tree.map_structure(lambda old: new[id(old)], outputs)
    else:
        outputs = keras.Model(list(node.output_tensors), outputs)(found)
    return layer, keras.Model(ids, outputs, name=model.name)


def _find_reader(model):
    """The node that reads the text of a model."""
    require(
        len(model.inputs) == 1,
        "A model that takes texts must have one input, the text. One that "
        "begins behind its tokenizer, `keras.Model` from ids, may have "
        "several, with runtime='litert'.",
        inputs=[each.name for each in model.inputs],
    )
    nodes = list_readers(model.outputs, model.inputs[0])
    layers = {id(node.operation): node.operation for node in nodes}
    if len(nodes) == 1:
        (layer,) = layers.values()
        is_tokenizer = isinstance(layer, Tokenizer)
        if isinstance(layer, keras.layers.TextVectorization):
            config = layer.get_config()
            is_tokenizer = config["output_mode"] == "int"
            is_tokenizer = is_tokenizer and not config["ragged"]
        if is_tokenizer or is_open(layer):
            return nodes[0]
    names = [f"{each.name} ({type(each).__name__})" for each in layers.values()]
    raise ValueError(
        "The text of a model must go to one layer that turns it into ids, a "
        "tokenizer of `keras_compembed.text` or a "
        "`keras.layers.TextVectorization` with output_mode='int' and "
        "ragged=False, called once, in a model that is Sequential or "
        "functional; a model that begins behind the layer takes ids. Received: "
        f"a text that goes to {names}, in {len(nodes)} calls."
    )


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
    """Bytes of a LiteRT file from one text `(1,)` to ids `(1, length)`."""

    @tf.function(
        input_signature=[tf.TensorSpec((1,), "string", TEXT)],
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
