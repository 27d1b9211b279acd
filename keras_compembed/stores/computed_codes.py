"""A store of codebooks alone; codes are computed from ids."""

import math

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.codes.computed import LARGEST_HASHED
from keras_compembed.codes.computed import LARGEST_ID
from keras_compembed.codes.computed import digits_of_ids
from keras_compembed.codes.computed import get_computed
from keras_compembed.codes.computed import hash_ids
from keras_compembed.compositions.composition import ConcatComposition
from keras_compembed.compositions.composition import check_composition
from keras_compembed.compositions.composition import get_composition
from keras_compembed.litert.litert_form import LiteRTForm
from keras_compembed.stores.codes import codebook_arguments
from keras_compembed.stores.codes import get_codebooks
from keras_compembed.stores.codes import reset_codebooks
from keras_compembed.stores.store import TableStore
from keras_compembed.utils.files import count_bytes
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class ComputedCodes(TableStore):
    """Codebooks of any sizes, for codes that are digits or hashes of ids."""

    settings = ("num_codebooks", "codebook_size", "composition")
    learn_codes = None

    def __init__(
        self,
        input_dim,
        output_dim,
        num_codebooks,
        codebook_size,
        composition="sum",
        codes="digits",
        codebooks="uniform",
        dtype=None,
    ):
        super().__init__(input_dim, output_dim)
        check_positive_int("input_dim", input_dim, maximum=LARGEST_ID)
        self._kind, self._seed = get_computed(codes)
        sizes = _check_sizes(num_codebooks, codebook_size, self._kind)
        self._sizes, self.num_codebooks = sizes, len(sizes)
        is_int = not isinstance(codebook_size, (tuple, list))
        self.codebook_size = sizes[0] if is_int else sizes
        require(
            self._kind != "digits" or math.prod(sizes) >= input_dim,
            "`codebook_size` must be sizes with a product of at least "
            f"`input_dim`={input_dim} for codes='digits'.",
            codebook_size=codebook_size,
            num_codebooks=num_codebooks,
        )
        self.starts = np.cumsum([0, *sizes[:-1]]).astype("int32")
        composition = check_composition(composition)
        self.dtype = dtype or getattr(composition, "variable_dtype", "float32")
        self.composition = self.new_composition(composition)
        width = self.composition.code_dim
        if isinstance(self.composition.unscaled(), ConcatComposition):
            width = -(-output_dim // len(sizes))
        self.shape = sum(sizes), width
        self.spec, self._first = get_codebooks(codebooks, self.shape)

    def new_composition(self, identifier):
        shape = self.num_codebooks, max(self._sizes), self.output_dim
        return get_composition(identifier, *shape, dtype=self.dtype)

    @property
    def starts_given(self):
        """Same as in `Codes`."""
        return self._first is not None

    @property
    def arguments(self):
        """Arguments of the variable of codebooks."""
        rest = self.spec, self._first, self.composition, self._sizes[-1]
        return codebook_arguments(*rest)

    def make_variables(self, add):
        self.codebooks = add("codebooks", shape=self.shape, **self.arguments)
        self._first = None

    def parts(self):
        return {"composition": self.composition}

    def subcodes(self, ids):
        """Subcodes, int32 `(ids, num_codebooks)`."""
        if self._kind == "digits":
            return digits_of_ids(ids, self._sizes)
        return hash_ids(ids, self._sizes, self._seed)

    @property
    def codes(self):
        """Subcodes of all ids, an array `(input_dim, num_codebooks)`."""
        dtype = np.min_scalar_type(max(self._sizes) - 1)
        return self.subcodes(tf.range(self.input_dim)).numpy().astype(dtype)

    def compose(self, ids, read):
        places = self.subcodes(self.known(ids)) + self.starts
        codewords = read(self.codebooks, tf.reshape(places, (-1,)))
        shape = -1, self.num_codebooks, self.shape[1]
        return self.composition(tf.reshape(codewords, shape))

    def reset_codebooks(self):
        """Reinitializes codebooks and composition."""
        reset_codebooks(self)

    def sizes(self):
        weights = self.composition.weights
        number, size = math.prod(self.shape), tf.as_dtype(self.dtype).size
        return {
            "stored_as": f"{self.shape[0]} codewords, {self._kind}",
            "parts": {"codebooks": number * size + count_bytes(weights)},
            "num_values": number + sum(math.prod(x.shape) for x in weights),
        }

    def litert(self, options, path):
        return _ComputedForm(self, options)

    def get_config(self):
        config, size = super().get_config(), self.codebook_size
        is_tuple = isinstance(size, tuple)
        config["codebook_size"] = list(size) if is_tuple else size
        is_hashed = self._kind == "hashed"
        config["codes"] = ["hashed", self._seed] if is_hashed else self._kind
        serialize = keras.saving.serialize_keras_object
        return {**config, "codebooks": serialize(self.spec)}


class _ComputedForm(LiteRTForm):
    """Codebooks in a LiteRT file, and ops that compute codes."""

    def __init__(self, store, options):
        super().__init__(store, options)
        codebooks = keras.ops.convert_to_numpy(store.codebooks)
        codebooks = np.split(codebooks.astype("float32"), store.starts[1:])
        # One matrix each, as int8 scales may differ.
        self._codebooks = [options.note(codewords) for codewords in codebooks]

    def look_up(self, ids):
        subcodes = self.store.subcodes(self.store.known(ids))
        subcodes = tf.unstack(subcodes, axis=1)
        codewords = map(tf.gather, self._codebooks, subcodes)
        return self.store.composition(tf.stack([*codewords], axis=1))


def _check_sizes(num_codebooks, codebook_size, kind):
    """The size of each codebook."""
    sizes = codebook_size
    if not isinstance(sizes, (tuple, list)):
        sizes = check_positive_int("num_codebooks", num_codebooks) * [sizes]
    require(
        num_codebooks == len(sizes) > 0,
        "`num_codebooks` must be None or the number of sizes in "
        "`codebook_size`.",
        num_codebooks=num_codebooks,
        codebook_size=codebook_size,
    )
    largest = LARGEST_HASHED if kind == "hashed" else LARGEST_ID
    return tuple(
        check_positive_int("codebook_size", size, 2, largest) for size in sizes
    )
