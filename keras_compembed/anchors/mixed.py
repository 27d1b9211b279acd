"""Several sets of anchors, and what layers take as initializers."""

import keras
import numpy as np

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.anchors.anchor_initializer import Dynamic
from keras_compembed.anchors.anchor_initializer import random_basis
from keras_compembed.anchors.given import Given
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class Mixed(AnchorInitializer):
    """Several sets of anchors, each chosen in its own way."""

    def __init__(self, initializers):
        super().__init__(seed=0)
        self.initializers = list(initializers)
        # Only files of earlier versions have others than equal ones.
        self._sizes = None
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
        if self._sizes is not None:
            return self._sizes
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
        return np.concatenate(
            [x.vectors(size, output_dim) for x, size in parts]
        )

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            "initializers": [serialize(x) for x in self.initializers],
            "sizes": self._sizes,
        }

    @classmethod
    def from_config(cls, config):
        deserialize = keras.saving.deserialize_keras_object
        mixed = cls([deserialize(x) for x in config["initializers"]])
        mixed._sizes = config.get("sizes")
        return mixed


def get_anchor_initializer(value, num_sets=1):
    """Turns what a user passed into an `AnchorInitializer`."""
    if isinstance(value, (list, tuple)):
        value = Mixed([get_anchor_initializer(part) for part in value])
    if isinstance(value, dict) and "class_name" in value:
        value = keras.saving.deserialize_keras_object(value)
    if value is None or isinstance(value, str) and value == "dynamic":
        value = Dynamic()
    if isinstance(value, np.ndarray) or keras.ops.is_tensor(value):
        value = Given(keras.ops.convert_to_numpy(value))
    require(
        isinstance(value, AnchorInitializer),
        "`anchors` must be 'dynamic', an array of anchors "
        "(num_anchors, output_dim), or an instance such as "
        "`keras_compembed.anchors.Frequency(counts)`.",
        anchors=value,
    )
    if isinstance(value, Mixed):
        require(
            num_sets in (1, len(value.initializers)),
            f"`anchors` must hold {num_sets} initializers, one for each set of "
            "anchors.",
            number=len(value.initializers),
        )
        return value
    if num_sets == 1:
        return value
    if isinstance(value, Dynamic):
        # Of one seed, all sets would be the same.
        seeds = np.random.SeedSequence(value.seed).generate_state(num_sets)
        return Mixed([Dynamic(int(seed) >> 1) for seed in seeds])
    return Mixed([value] * num_sets)


def without_data(initializer, input_dim, num_anchors, output_dim):
    """The same choice without the data that it was made from."""
    if isinstance(initializer, Dynamic):
        return initializer
    if isinstance(initializer, Mixed):
        parts = [
            without_data(part, input_dim, size, output_dim)
            for part, size in initializer.sets(num_anchors)
        ]
        short = Mixed(parts)
        short._sizes = initializer._sizes
        return short
    vectors = initializer.vectors(num_anchors, output_dim)
    drawn = random_basis(num_anchors, output_dim, initializer.seed)
    return Given(
        # What the seed gives again is left out.
        None if np.array_equal(vectors, drawn) else vectors,
        initializer.choose(input_dim, num_anchors),
        initializer.seed,
    )
