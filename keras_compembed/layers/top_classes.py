"""Predictions of a model over many classes as a layer and as a model."""

import keras

from keras_compembed.layers.class_head import ClassHead
from keras_compembed.layers.class_output import read_output
from keras_compembed.layers.model_outputs import layer_of
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class TopClasses(keras.layers.Layer):
    """Turns the output of a layer of classes into its best classes.

    It finds the layer by the mark on the tensor, as losses do.

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
    """A model that answers the best classes and their probabilities.

    It shares all weights with the model it is made from: train that, predict
    with this.

    Example:

    >>> inputs = keras.Input((8,))
    >>> model = keras.Sequential([inputs, CANESoftmax(1000)])
    >>> predictor = top_k_model(model, k=3)
    >>> answer = predictor.predict(np.zeros((2, 8)), verbose=0)
    >>> answer["ids"].shape, answer["probabilities"].shape
    ((2, 3), (2, 3))

    Args:
        model: A Sequential or functional `keras.Model` whose one output is
            that of a layer such as `CANESoftmax`.
        k: Integer. Defaults to `5`.

    Returns:
        A `keras.Model` with the inputs of `model` and two outputs by name:
        `"ids"`, int32 `(..., k)`, best first, and `"probabilities"`, float32
        `(..., k)`.

    Raises:
        ValueError: if `model` is not such a model, or `k` is not from 1 to
            the number of classes.
    """
    head = find_head(model)
    check_positive_int("k", k, maximum=head.num_classes)
    outputs = TopClasses(k, name="top_classes")(model.outputs[0])
    inputs = getattr(model, "_inputs_struct", None)
    if inputs is None:
        # A Sequential has one input.
        (inputs,) = model.inputs
    return keras.Model(inputs, outputs, name=f"{model.name}_top_{k}")


def find_head(model):
    """The layer of classes that a model ends in.

    Raises:
        ValueError: if it does not.
    """
    outputs = getattr(model, "outputs", None)
    if not isinstance(model, keras.Model) or not outputs:
        raise ValueError(
            "`model` must be a built Sequential or functional `keras.Model`. "
            f"Received: model={model!r}."
        )
    head = None
    if len(outputs) == 1:
        head = layer_of(outputs[0])
    if not isinstance(head, ClassHead):
        raise ValueError(
            "`model` must have one output, that of a layer such as "
            "`CANESoftmax`. Received: a model that ends in "
            f"{head.name if head is not None else 'several outputs'!r}."
        )
    return head
