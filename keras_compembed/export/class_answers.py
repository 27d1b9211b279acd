"""Files that answer classes, of models that hand features on."""

import keras

from keras_compembed.export.tracing import all_layers
from keras_compembed.export.tracing import name_outputs
from keras_compembed.layers import top_classes
from keras_compembed.layers.class_head import ClassHead
from keras_compembed.layers.class_head import find_output
from keras_compembed.utils.model_outputs import layer_of
from keras_compembed.utils.model_outputs import output_names
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# The most classes that a file answers the probabilities of all of, and how
# many of more classes.
_MOST, _BEST = 2000, 10


class ClassAnswers:
    """What a file answers for layers of classes, by `top_k`."""

    def __init__(self, top_k=None, task=None):
        if top_k is not None:
            check_positive_int("top_k", top_k, minimum=0)
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
        return [
            self._note_one(name, head, "" if len(heads) == 1 else f"{name}_")
            for name, head in zip(names, heads, strict=True)
        ]

    def _note_one(self, name, head, prefix):
        is_head = isinstance(head, ClassHead)
        if is_head and self._top_k == 0:
            self.texts[name] = "features, not classes"
        if head is None or not (self._top_k or is_head and self._top_k is None):
            return None
        number, size = self._number(head), top_classes.num_ids(head)
        part, text = "probabilities", f"probabilities of all {size:,} classes"
        if number is not None:
            what = "classes" if is_head else "ids"
            part, text = "ids", f"the best {number} of {size:,} {what}"
        self.texts[name], self.sizes[prefix + part] = text, size
        return head


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
