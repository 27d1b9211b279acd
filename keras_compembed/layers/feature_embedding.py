"""Vectors of ids that a model computes from what is known of each id."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.optimizers.unique_places import unique_places
from keras_compembed.utils.packed_arrays import pack_array
from keras_compembed.utils.packed_arrays import unpack_array
from keras_compembed.utils.repeat_rows import repeat_rows
from keras_compembed.utils.shared_parts import freeze_part
from keras_compembed.utils.shared_parts import serialize_part
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class FeatureEmbedding(LookupLayer):
    """Turns ids into vectors that an encoder computes from features.

    The item tower of a two-tower model: holds the features of every item, a
    row each, and an encoder that turns rows into vectors.

    `E(id) = encoder(features[id])`

    Ids that come several times in a call are encoded once. As
    `class_embedding` of a `CANESoftmax`, the vectors of items are those of
    classes, and each step encodes candidates, noises and labels alone. The
    same layer may look up the input as well.

    There is one vector for each id whatever it is looked up for, so that what
    differs between training and prediction does not differ here: the encoder
    is called with `training=False`. `Dropout` within it does nothing, and
    `BatchNormalization` keeps its averages.

    LiteRT files hold the vectors, computed once, in place of the encoder.

    **Copies.** Configs hold the features, compressed, and the encoder, so
    that `keras.models.clone_model` makes a layer over the same items. Set new
    features of as many items by `set_weights`.

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
    >>> head = kc.CANESoftmax(
    ...     1000, kc.candidates.FrequentClasses(np.ones(1000)),
    ...     class_embedding=items,
    ... )

    Args:
        features: Array `(input_dim, ...)` of numbers, a row for each id, or a
            dict of such arrays. Floats are kept as float32, integers as
            int32. They are saved with the weights, and `load_weights` sets
            those of the file.
        encoder: Layer or model from a batch of rows, or a dict of them, to
            vectors `(rows, output_dim)`.
        mask_zero: Boolean. Whether id 0 is padding to be masked, as in
            `keras.layers.Embedding`. Defaults to `False`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Attributes:
        input_dim: Integer, the number of ids.
        output_dim: Integer, the width of vectors.

    Call arguments:
        inputs: Integer tensor of ids. With `reverse`, a float tensor of
            vectors.
        reverse: Boolean. Whether to multiply vectors by those of all ids,
            which gives a logit for each id. Defaults to `False`.

    Input shape:
        Integer tensor of any shape; with `reverse`, float tensor
        `(..., output_dim)`.

    Output shape:
        The input's shape followed by `output_dim`; with `reverse`,
        `(..., input_dim)`.

    Raises:
        ValueError: if `features` are not finite numbers, as many rows in each
            array, or `encoder` does not give one vector for each row.

    References:
        - [Yi et al., 2019](https://doi.org/10.1145/3298689.3346996), two
          towers
    """

    def __init__(self, features, encoder, mask_zero=False, **kwargs):
        features = _check_features(features)
        require(
            isinstance(encoder, keras.layers.Layer),
            "`encoder` must be a Keras layer or model.",
            encoder=encoder,
        )
        check_boolean("mask_zero", mask_zero)
        super().__init__(**kwargs)
        # Of features, float16 would lose digits of large numbers.
        self.autocast = False
        self.encoder = encoder
        freeze_part(self, encoder)
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero
        self.input_dim = len(_first(features))
        self.output_dim = _check_width(encoder, features)
        self._given = features
        self._features = {}

    def build(self, input_shape=None):
        if self.built:
            return
        self._features = {
            name: self.add_weight(
                name=f"features_{name}" if name else "features",
                shape=array.shape,
                dtype=array.dtype.name,
                initializer=_constant(array),
                trainable=False,
            )
            for name, array in _named(self._given)
        }
        for weight in self._features.values():
            # Checkpoints of TensorFlow hold no dict of Keras.
            self._track_trackable(weight, weight.name)
        self._is_dict = isinstance(self._given, dict)
        self._given = None
        self.built = True

    def embed(self, ids):
        # XLA takes no other way to find different ids.
        chosen, places = unique_places(ids, self.input_dim)
        vectors = self._encode(tf.gather(ids, chosen))
        return repeat_rows(vectors, places)

    def embed_all(self):
        return self._encode(None)

    def get_config(self):
        features = [[name, pack_array(array)] for name, array in self._arrays()]
        return {
            **super().get_config(),
            "features": features,
            "encoder": serialize_part(self.encoder),
            "mask_zero": self.mask_zero,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        arrays = {
            name: unpack_array(packed) for name, packed in config["features"]
        }
        config["features"] = arrays.get("", arrays)
        config["encoder"] = keras.saving.deserialize_keras_object(
            config["encoder"]
        )
        # What of an encoder is trained stands in its own config.
        trainable = config.pop("trainable", True)
        layer = cls(**config)
        layer._trainable = trainable
        return layer

    def _arrays(self):
        if not self.built:
            return _named(self._given)
        return [
            (name, weight.numpy()) for name, weight in self._features.items()
        ]

    def _encode(self, ids):
        """Vectors of ids, or of all where they are None."""
        rows = {
            name: weight.value if ids is None else tf.gather(weight.value, ids)
            for name, weight in self._features.items()
        }
        rows = rows if self._is_dict else rows[""]
        return call_encoder(self.encoder, rows)


def call_encoder(encoder, rows):
    """Vectors as they are in prediction, whatever the encoder is part of."""
    if encoder._call_has_training_arg:
        return encoder(rows, training=False)
    return encoder(rows)


def _constant(array):
    return lambda shape, dtype: array


def _named(features):
    return list(
        features.items() if isinstance(features, dict) else [("", features)]
    )


def _first(features):
    return _named(features)[0][1]


def _check_features(features):
    if not isinstance(features, dict):
        return _check_array("`features`", features)
    require(
        features and all(isinstance(name, str) and name for name in features),
        "`features` must be an array, or a dict of arrays by their names.",
        keys=list(features),
    )
    features = {
        name: _check_array(f"`features[{name!r}]`", array)
        for name, array in features.items()
    }
    rows = {name: len(array) for name, array in features.items()}
    require(
        len(set(rows.values())) == 1,
        "`features` must have as many rows in each array.",
        rows=rows,
    )
    return features


def _check_array(name, array):
    array = np.asarray(array)
    require(
        array.dtype.kind in "fiu" and array.ndim and len(array),
        f"{name} must be an array of numbers, with a row for each id.",
        shape=array.shape,
        dtype=array.dtype,
    )
    dtype = "float32" if array.dtype.kind == "f" else "int32"
    with np.errstate(over="ignore"):
        kept = array.astype(dtype)
    large = [] if dtype == "float32" else array[kept != array][:1].tolist()
    require(not large, f"{name} must be integers of 32 bits.", first=large)
    bad = np.argwhere(~np.isfinite(kept))[:1].tolist()
    require(not bad, f"{name} must be finite as float32.", first=bad)
    return kept


def _check_width(encoder, features):
    """The width of vectors. Builds the encoder, without computing any."""
    specs = {
        name: keras.KerasTensor((None, *array.shape[1:]), array.dtype.name)
        for name, array in _named(features)
    }
    vectors = call_encoder(
        encoder, specs if isinstance(features, dict) else specs[""]
    )
    shape = getattr(vectors, "shape", None)
    require(
        shape is not None and len(shape) == 2 and shape[1] is not None,
        "`encoder` must give one vector of known width for each row.",
        encoder=encoder.name,
        shape=shape,
    )
    return int(shape[1])
