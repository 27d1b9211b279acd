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
from keras_compembed.stores.store import check_layer
from keras_compembed.stores.store import get_layer
from keras_compembed.stores.store import read_layer
from keras_compembed.stores.store import stored_bytes
from keras_compembed.utils.files import count_bytes
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class ComputedCodes(TableStore):
    """Codebooks of any sizes, for codes that are digits or hashes of ids."""

    settings = ("num_codebooks", "codebook_size", "composition")
    attributes = ("last_codebook",)
    learn_codes = last_codebook = None

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
        codebooks = get_layer(codebooks)
        if isinstance(codebooks, keras.layers.Layer):
            rows = (sizes[-1], width)
            check_layer("codebooks", codebooks, rows, "the last codebook")
            require(
                len(sizes) > 1,
                "`codebook_size` must have several sizes if `codebooks` is a "
                "layer.",
                codebook_size=codebook_size,
            )
            self.last_codebook, codebooks = codebooks, "uniform"
            self.shape = sum(sizes[:-1]), width
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
        num_last = self._sizes[-1] if self.last_codebook is None else 0
        rest = self.spec, self._first, self.composition, num_last
        return codebook_arguments(*rest)

    def make_variables(self, add):
        self.codebooks = add("codebooks", shape=self.shape, **self.arguments)
        self._first = None
        if self.last_codebook is not None:
            self.last_codebook.build()

    def parts(self):
        parts = {"composition": self.composition}
        if self.last_codebook is not None:
            parts["last_codebook"] = self.last_codebook
        return parts

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
        subcodes = self.subcodes(self.known(ids))
        number = self.num_codebooks - (self.last_codebook is not None)
        places = subcodes[:, :number] + self.starts[:number]
        codewords = read(self.codebooks, tf.reshape(places, (-1,)))
        codewords = tf.reshape(codewords, (-1, number, self.shape[1]))
        if self.last_codebook is not None:
            last = read_layer(self.last_codebook, subcodes[:, -1], read)
            last = tf.cast(tf.expand_dims(last, 1), codewords.dtype)
            codewords = tf.concat([codewords, last], axis=1)
        return self.composition(codewords)

    def reset_codebooks(self):
        """Reinitializes codebooks and composition."""
        require(
            self.last_codebook is None,
            "`reset_codebooks` must not be called on a layer with a layer of "
            "`codebooks`.",
            codebooks=self.last_codebook,
        )
        reset_codebooks(self)

    def sizes(self):
        weights = self.composition.weights
        number, size = math.prod(self.shape), tf.as_dtype(self.dtype).size
        total = number * size + count_bytes(weights)
        if self.last_codebook is not None:
            total += stored_bytes(self.last_codebook)
            number += self._sizes[-1] * self.shape[1]
        return {
            "stored_as": f"{sum(self._sizes)} codewords, {self._kind}",
            "parts": {"codebooks": total},
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
        return {
            **config,
            "codebooks": serialize(self.last_codebook or self.spec),
        }


class _ComputedForm(LiteRTForm):
    """Codebooks in a LiteRT file, and ops that compute codes."""

    def __init__(self, store, options):
        super().__init__(store, options)
        codebooks = keras.ops.convert_to_numpy(store.codebooks)
        # Without the last if it is a layer.
        starts = [x for x in store.starts[1:] if x < len(codebooks)]
        codebooks = np.split(codebooks.astype("float32"), starts)
        # One matrix each, as int8 scales may differ.
        self._codebooks = [options.note(codewords) for codewords in codebooks]

    def look_up(self, ids):
        subcodes = self.store.subcodes(self.store.known(ids))
        subcodes = tf.unstack(subcodes, axis=1)
        # The last codebook may be a layer.
        codewords = [*map(tf.gather, self._codebooks, subcodes)]
        if self.store.last_codebook is not None:
            codewords.append(self.store.last_codebook.embed(subcodes[-1]))
        return self.store.composition(tf.stack(codewords, axis=1))


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
