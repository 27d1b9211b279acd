"""Compositions by name."""

import keras

from keras_compembed.compositions.composition import Composition
from keras_compembed.compositions.concat_composition import ConcatComposition
from keras_compembed.compositions.linear_composition import LinearComposition
from keras_compembed.compositions.lstm_composition import LSTMComposition
from keras_compembed.compositions.sum_composition import SumComposition
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
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    require(
        isinstance(identifier, Composition),
        f"`composition` must be one of {list(COMPOSITIONS)}, or an instance.",
        composition=identifier,
    )
    return identifier


def is_same_composition(one, other):
    """Whether two identifiers name the same kind of composition."""
    return _kind(one) == _kind(other)


def _kind(identifier):
    if isinstance(identifier, str):
        return identifier, None
    identifier = identifier.unscaled()
    config = identifier.get_config()
    names = {cls: name for name, cls in COMPOSITIONS.items()}
    name = names.get(type(identifier), type(identifier))
    return name, config.get("code_dim")
