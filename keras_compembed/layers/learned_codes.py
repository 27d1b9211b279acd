"""Codes that a `CodeEmbedding` learns while it is trained on a task."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.compositions.concat_composition import ConcatComposition
from keras_compembed.learners.key_scores import keep_sums
from keras_compembed.learners.key_scores import key_scores
from keras_compembed.learners.key_scores import normalize_scores
from keras_compembed.learners.key_scores import pick_best
from keras_compembed.learners.key_scores import score_sums
from keras_compembed.optimizers.drop_weights import drop_weights
from keras_compembed.optimizers.read_rows import read_rows

# Normalized products with one number tell no more than its sign.
_PART_WIDTH = 4
_CHUNK_ELEMENTS = 1 << 22


class LearnedCodes:
    """What a layer holds besides codes and codebooks while codes are learned.

    Its weights belong to the layer, and go when the codes are fixed.

    Args:
        layer: A `CodeEmbedding`.
    """

    def __init__(self, layer):
        self.layer = layer
        # Of scores and losses, whose sums half precision does not hold.
        self.dtype = keras.backend.result_type(layer.variable_dtype, "float32")
        self._names = []

    def build(self):
        self._add("codes_are_fixed", (), dtype="bool", trainable=False)

    def _add(self, name, shape, **kwargs):
        kwargs.setdefault("initializer", "zeros")
        weight = self.layer.add_weight(
            shape=shape, name=name, autocast=False, **kwargs
        )
        setattr(self.layer, name, weight)
        self._names.append(name)

    def drop(self):
        """Takes the weights from the layer."""
        # Functions that users traced before would go on with them.
        self.layer.codes_are_fixed.assign(True)
        drop_weights(
            self.layer, [getattr(self.layer, name) for name in self._names]
        )

    def embed(self, ids, counts=None):
        """Vectors of different ids.

        Args:
            ids: Integer tensor `(ids,)`.
            counts: Float tensor `(ids,)`, how often each id counts in this
                batch, when training, else `None`.
        """
        raise NotImplementedError

    def find(self):
        """Codes of all ids, an integer array `(input_dim, num_codebooks)`."""
        raise NotImplementedError

    def restart(self, vectors):
        """Keeps the codes of all ids though their vectors are others.

        Args:
            vectors: Array `(input_dim, output_dim)`.
        """
        raise NotImplementedError

    def check_not_fixed(self):
        tf.debugging.assert_equal(
            tf.convert_to_tensor(self.layer.codes_are_fixed.value),
            False,
            "The codes of the layer were fixed by `freeze_codes` after this "
            "function was traced. Make it anew: `compile` the model again, or "
            "wrap a training step of your own in `tf.function` again.",
        )


class QueriedCodes(LearnedCodes):
    """Codes are the keys that answer an id's query best.

    Args:
        layer: A `CodeEmbedding`.

    References:
        - [Chen, Li & Sun, 2020](https://arxiv.org/abs/1908.09756)
    """

    def __init__(self, layer):
        super().__init__(layer)
        self._nearest = layer.learn_codes == "nearest"
        # Where the space of queries is that of the vectors, codewords are
        # keys, and gradients go straight from vectors to queries.
        self._tied = self._nearest and isinstance(
            layer.composition, ConcatComposition
        )

    def build(self):
        super().build()
        layer = self.layer
        width = layer.output_dim
        if not self._tied:
            width = max(width, _PART_WIDTH * layer.num_codebooks)
        shape = layer.num_codebooks, layer.codebook_size
        self._add("queries", (layer.input_dim, width), initializer="uniform")
        if not self._tied:
            self._add("keys", (shape[1], width), initializer="uniform")
        self._add(
            "score_sums",
            (3, *shape),
            dtype=self.dtype,
            trainable=False,
            aggregation="mean",
        )

    def _scores(self, queries):
        layer = self.layer
        keys = layer.codebooks if self._tied else layer.keys
        return key_scores(
            tf.cast(queries, self.dtype),
            tf.cast(keys.value, self.dtype),
            layer.num_codebooks,
            self._nearest,
        )

    def _codes(self, queries):
        sums = tf.convert_to_tensor(self.layer.score_sums.value)
        scores = normalize_scores(self._scores(queries), sums)
        return tf.argmax(scores, axis=2, output_type="int32")

    def embed(self, ids, counts=None):
        layer = self.layer
        codebooks = tf.convert_to_tensor(layer.codebooks.value)
        if counts is None:
            codes = self._codes(tf.gather(layer.queries.value, ids))
            return layer.composition.compose_codes(codebooks, codes)
        queries = read_rows(layer.queries, ids, once=True)
        scores = self._scores(queries)
        sums = score_sums(scores, counts)
        keep_sums(layer.score_sums, sums)
        scores = normalize_scores(scores, sums)
        if not self._tied:
            picks = pick_best(scores, layer.temperature)
            return layer.composition.compose_picks(
                codebooks, tf.cast(picks, codebooks.dtype)
            )
        codes = tf.argmax(scores, axis=2, output_type="int32")
        vectors = layer.composition.compose_codes(codebooks, codes)
        chosen = tf.cast(vectors, self.dtype)
        asked = tf.cast(queries, self.dtype)
        distances = tf.square(chosen - tf.stop_gradient(asked))
        distances += layer.commitment * tf.square(
            tf.stop_gradient(chosen) - asked
        )
        layer.add_loss_of_ids(tf.reduce_mean(distances, axis=1), counts)
        return vectors + queries - tf.stop_gradient(queries)

    def find(self):
        layer = self.layer
        rows = layer.num_codebooks * layer.codebook_size
        rows = max(1, _CHUNK_ELEMENTS // rows)
        return np.concatenate(
            [
                self._codes(
                    tf.gather(
                        layer.queries.value,
                        tf.range(start, min(start + rows, layer.input_dim)),
                    )
                )
                for start in range(0, layer.input_dim, rows)
            ]
        )

    def restart(self, vectors):
        # Keys that are not codewords know nothing of vectors.
        if self._tied:
            self.layer.queries.assign(vectors)
            # A distance of 0 is the least, whatever the scores of a key are
            # like.
            self.layer.score_sums.assign(tf.zeros_like(self.layer.score_sums))


class FollowedCodes(LearnedCodes):
    """Codes follow latent vectors, to which the task's gradients go.

    Args:
        layer: A `CodeEmbedding`.
    """

    def build(self):
        super().build()
        layer = self.layer
        self._add(
            "latents",
            (layer.input_dim, layer.output_dim),
            initializer=lambda shape, dtype: tf.cast(self.vectors(), dtype),
        )

    def vectors(self):
        """Vectors of all ids: where latents begin."""
        return self.layer.composition.decode(
            self.find(), keras.ops.convert_to_numpy(self.layer.codebooks)
        )

    def embed(self, ids, counts=None):
        vectors = self.layer.embed_stored(ids)
        if counts is not None:
            latents = read_rows(self.layer.latents, ids, once=True)
            vectors += latents - tf.stop_gradient(latents)
        return vectors

    def find(self):
        return self.layer.stored_codes

    def restart(self, vectors):
        self.layer.latents.assign(vectors)
