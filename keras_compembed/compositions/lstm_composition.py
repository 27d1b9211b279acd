"""Codewords read by an LSTM."""

import keras
import tensorflow as tf

from keras_compembed.compositions.composition import Composition
from keras_compembed.compositions.composition import gather_codewords
from keras_compembed.compositions.composition import orthogonal
from keras_compembed.compositions.composition import pick_codewords


@keras.saving.register_keras_serializable(package="keras_compembed")
class LSTMComposition(Composition):
    """The sum of what an LSTM gives as it reads the codewords.

    `E(id) = H' sum_m h_m`, `h_m` the LSTM's output after codeword m; without
    `H` where `code_dim` is `output_dim`. It takes some 20 times the time of a
    sum.

    See Chen, Min & Sun, 2018, section 2.2.
    """

    is_slow = True

    def build(self, input_shape):
        units = self.code_dim
        self._add("kernel", (units, 4 * units), "glorot_uniform")
        self._add("recurrent_kernel", (units, 4 * units), orthogonal)
        self._add("bias", (4 * units,), _forget_gates_open)
        self.projection = None
        if units != self.output_dim:
            shape = units, self.output_dim
            self._add("projection", shape, "glorot_uniform")

    def _add(self, name, shape, initializer):
        # Not cast where a layer of mixed precision composes.
        weight = self.add_weight(
            shape=shape, initializer=initializer, autocast=False, name=name
        )
        setattr(self, name, weight)

    def call(self, codewords):
        # Rank 2: LiteRT has no products of rank 3 with an open batch.
        flat = tf.reshape(codewords, (-1, self.code_dim))
        gates = self._input_gates(flat)
        shape = (-1, self.num_codebooks, 4 * self.code_dim)
        return self._read(tf.reshape(gates, shape))

    def compose_codes(self, codebooks, subcodes):
        # Each codeword once, however many ids name it.
        gates = self._input_gates(codebooks)
        return self._read(gather_codewords(gates, subcodes))

    def compose_picks(self, codebooks, picks):
        # Picks of a codebook add up to one, and so take the bias once.
        gates = self._input_gates(codebooks)
        return self._read(pick_codewords(gates, picks))

    def _input_gates(self, codewords):
        return tf.matmul(codewords, self.kernel) + self.bias

    def _read(self, input_gates):
        """Runs over the second axis of what codewords give to the gates."""
        total = output = state = None
        for gates in tf.unstack(input_gates, axis=1):
            if output is not None:
                gates += tf.matmul(output, self.recurrent_kernel)
            write, forget, cell, read = tf.split(gates, 4, axis=1)
            cell = tf.sigmoid(write) * tf.tanh(cell)
            if state is not None:
                cell += tf.sigmoid(forget) * state
            state = cell
            output = tf.sigmoid(read) * tf.tanh(state)
            total = output if total is None else total + output
        if self.projection is None:
            return total
        return tf.matmul(total, self.projection)


def _forget_gates_open(shape, dtype=None):
    """As Keras: an LSTM remembers at first."""
    places = tf.range(shape[0]) // (shape[0] // 4)
    return tf.cast(tf.equal(places, 1), dtype or "float32")
