"""A Keras model as a TensorFlow function that LiteRT can hold."""

import contextlib
import re

import keras
import tensorflow as tf

from keras_compembed.classes.class_head import ClassHead
from keras_compembed.classes.class_head import find_output
from keras_compembed.layers import top_classes
from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.model_parts import layer_of
from keras_compembed.utils.model_parts import output_names
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# The most classes that a file answers the probabilities of all of, and how
# many of more classes.
_MOST, _BEST = 2000, 10


@contextlib.contextmanager
def kept_state(model):
    """Puts back the states that recurrent layers carry from call to call."""
    states = [
        (variable, variable.numpy())
        for layer in all_layers(model)
        if isinstance(layer, keras.layers.RNN) and layer.stateful
        for variable in keras.tree.flatten(layer.states)
    ]
    try:
        yield
    finally:
        for variable, value in states:
            variable.assign(value)


def get_signature(model, input_signature=None):
    """Specs of the model's inputs, in the structure that it is called with."""
    if input_signature is None:
        # A Sequential knows its inputs once it is built.
        input_signature = getattr(model, "inputs", None)
        if input_signature and not isinstance(model, keras.Sequential):
            input_signature = model.input
        require(
            input_signature is not None,
            "`input_signature` must be given for a model that was not made "
            "from `keras.Input`s: a tf.TensorSpec for each input, e.g. "
            "input_signature=tf.TensorSpec((None, None), 'int32').",
            input_signature=None,
            model=model.name,
        )
    if isinstance(input_signature, (list, tuple)) and len(input_signature) == 1:
        (input_signature,) = input_signature
    names, specs = set(), []
    for path, spec in keras.tree.flatten_with_path(input_signature):
        shape = getattr(spec, "shape", None)
        dtype = getattr(spec, "dtype", None)
        require(
            shape is not None and dtype is not None,
            "`input_signature` must hold a spec with a shape and a dtype for "
            "each input, e.g. tf.TensorSpec((None, None), 'int32').",
            input_signature=input_signature,
        )
        dtype = tf.as_dtype(dtype)
        if dtype == tf.bfloat16:
            # Which neither NumPy nor the languages of apps have.
            dtype = tf.float32
        require(
            dtype.is_floating or dtype.is_integer or dtype.is_bool,
            "The inputs of an exported model must be real numbers: turn text "
            "into ids before it, and export a model that begins after the "
            "layer that does so.",
            dtype=dtype.name,
        )
        keys = [key for key in path if isinstance(key, str)]
        name = keys[-1] if keys else getattr(spec, "name", None)
        if name is None or name.startswith("keras_tensor"):
            name = "inputs"
        specs.append(tf.TensorSpec(shape, dtype, _new_name(name, names)))
    return keras.tree.pack_sequence_as(input_signature, specs)


def _new_name(name, names):
    """A name that files can hold and that is not in `names`; adds it there."""
    name = base = re.sub(r"\W", "_", name)
    number = 1
    while name in names:
        name = f"{base}_{number}"
        number += 1
    names.add(name)
    return name


def trace(model, signature):
    """A concrete function of the model, from named inputs to named outputs."""

    def serve(*tensors):
        inputs = keras.tree.pack_sequence_as(signature, list(tensors))
        # An outer name for a model whose own one cannot be the outermost.
        is_odd = model.name[:1] in "_-/"
        with tf.name_scope("model") if is_odd else contextlib.nullcontext():
            return name_outputs(model, model(inputs, training=False))

    return tf.function(
        serve,
        input_signature=keras.tree.flatten(signature),
        autograph=False,
    ).get_concrete_function()


def name_outputs(model, outputs):
    """A dict of what a model returns, in order."""
    flat = keras.tree.flatten_with_path(outputs)
    layer_names = getattr(model, "output_names", None) or []
    if len(layer_names) != len(flat):
        layer_names = [f"output_{place}" for place in range(len(flat))]
    names, named = set(), {}
    for (path, tensor), name in zip(flat, layer_names, strict=True):
        keys = [key for key in path if isinstance(key, str)]
        named[_new_name(keys[-1] if keys else name, names)] = tensor
    return named


class ClassAnswers:
    """What a file answers for layers of classes, by `top_k`."""

    def __init__(self, top_k=None, task=None):
        check_positive_int("top_k", top_k, minimum=0, optional=True)
        # Vectors of texts are features.
        self._top_k = 0 if top_k is None and task == "embedder" else top_k
        self.sizes, self.texts = {}, {}

    def of_graph(self, model):
        """A model that answers classes, if its last layers are known."""
        if _is_closed(model):
            return model
        find = top_classes.find_heads if self._top_k else top_classes.list_heads
        heads = find(model)
        top_classes.check_number("top_k", self._top_k or None, heads)
        if any(heads):
            heads = self._note(output_names(model), heads)
        if not any(heads):
            return model
        numbers = [head and self._number(head) for head in heads]
        return top_classes.answering_model(model, heads, numbers, model.name)

    def of_calls(self, model):
        """Same, if its last layers are known by what it returns."""
        if not _is_closed(model):
            return model
        largest = max(_heads(model), key=top_classes.num_ids)
        top_classes.check_number("top_k", self._top_k or None, [largest])
        return _Answering(model, self)

    def of_outputs(self, outputs):
        """Outputs by name, with classes in place of features."""
        marks = map(find_output, outputs.values())
        heads = self._note(outputs, [mark and mark.head for mark in marks])
        require(
            not self._top_k or any(heads),
            "`top_k` needs a model that returns the output of a layer of "
            "classes.",
            top_k=self._top_k,
            outputs=list(outputs),
        )
        answers = [
            head and top_classes.answer_of(head, tensor, self._number(head))
            for head, tensor in zip(heads, outputs.values(), strict=True)
        ]
        return top_classes.name_answers(
            list(outputs), outputs.values(), answers
        )

    def _number(self, head):
        if self._top_k is None and head.num_classes > _MOST:
            return _BEST
        return self._top_k

    def _note(self, names, heads):
        """Heads, but None where outputs stay as they are."""
        answered = []
        for name, head in zip(names, heads, strict=True):
            is_head = isinstance(head, ClassHead)
            if is_head and self._top_k == 0:
                self.texts[name] = "features, not classes"
            if not (head and self._top_k or is_head and self._top_k is None):
                answered.append(None)
                continue
            number, size = self._number(head), top_classes.num_ids(head)
            part = "probabilities"
            text = f"{part} of all {size:,} classes"
            if number is not None:
                what = "classes" if is_head else "ids"
                part, text = "ids", f"the best {number} of {size:,} {what}"
            prefix = "" if len(heads) == 1 else f"{name}_"
            self.texts[name], self.sizes[prefix + part] = text, size
            answered.append(head)
        return answered


def _heads(model):
    return [each for each in all_layers(model) if isinstance(each, ClassHead)]


def _is_closed(model):
    """Whether a layer of classes may be last without that being known."""
    ends = [layer_of(each) for each in getattr(model, "outputs", None) or ()]
    # What follows such a layer may hand on the tensor that it has marked.
    known = ClassHead, top_classes.TopClasses
    is_open = any(isinstance(end, known) for end in ends) and not any(
        isinstance(end, keras.Model) for end in ends
    )
    return not is_open and bool(_heads(model))


class _Answering(keras.Model):
    """A model that answers classes where another returns features."""

    def __init__(self, model, answers):
        super().__init__(name=model.name)
        self.model, self.answers = model, answers

    def call(self, inputs, training=False):
        outputs = self.model(inputs, training=training)
        return self.answers.of_outputs(name_outputs(self.model, outputs))
