"""How a `CodeEmbedding` is written down for LiteRT.

Codes of 2 or 4 bits become tables of int2 or int4, which the runtime unpacks;
others become rows of bytes, unpacked by arithmetic. Only rows looked up are
unpacked: before the gather, the converter would fold it into the table.
"""

import numpy as np
import tensorflow as tf

from keras_compembed.codes.packing import bits_per_subcode
from keras_compembed.codes.packing import pack_codes
from keras_compembed.codes.packing import unpack_codes
from keras_compembed.compositions.concat_composition import ConcatComposition
from keras_compembed.compositions.linear_composition import LinearComposition
from keras_compembed.export.flatbuffer import CodeTable

# Oldest runtimes whose EMBEDDING_LOOKUP reads tables of so many bits.
PACKED_LOOKUP_RUNTIME = {2: (2, 21, 0), 4: (2, 18, 0)}
# Up to here a one-hot product is faster than gathered codewords, and takes
# less memory; more so where the runtime multiplies in int8.
_ONE_HOT_CODEBOOK_SIZES = {None: 16, "float16": 16, "int8": 32}
# Numbers in the largest tensor that is held while all rows are composed.
_CHUNK_ELEMENTS = 1 << 22
# Codewords gathered at once, beyond that size: a small multiple of the output,
# however many codebooks there are.
_GROUP = 8


def choose_bits(codebook_size, min_runtime=None):
    """Bits of the packed type that holds the codes, or None for plain bytes.

    Args:
        codebook_size: Integer from 2 to 65536.
        min_runtime: Optional tuple of integers, the oldest runtime to serve.
    """
    # A pair of one-bit subcodes is one two-bit subcode.
    bits = max(2, bits_per_subcode(codebook_size))
    needed = PACKED_LOOKUP_RUNTIME.get(bits)
    if needed is None or (min_runtime is not None and min_runtime < needed):
        return None
    return bits


class TracedLookup:
    """Stands in for `CodeEmbedding.embed` while a model is converted.

    `embed_all` and `score` take the places of the methods of these names.
    Rows are composed when the file runs, in chunks of a known shape.

    Args:
        layer: A built `CodeEmbedding`.
        min_runtime: Optional tuple of integers, the oldest runtime to serve.
        quantize: Same as in `export_litert`.

    Attributes:
        table: `CodeTable` to be found in the converted file.
    """

    def __init__(self, layer, min_runtime=None, quantize=None):
        composition = layer.composition
        packed = pack_codes(layer.codes, layer.codebook_size)
        codebooks = tf.cast(layer.codebooks.value, tf.float32)
        folded = composition.fold(codebooks)
        if isinstance(composition, LinearComposition):
            # The matrix stays where codebooks would grow by more than it.
            saved = composition.kernel.shape.num_elements()
            saved += codebooks.shape.num_elements()
            if folded.shape.num_elements() > saved:
                folded = None
        self._sums = folded is not None and not isinstance(
            composition, ConcatComposition
        )
        self._composition = composition
        if self._sums:
            codewords = folded.numpy()
        else:
            codewords = composition.codewords(codebooks).numpy()
        bits = choose_bits(layer.codebook_size, min_runtime)
        if bits is not None and bits_per_subcode(layer.codebook_size) == 1:
            if self._sums:
                codewords = _pair_codebooks(codewords)
            else:
                bits = None
        if bits is None:
            converted = packed
        else:
            # Padding included: the runtime misreads rows of broken bytes.
            columns = packed.shape[1] * 8 // bits
            codes = unpack_codes(packed, columns, 2**bits).astype("int8")
            codes -= 2 ** (bits - 1)
            converted = codes
            # Two's complement of a code less half its range: the top bit of
            # each field flipped.
            packed = packed ^ np.uint8({2: 0xAA, 4: 0x88}[bits])
        self._codewords = codewords
        self._one_hot = (
            self._sums
            and codewords.shape[1] <= _ONE_HOT_CODEBOOK_SIZES[quantize]
        )
        self.table = CodeTable(layer.path, converted, packed, bits)
        self._num_rows = layer.input_dim
        # One-hot vectors, or codewords gathered: more than a row has numbers.
        width = num_codebooks = codewords.shape[0]
        width *= codewords.shape[1] if self._one_hot else codewords.shape[2]
        if not self._sums:
            width *= 4
        elif not self._one_hot:
            width = min(num_codebooks, _GROUP) * codewords.shape[2]
        self._chunk = min(self._num_rows, max(1, _CHUNK_ELEMENTS // width))

    def __call__(self, ids):
        """Vectors `(ids, output_dim)` of a rank-1 tensor of ids."""
        subcodes = self._subcodes(tf.cast(ids, tf.int32))
        num_codebooks, codebook_size, width = self._codewords.shape
        flat = tf.constant(self._codewords.reshape(-1, width))
        if self._one_hot:
            one_hot = tf.one_hot(subcodes, codebook_size)
            return tf.matmul(tf.reshape(one_hot, (-1, flat.shape[0])), flat)
        places = subcodes + np.arange(num_codebooks) * codebook_size
        if not self._sums:
            return self._composition(tf.gather(flat, places))
        total = None
        for start in range(0, num_codebooks, _GROUP):
            part = tf.gather(flat, places[:, start : start + _GROUP])
            part = tf.reduce_sum(part, axis=1)
            total = part if total is None else total + part
        return total

    def embed_all(self, embed=None):
        """Vectors `(input_dim, output_dim)` of all ids.

        Args:
            embed: Optional function in place of a call.
        """
        chunks = self._chunks(_input_of_graph(), embed or self)
        return tf.concat(list(chunks), axis=0)

    def score(self, vectors):
        """Logits `(rows, input_dim)` of vectors `(rows, output_dim)`."""
        vectors = tf.cast(vectors, tf.float32)
        logits = [
            tf.matmul(vectors, chunk, transpose_b=True)
            for chunk in self._chunks(vectors, self)
        ]
        return tf.concat(logits, axis=-1)

    def _chunks(self, inputs, embed):
        """Yields the vectors of all ids, chunk by chunk.

        Args:
            inputs: A tensor that the converter does not know. It writes down
                what it can compute: all vectors, if it knows the ids.
            embed: Function from ids to vectors.
        """
        # Zero, whatever the inputs are.
        some = tf.reduce_max(tf.cast(inputs, tf.float32)) >= 0
        zero = tf.minimum(tf.cast(some, tf.int32), 0)
        # Of a shape that the runtime knows before it runs.
        offsets = tf.reshape(tf.range(zero, self._chunk + zero), [self._chunk])
        for start in range(0, self._num_rows, self._chunk):
            size = min(self._chunk, self._num_rows - start)
            yield embed(offsets[:size] + start)

    def _subcodes(self, ids):
        rows = tf.gather(self.table.converted, ids)
        num_codebooks, codebook_size, _ = self._codewords.shape
        if self.table.bits is None:
            bits = bits_per_subcode(codebook_size)
            return _read_bits(rows, num_codebooks, bits)
        subcodes = tf.cast(rows, tf.float32)[:, :num_codebooks]
        return tf.cast(subcodes + 2.0 ** (self.table.bits - 1), tf.int32)


def _input_of_graph():
    """The first input of the function that is traced."""
    graph = tf.compat.v1.get_default_graph()
    while hasattr(getattr(graph, "outer_graph", None), "inputs"):
        graph = graph.outer_graph
    return graph.inputs[0]


def _read_bits(rows, num_codebooks, bits):
    """Subcodes of packed rows, same as `codes.packing.unpack_rows`.

    By division and remainder, which LiteRT has, instead of shifts and masks,
    some of which it lacks.
    """
    if bits == 8:
        return tf.cast(rows, tf.int32)
    first_bit = np.arange(num_codebooks, dtype="int32") * bits
    byte, shift = first_bit // 8, first_bit % 8
    last_byte = (first_bit[-1] + bits - 1) // 8
    values = tf.cast(tf.gather(rows, byte, axis=1), tf.int32)
    for step in range(1, -(-int(shift.max() + bits) // 8)):
        # A subcode that ends at the last byte needs no byte after it: what
        # the clipped index brings is taken away below.
        above = tf.gather(rows, np.minimum(byte + step, last_byte), axis=1)
        values += tf.cast(above, tf.int32) * 256**step
    if shift.any():
        values = tf.math.floordiv(values, 2**shift)
    return tf.math.floormod(values, 2**bits)


def _pair_codebooks(codebooks):
    """Codebooks of two codewords, two by two, as codebooks of four."""
    if len(codebooks) % 2:
        codebooks = np.concatenate([codebooks, np.zeros_like(codebooks[:1])])
    low, high = codebooks[0::2], codebooks[1::2]
    pairs = high[:, :, None] + low[:, None, :]
    return pairs.reshape(len(low), 4, -1)
