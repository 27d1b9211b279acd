"""Choices of anchors, and their initial vectors."""

import random

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.utils.saving import Settings
from keras_compembed.utils.saving import pack_array
from keras_compembed.utils.saving import unpack_array
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require


class AnchorInitializer:
    """Chooses the objects that anchors represent, and initial anchors."""

    # An instance returns the same at every call. Layers save the chosen ids
    # and vectors, not the data behind them, so no class needs a config.

    def __init__(self, seed: int | None = None):
        if seed is None:
            seed = random.randint(0, 2**31 - 1)
        self.seed = check_positive_int("seed", seed, minimum=0)

    def sizes(self, num_anchors: int) -> tuple:
        """Tuple of the sizes of the sets that `num_anchors` are split into."""
        return (num_anchors,)

    def choose(self, input_dim: int, num_anchors: int) -> np.ndarray:
        """The ids that anchors represent, -1 for none, as int64."""
        return np.full(num_anchors, -1, "int64")

    def vectors(self, num_anchors: int, output_dim: int) -> np.ndarray:
        """The initial anchors, float32 `(num_anchors, output_dim)`."""
        return random_basis(num_anchors, output_dim, self.seed)

    def __call__(self, shape, dtype=None):
        return tf.convert_to_tensor(self.vectors(*shape), dtype=dtype)


@keras.saving.register_keras_serializable(package="keras_compembed")
class Dynamic(Settings, AnchorInitializer):
    """Initial anchors are a random basis and represent no objects."""


def random_basis(num_anchors, output_dim, seed):
    """Random vectors, orthogonal as far as possible."""
    rng = np.random.default_rng(seed)
    basis = np.empty((num_anchors, output_dim), "float32")
    for start in range(0, num_anchors, output_dim):
        block = basis[start : start + output_dim]
        normal = rng.normal(size=block.T.shape)
        columns, triangle = np.linalg.qr(normal)
        # These signs make the distribution uniform.
        block[:] = (columns * np.sign(np.diag(triangle))).T
    return basis * np.float32(np.sqrt(output_dim))


def check_num_anchors(num_anchors, input_dim):
    """Raises if there are more anchors than objects to represent."""
    require(
        num_anchors <= input_dim,
        "`num_anchors` must be at most `input_dim`, as each anchor represents "
        "a different object.",
        num_anchors=num_anchors,
        input_dim=input_dim,
    )


def check_rows(name, values, input_dim):
    """Raises unless `values` has one entry or row for each object."""
    require(
        len(values) == input_dim,
        f"`{name}` must have one entry for each of {input_dim} objects "
        "(`input_dim`).",
        entries=len(values),
    )


def highest(scores, number):
    """Ids of the highest scores, highest first; ties by id."""
    return np.argsort(-scores, kind="stable")[:number].astype("int64")


@keras.saving.register_keras_serializable(package="keras_compembed")
class Given(AnchorInitializer):
    """Anchors from given vectors, given ids, or both."""

    def __init__(self, anchors=None, ids=None, seed=None):
        super().__init__(seed)
        self.anchors, self.ids = anchors, ids
        if anchors is not None:
            self.anchors = check_table(anchors, "anchors").astype("float32")
        if ids is not None:
            self.ids = _check_ids(ids)
        is_one_given = anchors is not None or ids is not None
        require(is_one_given, "`anchors` or `ids` must be given.", ids=ids)
        if anchors is not None and ids is not None:
            _check_number("ids", self.ids, len(self.anchors))

    def choose(self, input_dim, num_anchors):
        if self.ids is None:
            _check_number("anchors", self.anchors, num_anchors)
            return super().choose(input_dim, num_anchors)
        _check_number("ids", self.ids, num_anchors)
        rule = f"`ids` must be below input_dim={input_dim}."
        require(self.ids.max() < input_dim, rule, id=int(self.ids.max()))
        return self.ids.copy()

    def vectors(self, num_anchors, output_dim):
        if self.anchors is None:
            return super().vectors(num_anchors, output_dim)
        _check_number("anchors", self.anchors, num_anchors)
        check_table(self.anchors, "anchors", width=output_dim)
        return self.anchors.copy()

    def get_config(self):
        config = {"seed": self.seed}
        if self.anchors is not None:
            config["anchors"] = pack_array(self.anchors)
        if self.ids is not None:
            config["ids"] = self.ids.tolist()
        return config

    @classmethod
    def from_config(cls, config):
        anchors = unpack_array(config.get("anchors"))
        return cls(**{**config, "anchors": anchors})


def _check_ids(ids):
    array = np.asarray(ids)
    named = array[array >= 0] if array.dtype.kind in "iu" else array
    require(
        array.ndim == 1
        and array.size
        and array.dtype.kind in "iu"
        and array.min() >= -1
        and len(np.unique(named)) == len(named),
        "`ids` must have distinct non-negative integers, or -1, one for each "
        "anchor.",
        ids=ids,
    )
    return array.astype("int64")


def _check_number(name, values, num_anchors):
    require(
        len(values) == num_anchors,
        f"`{name}` must have {num_anchors} entries, one for each anchor.",
        number=len(values),
    )


@keras.saving.register_keras_serializable(package="keras_compembed")
class Mixed(AnchorInitializer):
    """Several sets of anchors, each from a different initializer."""

    def __init__(self, initializers):
        super().__init__(seed=0)
        self.initializers = list(initializers)
        fit = [
            isinstance(each, AnchorInitializer) and not isinstance(each, Mixed)
            for each in self.initializers
        ]
        require(
            fit and all(fit),
            "`initializers` must be instances of `AnchorInitializer`, at least "
            "one and none of them `Mixed`.",
            initializers=initializers,
        )

    def sizes(self, num_anchors):
        number = len(self.initializers)
        rule = f"`num_anchors` must be at least {number}, one for each set."
        require(num_anchors >= number, rule, num_anchors=num_anchors)
        each, more = divmod(num_anchors, number)
        return (each + 1,) * more + (each,) * (number - more)

    def sets(self, num_anchors):
        """Initializers and their numbers of anchors."""
        return zip(self.initializers, self.sizes(num_anchors), strict=True)

    def choose(self, input_dim, num_anchors):
        parts = self.sets(num_anchors)
        return np.concatenate([x.choose(input_dim, size) for x, size in parts])

    def vectors(self, num_anchors, output_dim):
        parts = self.sets(num_anchors)
        rows = [each.vectors(size, output_dim) for each, size in parts]
        return np.concatenate(rows)

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {"initializers": [serialize(x) for x in self.initializers]}

    @classmethod
    def from_config(cls, config):
        deserialize = keras.saving.deserialize_keras_object
        return cls([deserialize(x) for x in config["initializers"]])


def get_anchor_initializer(value, num_sets=1):
    if isinstance(value, (list, tuple)):
        value = Mixed([get_anchor_initializer(part) for part in value])
    if isinstance(value, dict) and "class_name" in value:
        value = keras.saving.deserialize_keras_object(value)
    if value is None or isinstance(value, str) and value == "dynamic":
        value = Dynamic()
    if isinstance(value, np.ndarray) or keras.ops.is_tensor(value):
        value = keras.ops.convert_to_numpy(value)
        value = Given(ids=value) if value.ndim == 1 else Given(value)
    require(
        isinstance(value, AnchorInitializer),
        "`anchors` must be 'dynamic', an array of anchors "
        "(num_anchors, output_dim), an array of the ids that they represent, "
        "or an instance such as `keras_compembed.anchors.Frequency(counts)`.",
        anchors=value,
    )
    if isinstance(value, Mixed):
        require(
            num_sets in (1, len(value.initializers)),
            f"`anchors` must have {num_sets} initializers, one for each set of "
            "anchors.",
            number=len(value.initializers),
        )
        return value
    if num_sets == 1:
        return value
    if isinstance(value, Dynamic):
        # With the same seed, all sets would be equal.
        seeds = np.random.SeedSequence(value.seed).generate_state(num_sets)
        return Mixed([Dynamic(int(seed) >> 1) for seed in seeds])
    return Mixed([value] * num_sets)


def without_data(initializer, input_dim, num_anchors, output_dim):
    """The same choice of anchors without the data behind it."""
    if isinstance(initializer, Dynamic):
        return initializer
    if isinstance(initializer, Mixed):
        parts = [
            without_data(part, input_dim, size, output_dim)
            for part, size in initializer.sets(num_anchors)
        ]
        return Mixed(parts)
    vectors = initializer.vectors(num_anchors, output_dim)
    drawn = random_basis(num_anchors, output_dim, initializer.seed)
    return Given(
        # The seed reproduces these vectors.
        None if np.array_equal(vectors, drawn) else vectors,
        initializer.choose(input_dim, num_anchors),
        initializer.seed,
    )
