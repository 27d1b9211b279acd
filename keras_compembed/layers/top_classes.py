"""Layers and models that predict the best classes or ids."""

import inspect

import keras

from keras_compembed.classes.class_head import ClassHead
from keras_compembed.classes.class_head import read_output
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.utils.model_parts import is_open
from keras_compembed.utils.model_parts import layer_of
from keras_compembed.utils.model_parts import node_of
from keras_compembed.utils.model_parts import output_names
from keras_compembed.utils.saving import serialize_part
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require

# Outputs of `TopClasses`.
_DTYPES = {"ids": "int32", "probabilities": "float32"}


@keras.saving.register_keras_serializable(package="keras_compembed")
class TopClasses(keras.layers.Layer):
    """Turns the output of a `CANESoftmax` into its best classes.

    Add it to a trained Sequential model that ends in a layer such as
    `CANESoftmax`. `predict`, and any converter, then returns classes. The
    layer is found by the mark on its output, as by losses.

    Example:

    >>> features = kc.CANESoftmax(1000)(np.zeros((2, 8), "float32"))
    >>> answer = TopClasses(k=3)(features)
    >>> answer["ids"].shape
    TensorShape([2, 3])

    Args:
        k: Integer, or `None` for all classes. Defaults to `5`.
        **kwargs: `name`, `dtype` of `keras.layers.Layer`.

    Input shape:
        Features `(..., width)`, the output of a layer such as
        `keras_compembed.CANESoftmax`.

    Output shape:
        A dict with `"ids"`, int32 `(..., k)`, best first, and
        `"probabilities"`, float32 `(..., k)`. With `k=None`, only
        `"probabilities"` `(..., num_classes)`, in the order of classes.

    Raises:
        ValueError: If the input is not such an output, or `k` is too large.
    """

    def __init__(self, k: int | None = 5, **kwargs: object):
        super().__init__(**kwargs)
        self.k = None if k is None else check_positive_int("k", k)
        self.supports_masking = True
        self.autocast = False

    def call(self, inputs, exclude=None):
        output = read_output(inputs, type(self).__name__)
        return answer_of(output.head, inputs, self.k, exclude)

    def compute_mask(self, inputs, mask=None):
        return None if mask is None else dict.fromkeys(self._names, mask)

    def compute_output_spec(self, inputs, exclude=None):
        number = self.k
        if number is None and hasattr(inputs, "_keras_history"):
            number = getattr(layer_of(inputs), "num_classes", None)
        shape = (*inputs.shape[:-1], number)
        return {
            name: keras.KerasTensor(shape, dtype=_DTYPES[name])
            for name in self._names
        }

    @property
    def _names(self):
        return list(_DTYPES)[self.k is None :]

    def get_config(self):
        return {**super().get_config(), "k": self.k}


@keras.saving.register_keras_serializable(package="keras_compembed")
class TopIds(keras.layers.Layer):
    """Turns vectors into the ids with the highest logits."""

    def __init__(self, table, k=5, **kwargs):
        require(
            isinstance(table, LookupLayer),
            "`table` must be a layer that turns ids into vectors, such as "
            "`CodeEmbedding`.",
            table=table,
        )
        k = check_positive_int("k", k, maximum=table.input_dim)
        super().__init__(**{"dtype": table.dtype_policy, **kwargs})
        self.table = table
        self.k = k
        self.supports_masking = True
        self.autocast = False

    def build(self, input_shape):
        self.table.build()

    def call(self, inputs, exclude=None):
        scores, ids = self.table.top_k(inputs, self.k, exclude)
        return {"ids": ids, "scores": scores}

    def compute_mask(self, inputs, mask=None):
        return None if mask is None else {"ids": mask, "scores": mask}

    def compute_output_spec(self, inputs, exclude=None):
        logits = self.table.compute_output_spec(inputs, reverse=True)
        shape = (*inputs.shape[:-1], self.k)
        return {
            "ids": keras.KerasTensor(shape, dtype="int32"),
            "scores": keras.KerasTensor(shape, dtype=logits.dtype),
        }

    def get_config(self):
        return {
            **super().get_config(),
            "table": serialize_part(self.table),
            "k": self.k,
        }

    @classmethod
    def from_config(cls, config):
        table = keras.saving.deserialize_keras_object(config["table"])
        return cls(**{**config, "table": table})


def answer_of(head, features, k, exclude=None):
    """The top classes of a `ClassHead` for features, as a dict of tensors."""
    if k is None:
        return {"probabilities": head.probabilities(features)}
    options = {} if exclude is None else {"exclude": exclude}
    return dict(zip(_DTYPES, head.top_k(features, k, **options), strict=True))


def top_k_model(
    model: keras.Model, k: int | None = 5, num_excluded: int | None = None
) -> keras.Model:
    """Makes a model that predicts the best classes or ids.

    It shares all weights with `model`. Train `model`, predict with the
    returned model, and pass the latter to `tf.lite.TFLiteConverter` or
    `model.export`. It finds outputs of layers over classes such as
    `CANESoftmax`, and logits from layers such as `CodeEmbedding` with
    `reverse=True`, e.g. in recommenders and language models.

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
        model: A Sequential or functional `keras.Model` with such outputs.
        k: Integer, or `None` for the probabilities of all classes. Logits of
            ids then do not change. Defaults to `5`.
        num_excluded: Optional integer. Adds an input `"exclude"`, int32
            `(batch, num_excluded)`, after the others: ids to leave out of the
            result, such as items already seen, padded by -1. Defaults to
            `None`.

    Returns:
        A `keras.Model` with the inputs of `model` and two outputs by name:
        `"ids"`, int32 `(..., k)`, best first, and `"probabilities"` of classes
        or `"scores"` (logits) of ids, floats `(..., k)`. With `k=None`, only
        `"probabilities"` of all classes, in order and exact. If `model` has
        several outputs, the dict has all of them by name. An output `"words"`
        of classes becomes `"words_ids"` and `"words_probabilities"`.

    Raises:
        ValueError: If `model` has no such output, or fewer than `k` classes.
    """
    heads = find_heads(model)
    check_number("k", k, heads)
    name, exclude = f"{model.name}_top_{'all' if k is None else k}", None
    if num_excluded is not None:
        sizes = [num_ids(head) for head in heads if head is not None]
        require(
            k is not None and all(len(x.shape) == 2 for x in model.outputs),
            "`num_excluded` must be None unless `k` is given and `model` has "
            "one result for each example.",
            k=k,
            outputs=[x.shape for x in model.outputs],
        )
        check_positive_int("num_excluded", num_excluded, maximum=min(sizes) - k)
        exclude = keras.Input((num_excluded,), dtype="int32", name="exclude")
    return answering_model(model, heads, [k] * len(heads), name, exclude)


def check_number(name, k, heads):
    """Raises if an output has fewer than `k` classes or ids."""
    sizes = [num_ids(head) for head in heads if head is not None]
    if k is not None:
        check_positive_int(name, k, maximum=min(sizes))


def answering_model(model, heads, numbers, name, exclude=None):
    """`top_k_model` with a layer (None: unchanged) and a `k` per output."""
    names = output_names(model)
    layers = ["top_classes"]
    if len(names) > 1:
        layers = [f"{own}_top_classes" for own in names]
    answers = [
        head and _answer(tensor, head, k, layer, exclude)
        for tensor, head, k, layer in zip(
            model.outputs, heads, numbers, layers, strict=True
        )
    ]
    outputs = name_answers(names, model.outputs, answers)
    # A Sequential model has one input.
    is_list = isinstance(model, keras.Sequential)
    inputs = model.inputs[0] if is_list else model.input
    if exclude is not None:
        if isinstance(inputs, dict):
            inputs = {**inputs, "exclude": exclude}
        else:
            inputs = [*model.inputs, exclude]
    return keras.Model(inputs, outputs, name=name)


def name_answers(names, tensors, answers):
    """All outputs by name, each with a dict of results, or None as is."""
    found = {}
    for name, tensor, parts in zip(names, tensors, answers, strict=True):
        if parts is None:
            parts = {name: tensor}
        elif len(answers) > 1:
            parts = {f"{name}_{part}": parts[part] for part in parts}
        for part, answer in parts.items():
            require(
                part not in found,
                "`model` must have outputs with different names: two would be "
                f"called {part!r}.",
                outputs=names,
            )
            found[part] = answer
    return found


def _answer(tensor, head, k, name, exclude):
    """The best classes or ids of a symbolic output."""
    options = {} if exclude is None else {"exclude": exclude}
    if isinstance(head, ClassHead):
        return TopClasses(k, name=name)(tensor, **options)
    if k is None:
        return None
    node = node_of(tensor)
    if node.operation is head:
        return TopIds(head, k, name=name)(node.input_tensors[0], **options)
    # A model within a model.
    require(
        exclude is None,
        "`num_excluded` must be None with logits of a nested model.",
        model=node.operation.name,
    )
    inner = top_k_model(node.operation, k)
    return inner(*node.arguments.args, **node.arguments.kwargs)


def num_ids(head):
    """The number of classes or ids of a layer."""
    return head.num_classes if isinstance(head, ClassHead) else head.input_dim


def list_heads(model):
    """The layer of classes or logits of each known output, or None."""
    return [_find_head(each) for each in getattr(model, "outputs", None) or ()]


def find_heads(model):
    """Same as `list_heads`, but raises an error if there is none."""
    require(
        is_open(model),
        "`model` must be a built Sequential or functional `keras.Model`.",
        model=model,
    )
    heads = list_heads(model)
    require(
        any(heads),
        "`model` must have an output of a layer such as `CANESoftmax`, or of a "
        "call `layer(vectors, reverse=True)` of a `CodeEmbedding` or "
        "`ANTEmbedding`. Remove layers after it, such as a softmax: the best "
        "ids do not change.",
        last_layers=[layer_of(output).name for output in model.outputs],
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
    """Whether an output of a lookup layer is logits of all ids."""
    node = node_of(output)
    if is_open(node.operation):
        inner = node.operation.outputs
        # With several outputs, the result would need their names.
        return len(inner) == 1 and _is_reverse(inner[0])
    call = inspect.signature(node.operation.call)
    arguments = node.arguments
    given = call.bind(*arguments.args, **arguments.kwargs).arguments
    return bool(given.get("reverse"))
