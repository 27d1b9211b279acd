"""Splits a model into its tokenizer and the rest."""

import collections
import dataclasses
import functools
import warnings

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.exchange.copy_check import num_ids_of_inputs
from keras_compembed.export.check import run_first
from keras_compembed.export.check import run_keras
from keras_compembed.export.file_contents import UNKNOWN
from keras_compembed.export.file_contents import VOCABULARY
from keras_compembed.export.file_contents import AttachedFile
from keras_compembed.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_compembed.text.tokenizer import Tokenizer
from keras_compembed.text.word_tokenizer import as_tokenizer
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.model_parts import is_open
from keras_compembed.utils.model_parts import list_nodes
from keras_compembed.utils.validation import check_text
from keras_compembed.utils.validation import require

# Name of the input of files that take texts.
TEXT = "text"
# Texts to compare files and Keras on.
_HARD = (
    "",
    " ",
    "Hello, world! It's 5 o'clock.",
    "\u00c9t\u00e9 na\u00efve \u201cquotes\u201d \ufb01ne \u212b",
    "\u65e5\u672c\u8a9e \u0440\u0443\u0441\u0441\u043a\u0438\u0439 "
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0e44\u0e17\u0e22",
    "\U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467 \u200b\ufeff\u00a0x",
    "\ttabs\nand  lines\r\n",
    "\u2581under \U0010ffff \u0130stanbul \u1e9e",
)
_NUM_TEXTS, _NUM_TOKENS, _LONG = 4, 12, 500
# A length of text that every model accepts.
_SHORT = 10


@dataclasses.dataclass(frozen=True, eq=False)
class SplitModel:
    """A model that takes texts, as tokenizer and rest."""

    layer: keras.layers.Layer
    model: keras.Model

    def signature(self, batch=None):
        """Specs of the ids, which are int32 in files."""
        shape = (batch, *self.model.inputs[0].shape[1:])
        return tf.TensorSpec(shape, "int32", "ids")

    def vocabulary_files(self):
        """Files that an app needs to turn texts into ids: `AttachedFile`s."""
        if isinstance(self.layer, SentencePieceTokenizer):
            return [AttachedFile("tokenizer.model", self.layer.model, UNKNOWN)]
        if any(set("\r\n") & set(token) for token in self.vocabulary):
            warnings.warn(
                "The file has no vocabulary: tokens of "
                f"{self.layer.name!r} contain line ends.",
                stacklevel=4,
            )
            return []
        lines = "".join(f"{token}\n" for token in self.vocabulary)
        return [AttachedFile("vocabulary.txt", lines.encode(), VOCABULARY)]

    @property
    def vocabulary(self):
        """List of strings, the token of each id."""
        return self.layer.get_vocabulary()

    def some_text(self):
        """A batch of one text of known words."""
        return np.array([" ".join(self.vocabulary[:_NUM_TOKENS])], object)

    def as_tokenizer(self):
        """A `Tokenizer` with the ids of the layer."""
        if isinstance(self.layer, Tokenizer):
            return self.layer
        return as_tokenizer(self.layer)


def split_model(model):
    """Cuts a model after its tokenizer; None if it takes no texts."""
    inputs = getattr(model, "inputs", None) or []
    if not any(each.dtype == "string" for each in inputs):
        return None
    layer, behind = _cut(model)
    require(
        behind is not None,
        "The ids of a tokenizer must go to other layers of the model; they "
        "cannot be its output.",
        outputs=layer.name,
    )
    split = SplitModel(layer, behind)
    (rows,) = num_ids_of_inputs(behind, [None])
    require(
        rows is None or len(split.vocabulary) <= rows,
        "The vocabulary must not be larger than the embedding table: the last "
        "ids would have no row.",
        tokens=len(split.vocabulary),
        input_dim=rows,
    )
    return split


def _cut(model):
    """The tokenizer of a model, and the model after it."""
    node = _find_reader(model)
    layer, inner = node.operation, None
    if is_open(layer):
        layer, inner = _cut(layer)
    if isinstance(model, keras.Sequential):
        # The name that files give to the output of a Sequential model.
        outputs = {"output_0": model.outputs[0]}
    else:
        outputs = model.output
    if inner is None:
        (ids,) = node.output_tensors
        if any(each is ids for each in keras.tree.flatten(outputs)):
            return layer, None
        # TextVectorization gives int64, which each reader would have to cast
        # to int32.
        return layer, keras.models.clone_model(
            keras.Model(ids, outputs, name=model.name),
            keras.Input(batch_shape=ids.shape, dtype="int32"),
            clone_function=lambda inner: inner,
        )
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
        "A model that takes texts must have one input, the text. For several "
        "inputs, export the part after the tokenizer, a `keras.Model` from "
        "ids, for Target(runtime='litert').",
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
        "The text input must go to one tokenizer of `keras_compembed.text`, or "
        "one `keras.layers.TextVectorization` with output_mode='int' and "
        "ragged=False, called once, in a Sequential or functional model. Or "
        "export the part of the model after the tokenizer. Received: "
        f"a text that goes to {names}, in {len(nodes)} calls."
    )


def list_readers(outputs, text):
    """Nodes before some outputs that read a tensor."""
    return [
        node
        for node in list_nodes(outputs)
        if any(tensor is text for tensor in node.input_tensors)
    ]


def find_readers(model, tensor):
    """Layers that read a tensor of a model, also in nested models."""
    return list({id(x): x for x in _list_reads(model, tensor)}.values())


def find_own_readers(model, tensor):
    """Readers of a tensor that read nothing else and are in no other layer."""
    reads = collections.Counter(map(id, _list_reads(model, tensor)))
    calls = collections.Counter(map(id, _list_calls(model)))
    readers = find_readers(model, tensor)
    return [x for x in readers if reads[id(x)] == calls[id(x)]]


def _list_reads(model, tensor):
    """A layer for each call that reads a tensor."""
    found = []
    for node in list_readers(model.outputs, tensor):
        layer = node.operation
        # The mask of `mask_zero` is no reader of ids: 0 stays 0.
        if type(layer).__name__ == "NotEqual":
            if tuple(node.arguments.args[1:]) == (0,):
                continue
        if not getattr(layer, "inputs", None):
            found.append(layer)
            continue
        for given, inner in zip(node.input_tensors, layer.inputs, strict=True):
            if given is tensor:
                found += _list_reads(layer, inner)
    return found


def _list_calls(model):
    """A layer for each call in a model, with layers in it."""
    found = []
    for node in list_nodes(model.outputs):
        layer = node.operation
        if getattr(layer, "inputs", None):
            found += _list_calls(layer)
        elif isinstance(layer, keras.layers.Layer):
            found += all_layers(layer)
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
    # If ops of TensorFlow were allowed, the tokenizer would become one.
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    converter.allow_custom_ops = True
    return converter.convert()


def _default_texts(vocabulary):
    """A list of hard texts, and of texts made of known tokens."""
    # This sign marks the beginning of a word in pieces.
    tokens = [token.replace("\u2581", " ") for token in vocabulary]
    rng = np.random.default_rng(0)
    texts = list(_HARD)
    for number in range(_NUM_TEXTS):
        places = rng.integers(len(tokens), size=_NUM_TOKENS)
        texts.append((" ", "")[number % 2].join(tokens[x] for x in places))
    texts.append(" ".join(tokens[-_NUM_TOKENS:]).title())
    texts.append(f"{tokens[-1]} {tokens[len(tokens) // 2]} " * _LONG)
    return texts


def as_texts(inputs, read_text):
    """The user's texts as an object array `(number,)`."""
    texts = np.array(inputs, object).reshape(-1)
    require(len(texts), "`sample_inputs` must hold a text.", number=0)
    for place, text in enumerate(texts):
        require(
            isinstance(text, (str, bytes)),
            "`sample_inputs` must be a list of strings for a model that takes "
            "texts.",
            text=text,
        )
        if isinstance(text, str):
            check_text("sample_inputs", text)
        texts[place] = read_text(text)
    return texts


def run_on_texts(model, split, given=None):
    """Texts, one at a time, and the outputs of a model for them."""
    found = []
    for text in _default_texts(split.vocabulary) if given is None else given:
        texts = [text]
        while given is None and len(texts[-1]) >= _SHORT:
            texts.append(texts[-1][: len(texts[-1]) // 2])
        samples = [np.array([each], object) for each in texts]
        found.append(run_first(functools.partial(_run, model, split), samples))
    return tuple(zip(*found, strict=True))


def _run(model, split, sample):
    if split.layer(sample).shape[1]:
        return run_keras(model, sample)
    # TextVectorization gives no ids for an empty text alone, so there is no
    # mean. In a batch with another text it is padded, as in a file.
    outputs = run_keras(model, np.array([sample[0], "x"], object))
    return {name: array[:1] for name, array in outputs.items()}
