"""Predictions of a model over many classes as a layer and as a model."""

import inspect

import keras

from keras_compembed.layers.class_head import ClassHead
from keras_compembed.layers.class_head import read_output
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.top_ids import TopIds
from keras_compembed.utils.model_outputs import layer_of
from keras_compembed.utils.model_outputs import output_names
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class TopClasses(keras.layers.Layer):
    """Turns the output of a layer of classes into its best classes.

    It finds the layer by the mark on the tensor, as losses do.

    Example:

    >>> features = kc.CANESoftmax(1000)(np.zeros((2, 8), "float32"))
    >>> answer = TopClasses(k=3)(features)
    >>> answer["ids"].shape
    TensorShape([2, 3])

    Args:
        k: Integer. Defaults to `5`.
        **kwargs: `name`, `dtype` of `keras.layers.Layer`.

    Input shape:
        Features `(..., width)`, the output of a layer such as
        `keras_compembed.CANESoftmax`.

    Output shape:
        A dict: `"ids"`, int32 `(..., k)`, best first, and `"probabilities"`,
        float32 `(..., k)`.

    Raises:
        ValueError: if `k` is not from 1 to the number of classes, or the
            input is not the output of a layer of classes.
    """

    def __init__(self, k=5, **kwargs):
        super().__init__(**kwargs)
        self.k = check_positive_int("k", k)
        self.supports_masking = True
        self.autocast = False

    def call(self, inputs):
        head = read_output(inputs, type(self).__name__).head
        ids, probabilities = head.top_k(inputs, self.k)
        return {"ids": ids, "probabilities": probabilities}

    def compute_mask(self, inputs, mask=None):
        return None if mask is None else {"ids": mask, "probabilities": mask}

    def compute_output_spec(self, inputs):
        shape = (*inputs.shape[:-1], self.k)
        return {
            "ids": keras.KerasTensor(shape, dtype="int32"),
            "probabilities": keras.KerasTensor(shape, dtype="float32"),
        }

    def get_config(self):
        return {**super().get_config(), "k": self.k}


def top_k_model(model, k=5):
    """A model that answers the best classes or ids, and how good they are.

    It shares all weights with the model it is made from: train that, predict
    with this. Outputs that it answers for are those of layers of classes, such
    as `CANESoftmax`, and logits of a table of vectors: what `CodeEmbedding`,
    `ReversibleCodeEmbedding` or `ANTEmbedding` returns with `reverse=True`, in
    a model that recommends items or predicts words.

    Example:

    >>> inputs = keras.Input((8,))
    >>> model = keras.Sequential([inputs, kc.CANESoftmax(1000)])
    >>> predictor = top_k_model(model, k=3)
    >>> answer = predictor.predict(np.zeros((2, 8)), verbose=0)
    >>> answer["ids"].shape, answer["probabilities"].shape
    ((2, 3), (2, 3))
    >>> items = kc.CodeEmbedding(1000, 8, num_codebooks=4)
    >>> model = keras.Model(inputs, items(inputs, reverse=True))
    >>> answer = top_k_model(model, k=3).predict(np.zeros((2, 8)), verbose=0)
    >>> answer["ids"].shape, answer["scores"].shape
    ((2, 3), (2, 3))

    Args:
        model: A Sequential or functional `keras.Model` with such an output, or
            with several.
        k: Integer. Defaults to `5`.

    Returns:
        A `keras.Model` with the inputs of `model` and two outputs by name:
        `"ids"`, int32 `(..., k)`, best first, and `"probabilities"` of
        classes, or `"scores"`, the logits of ids, floats `(..., k)`. If
        `model` has several outputs, all are in the dict by their names, and
        in place of one of classes, e.g. `"words"`, there are `"words_ids"`
        and `"words_probabilities"`.

    Raises:
        ValueError: if `model` is not such a model, or `k` is not from 1 to
            the number of classes and ids.
    """
    heads = find_heads(model)
    sizes = [_num_ids(head) for head in heads if head is not None]
    check_positive_int("k", k, maximum=min(sizes))
    if len(heads) == 1:
        outputs = _answer(model.outputs[0], heads[0], k, "top_classes")
    else:
        outputs = _answers(model, heads, k)
    inputs = getattr(model, "_inputs_struct", None)
    if inputs is None:
        # A Sequential has one input.
        (inputs,) = model.inputs
    return keras.Model(inputs, outputs, name=f"{model.name}_top_{k}")


def _answers(model, heads, k):
    """All outputs by name, with answers in place of those of heads."""
    answers = {}
    for name, tensor, head in zip(
        output_names(model), model.outputs, heads, strict=True
    ):
        parts = {name: tensor}
        if head is not None:
            best = _answer(tensor, head, k, f"{name}_top_classes")
            parts = {f"{name}_{part}": best[part] for part in best}
        for part, answer in parts.items():
            if part in answers:
                raise ValueError(
                    "`model` must have outputs of different names. "
                    f"Received: a model with outputs {output_names(model)}, "
                    f"of which two would be called {part!r}."
                )
            answers[part] = answer
    return answers


def _answer(tensor, head, k, name):
    """The best classes or ids, symbolically, of an output."""
    if isinstance(head, ClassHead):
        return TopClasses(k, name=name)(tensor)
    history = tensor._keras_history
    node = history.operation._inbound_nodes[history.node_index]
    if history.operation is head:
        return TopIds(head, k, name=name)(node.input_tensors[0])
    # A model within a model.
    inner = top_k_model(history.operation, k)
    return inner(*node.arguments.args, **node.arguments.kwargs)


def _num_ids(head):
    return head.num_classes if isinstance(head, ClassHead) else head.input_dim


def count_classes(model):
    """Dict from outputs of `top_k_model` that are ids to how many there are.

    Args:
        model: Same as in `top_k_model`.
    """
    heads = find_heads(model)
    if len(heads) == 1:
        return {"ids": _num_ids(heads[0])}
    return {
        f"{name}_ids": _num_ids(head)
        for name, head in zip(output_names(model), heads, strict=True)
        if head is not None
    }


def find_heads(model):
    """The layer of classes or logits of each output of a model, or None.

    Raises:
        ValueError: if there is none at all.
    """
    outputs = getattr(model, "outputs", None)
    if not isinstance(model, keras.Model) or not outputs:
        raise ValueError(
            "`model` must be a built Sequential or functional `keras.Model`. "
            f"Received: model={model!r}."
        )
    heads = [_find_head(output) for output in outputs]
    if not any(heads):
        names = ", ".join(repr(layer_of(output).name) for output in outputs)
        raise ValueError(
            "`model` must have an output of a layer such as `CANESoftmax`, or "
            "of a call `layer(vectors, reverse=True)` of a `CodeEmbedding` or "
            "`ANTEmbedding`. Leave out what follows it, such as a softmax: "
            "the best ids are the same without. "
            f"Received: a model that ends in {names}."
        )
    return heads


def _find_head(output):
    layer = layer_of(output)
    if isinstance(layer, ClassHead):
        return layer
    if isinstance(layer, LookupLayer) and _is_reverse(output):
        return layer
    return None


def _is_reverse(output):
    """Whether a look-up layer's output is of logits of all ids."""
    history = output._keras_history
    if isinstance(history.operation, keras.Model):
        inner = history.operation.outputs
        # An answer for one output of several would need the others' names.
        return len(inner) == 1 and _is_reverse(inner[0])
    arguments = history.operation._inbound_nodes[history.node_index].arguments
    call = inspect.signature(history.operation.call)
    given = call.bind(*arguments.args, **arguments.kwargs).arguments
    return bool(given.get("reverse"))
