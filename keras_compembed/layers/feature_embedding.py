"""Vectors of ids that a model computes from features of each id."""

import keras
from numpy.typing import ArrayLike

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.options import Combiner
from keras_compembed.layers.options import Reverse
from keras_compembed.stores.features import EncodedFeatures
from keras_compembed.stores.features import unpack_config
from keras_compembed.utils.model_parts import layer_paths


@keras.saving.register_keras_serializable(package="keras_compembed")
class FeatureEmbedding(LookupLayer):
    """Turns ids into vectors that an encoder computes from features.

    Use it as the item tower of a two-tower model. The layer holds a row of
    features for each item, and an encoder that turns rows into vectors:

    `E(id) = encoder(features[id])`

    Repeated ids in a call are encoded once. As `class_embedding` of a
    `CANESoftmax`, each step encodes only labels, candidates and noise classes.
    The same layer may look up the input.

    The encoder runs with `training=False`, even in training: `Dropout` does
    nothing, and `BatchNormalization` keeps its averages. LiteRT files hold the
    computed vectors. Configs hold features and encoder. For new features of
    the same number of items, use `set_weights`.

    Example:

    >>> prices = np.random.uniform(size=(1000, 3))
    >>> kinds = np.random.randint(20, size=1000)
    >>> price = keras.Input((3,), name="price")
    >>> kind = keras.Input((), dtype="int32", name="kind")
    >>> both = keras.layers.Concatenate()(
    ...     [price, keras.layers.Embedding(20, 5)(kind)]
    ... )
    >>> tower = keras.Model(
    ...     {"price": price, "kind": kind}, keras.layers.Dense(16)(both)
    ... )
    >>> items = FeatureEmbedding({"price": prices, "kind": kinds}, tower)
    >>> items(np.array([[3, 8], [3, 999]])).shape
    TensorShape([2, 2, 16])
    >>> head = kc.CANESoftmax(1000, class_embedding=items)

    Args:
        features: Array `(input_dim, ...)` of finite numbers, a row for each
            id, or a dict of such arrays. Floats become float32, and integers
            int32. They are saved with weights and restored by `load_weights`.
        encoder: Layer or model from a batch of rows, or a dict of batches, to
            vectors `(rows, output_dim)`.
        combiner, reverse, mask_zero, **kwargs: See `CodeEmbedding`.

    Call arguments, input shape, output shape:
        See `CodeEmbedding`.

    Raises:
        ValueError: If `features` are not finite or differ in length.

    References:
        - [Yi et al., 2019](https://doi.org/10.1145/3298689.3346996), two
          towers
    """

    def __init__(
        self,
        features: ArrayLike | dict,
        encoder: keras.Layer,
        combiner: str | Combiner | None = None,
        reverse: Reverse | None = None,
        mask_zero: bool = False,
        **kwargs: object,
    ):
        super().__init__(None, combiner, reverse, mask_zero, **kwargs)
        self.supports_masking = self.mask_zero or self.combiner is not None
        store = EncodedFeatures(features, encoder)
        self._set_store(store, FeatureEmbedding)

    @classmethod
    def from_config(cls, config):
        config = unpack_config(config)
        # The encoder's config says which of its weights are trained.
        trainable = config.pop("trainable", True)
        layer = super().from_config(config)
        parts = [x for x in layer_paths(layer).values() if x is not layer]
        own = [part.trainable for part in parts]
        layer.trainable = trainable
        for part, is_trained in zip(parts, own, strict=True):
            part.trainable = is_trained
        return layer
