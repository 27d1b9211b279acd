"""A store of features of ids, encoded to vectors."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.litert.litert_form import LiteRTForm
from keras_compembed.optimizers.device_rows import unique_places
from keras_compembed.stores.store import Store
from keras_compembed.utils.saving import pack_array
from keras_compembed.utils.saving import serialize_part
from keras_compembed.utils.saving import unpack_array
from keras_compembed.utils.tensor_ops import repeat_rows
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class EncodedFeatures(Store):
    """Features of ids, and an encoder from features to vectors."""

    attributes = ("encoder",)

    second_table = None

    def __init__(self, features, encoder):
        arrays = _check_features(features)
        require(
            isinstance(encoder, keras.layers.Layer),
            "`encoder` must be a Keras layer or model.",
            encoder=encoder,
        )
        width = _check_width(encoder, arrays)
        super().__init__(len(next(iter(arrays.values()))), width)
        self.encoder = encoder
        self._given, self._features = arrays, {}

    def make_variables(self, add):
        self._features = {
            name: add(
                f"features_{name}" if name else "features",
                shape=array.shape,
                dtype=array.dtype.name,
                initializer=lambda shape, dtype, array=array: array,
                trainable=False,
            )
            for name, array in self._given.items()
        }
        self._given = None

    def read(self, ids, training=False, counts=None):
        # `tf.unique` does not compile with XLA.
        chosen, places = unique_places(ids, self.input_dim)
        vectors = self._encode(tf.gather(ids, chosen))
        return repeat_rows(vectors, places)

    def read_all(self):
        return self._encode(None)

    def _encode(self, ids):
        """Vectors of ids, or of all ids if None."""
        rows = {
            name: weight.value if ids is None else tf.gather(weight.value, ids)
            for name, weight in self._features.items()
        }
        # Always in inference mode.
        return self.encoder(rows.get("", rows), training=False)

    def parts(self):
        return {"encoder": self.encoder}

    def litert(self, options, path):
        return _VectorsForm(self, options)

    def get_config(self):
        features = [
            [name, pack_array(np.asarray(values))]
            for name, values in (self._given or self._features).items()
        ]
        return {"features": features, "encoder": serialize_part(self.encoder)}

    @classmethod
    def from_config(cls, config):
        return cls(**unpack_config(config))


class _VectorsForm(LiteRTForm):
    """Precomputed vectors in a LiteRT file."""

    def __init__(self, store, options):
        super().__init__(store, options)
        # Before the encoder, which may be shared, is replaced.
        self._table = tf.constant(store.read_all().numpy(), "float32")

    def look_up(self, ids):
        return tf.gather(self._table, ids)

    def read_all(self):
        return self._table

    def score(self, vectors):
        return tf.matmul(vectors, self._table, transpose_b=True)


def unpack_config(config):
    """Config of a store or layer, with features and encoder restored."""
    arrays = {name: unpack_array(packed) for name, packed in config["features"]}
    encoder = keras.saving.deserialize_keras_object(config["encoder"])
    return {**config, "features": arrays.get("", arrays), "encoder": encoder}


def _check_features(features):
    """Dict of arrays by name; a single array has the name `""`."""
    if not isinstance(features, dict):
        return {"": _check_array("`features`", features)}
    require(
        features and all(isinstance(name, str) and name for name in features),
        "`features` must be an array, or a dict of arrays by name.",
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
        f"{name} must be a numeric array with a row for each id.",
        shape=array.shape,
        dtype=array.dtype,
    )
    dtype = "float32" if array.dtype.kind == "f" else "int32"
    with np.errstate(over="ignore"):
        kept = array.astype(dtype)
    large = [] if dtype == "float32" else array[kept != array][:1].tolist()
    require(not large, f"{name} must fit in int32.", first=large)
    bad = np.argwhere(~np.isfinite(kept))[:1].tolist()
    require(not bad, f"{name} must be finite in float32.", first=bad)
    return kept


def _check_width(encoder, arrays):
    """The width of vectors. Builds the encoder without running it."""
    specs = {
        name: keras.KerasTensor((None, *array.shape[1:]), array.dtype.name)
        for name, array in arrays.items()
    }
    vectors = encoder(specs.get("", specs), training=False)
    shape = getattr(vectors, "shape", None)
    require(
        shape is not None and len(shape) == 2 and shape[1] is not None,
        "`encoder` must return one vector of known width for each row.",
        encoder=encoder.name,
        shape=shape,
    )
    return int(shape[1])
