"""The best ids of a table of vectors as a layer."""

import keras

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.utils.shared_parts import serialize_part
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class TopIds(keras.layers.Layer):
    """Turns vectors into the ids whose vectors suit them best.

    The last layer of a recommender that answers: `table(queries,
    reverse=True)` and the best of it, without a logit for each id in memory.
    It holds the table and shares its weights, in files too; only
    `keras.models.clone_model` makes it a table of its own.

    Example:

    >>> items = kc.CodeEmbedding(1000, 8, num_codebooks=4)
    >>> answer = TopIds(items, k=3)(np.zeros((2, 8), "float32"))
    >>> answer["ids"].shape
    TensorShape([2, 3])

    Args:
        table: `CodeEmbedding`, `ReversibleCodeEmbedding` or `ANTEmbedding`.
        k: Integer. Defaults to `5`.
        **kwargs: `name` of `keras.layers.Layer`. The dtype is that of `table`.

    Input shape:
        Float tensor `(..., output_dim)`.

    Output shape:
        A dict: `"ids"`, int32 `(..., k)`, best first, of equal ones the lower
        first; and `"scores"`, floats `(..., k)`, their logits.

    Raises:
        ValueError: if `table` is no such layer, or `k` is not from 1 to its
            `input_dim`.
    """

    def __init__(self, table, k=5, **kwargs):
        if not isinstance(table, LookupLayer):
            raise ValueError(
                "`table` must be a layer that turns ids into vectors, such as "
                f"`CodeEmbedding`. Received: table={table!r}."
            )
        k = check_positive_int("k", k, maximum=table.input_dim)
        super().__init__(**{"dtype": table.dtype_policy, **kwargs})
        self.table = table
        self.k = k
        self.supports_masking = True
        self.autocast = False

    def build(self, input_shape):
        if not self.table.built:
            self.table.build(None)

    def call(self, inputs):
        scores, ids = self.table.top_k(inputs, self.k)
        return {"ids": ids, "scores": scores}

    def compute_mask(self, inputs, mask=None):
        return None if mask is None else {"ids": mask, "scores": mask}

    def compute_output_spec(self, inputs):
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
