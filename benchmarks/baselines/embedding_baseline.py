"""Base of embeddings to compare `CodeEmbedding` and the like with."""

import math

import numpy as np

from keras_compembed.layers.table_embedding import TableEmbedding
from keras_compembed.utils.sizes import count_litert_bytes


class EmbeddingBaseline(TableEmbedding):
    """Base of embeddings of float weights, and of integers that are fixed."""

    # Of numbers drawn from -0.05 to 0.05.
    INITIAL_STDDEV = 0.05 / 3**0.5
    # Shapes of integers that are not trained, by the names of weights.
    integer_shapes = {}

    @property
    def shapes(self):
        """Dict, shapes of float weights by their names."""
        raise NotImplementedError

    def initializers(self):
        """Dict, initializers of all weights by their names."""
        raise NotImplementedError

    def seeds(self, number):
        """Seeds for initializers, None if the layer has none."""
        if self.seed is None:
            return [None] * number
        found = np.random.SeedSequence(self.seed).generate_state(number)
        return [int(seed) for seed in found]

    def build(self, input_shape=None):
        if self.built:
            return
        initializers = self.initializers()
        for name, shape in {**self.shapes, **self.integer_shapes}.items():
            is_integer = name in self.integer_shapes
            weight = self.add_weight(
                shape=shape,
                initializer=initializers[name],
                dtype="int64" if is_integer else None,
                trainable=not is_integer,
                autocast=False,
                name=name,
            )
            setattr(self, name, weight)
        self.built = True

    def litert_bytes(self, quantize=None):
        """Bytes of the layer's numbers in a LiteRT file."""
        total = 8 * sum(map(math.prod, self.integer_shapes.values()))
        # Only codebooks and anchors are int8 with "int8_codebooks".
        if quantize == "int8_codebooks":
            quantize = None
        return total + sum(
            count_litert_bytes(math.prod(shape), quantize)
            for shape in self.shapes.values()
        )
