"""Compositions by name, and in units of a table."""

import functools

import keras
import tensorflow as tf

from keras_compembed.compositions.composition import Composition
from keras_compembed.compositions.composition import ConcatComposition
from keras_compembed.compositions.composition import LinearComposition
from keras_compembed.compositions.composition import LSTMComposition
from keras_compembed.compositions.composition import SumComposition
from keras_compembed.utils.validation import require

COMPOSITIONS = {
    "sum": SumComposition,
    "concat": ConcatComposition,
    "linear": LinearComposition,
    "lstm": LSTMComposition,
}


def get_composition(
    identifier, num_codebooks, codebook_size, output_dim, dtype="float32"
):
    """A new composition, with weights of its own."""
    composition = copy_composition(check_composition(identifier), dtype)
    composition.set_shape(num_codebooks, codebook_size, output_dim)
    if type(composition.unscaled()) not in COMPOSITIONS.values():
        composition.unscaled().check_vectors()
    return composition


def copy_composition(identifier, dtype):
    """A new composition, without a shape and so without weights."""
    if isinstance(identifier, str):
        return COMPOSITIONS[identifier](dtype=dtype)
    config = identifier.get_config() | {"dtype": dtype}
    return type(identifier).from_config(config)


def check_composition(identifier):
    """Returns the name of a composition, or a `Composition`."""
    if isinstance(identifier, str) and identifier in COMPOSITIONS:
        return identifier
    is_pair = isinstance(identifier, tuple) and len(identifier) == 2
    if is_pair and identifier[0] in COMPOSITIONS:
        name, code_dim = identifier
        identifier = COMPOSITIONS[name](code_dim)
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    require(
        isinstance(identifier, Composition),
        f"`composition` must be one of {list(COMPOSITIONS)}, a tuple of that "
        "and the width of codewords, or an instance.",
        composition=identifier,
    )
    return identifier


def is_same_composition(one, other):
    """Whether two identifiers name the same kind of composition."""
    return _kind(one) == _kind(other)


def _kind(identifier):
    identifier = check_composition(identifier)
    if isinstance(identifier, str):
        return identifier, None
    identifier = identifier.unscaled()
    config = identifier.get_config()
    names = {cls: name for name, cls in COMPOSITIONS.items()}
    name = names.get(type(identifier), type(identifier))
    return name, config.get("code_dim")


@keras.saving.register_keras_serializable(package="keras_compembed")
class ScaledComposition(Composition):
    """Another composition's vectors plus a row, times a number."""

    # `E(id) = scale * (composition(codewords) + offset)`. Outputs of an LSTM
    # are between -1 and 1: `KDCodeLearner` puts the table's mean row into
    # `offset` and its scale into `scale`, which is not trained.

    def __init__(self, composition, **kwargs):
        composition = check_composition(composition)
        super().__init__(**kwargs)
        self.composition = copy_composition(composition, self.variable_dtype)
        self.is_slow = self.composition.is_slow

    def set_shape(self, num_codebooks, codebook_size, output_dim):
        self.composition.set_shape(num_codebooks, codebook_size, output_dim)
        super().set_shape(num_codebooks, codebook_size, output_dim)
        self.code_dim = self.composition.code_dim

    def build(self, input_shape):
        add = functools.partial(self.add_weight, autocast=False)
        self.offset = add((self.output_dim,), "zeros", name="offset")
        self.scale = add((), "ones", trainable=False, name="scale")

    @property
    def is_linear(self):
        return self.composition.is_linear

    def unscaled(self):
        return self.composition.unscaled()

    @property
    def codebooks_shape(self):
        return self.composition.codebooks_shape

    def codewords(self, codebooks):
        return self.composition.codewords(codebooks)

    def call(self, codewords):
        return self._in_units(self.composition(codewords))

    def compose_codes(self, codebooks, subcodes):
        return self._in_units(
            self.composition.compose_codes(codebooks, subcodes)
        )

    def compose_picks(self, codebooks, picks):
        return self._in_units(self.composition.compose_picks(codebooks, picks))

    def sum_counts(self, codebooks, counts):
        sums = self.composition.sum_counts(codebooks, counts)
        # Each vector has the offset, and one codeword of the first codebook.
        times = tf.reduce_sum(counts[:, 0], axis=1, keepdims=True)
        return self._in_units(sums, times)

    def fold(self, codebooks):
        folded = self.composition.fold(codebooks)
        if folded is None:
            return None
        return self._in_units(folded, 1 / self.num_codebooks)

    def _in_units(self, vectors, part=1.0):
        offset = part * tf.convert_to_tensor(self.offset)
        return (vectors + offset) * tf.convert_to_tensor(self.scale)

    def get_config(self):
        config = super().get_config()
        config["composition"] = keras.saving.serialize_keras_object(
            self.composition
        )
        return config
