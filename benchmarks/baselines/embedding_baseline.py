"""Base of stores to compare codes and the like with."""

import math

import numpy as np

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.stores.store import TableStore
from keras_compembed.utils.files import count_litert_bytes
from keras_compembed.utils.validation import check_seed


class EmbeddingBaseline(TableStore):
    """Base of stores of float weights, and of integers that are fixed."""

    settings = ("seed",)
    # Of numbers drawn from -0.05 to 0.05.
    INITIAL_STDDEV = 0.05 / 3**0.5
    # Shapes of integers that are not trained, by the names of weights.
    integer_shapes = {}

    def __init__(self, input_dim, output_dim, seed=None):
        super().__init__(input_dim, output_dim)
        self.seed = check_seed(seed)

    @property
    def shapes(self):
        """Dict, shapes of float weights by their names."""
        raise NotImplementedError

    def initializers(self):
        """Dict, initializers of all weights by their names."""
        raise NotImplementedError

    def seeds(self, number):
        """Seeds for initializers, None if the store has none."""
        if self.seed is None:
            return [None] * number
        found = np.random.SeedSequence(self.seed).generate_state(number)
        return [int(seed) for seed in found]

    def make_variables(self, add):
        initializers = self.initializers()
        for name, shape in {**self.shapes, **self.integer_shapes}.items():
            is_integer = name in self.integer_shapes
            weight = add(
                name,
                shape=shape,
                initializer=initializers[name],
                dtype="int64" if is_integer else None,
                trainable=not is_integer,
            )
            setattr(self, name, weight)

    def in_layer(self, **kwargs):
        """A built layer of the store."""
        layer = LookupLayer(self, **kwargs)
        layer.build()
        return layer

    def litert_bytes(self, quantize=None):
        total = 8 * sum(map(math.prod, self.integer_shapes.values()))
        # Only codebooks and anchors are int8 with "int8_codebooks".
        if quantize == "int8_codebooks":
            quantize = None
        return total + sum(
            count_litert_bytes(math.prod(shape), quantize)
            for shape in self.shapes.values()
        )
