"""Bytes of one embedding layer."""

import dataclasses
import math

from keras_compembed.reports.fidelity import Fidelity


@dataclasses.dataclass(frozen=True)
class EmbeddingSize:
    """Bytes of one embedding layer, as stored and as other formats of it.

    One row of a `SizeReport`. A layer without codes has `num_codebooks` and
    `codebook_size` None, one without anchors `num_anchors` and
    `num_nonzeros`. Figures of tables in int8 and int4 count the values alone:
    scales and zero points come on top.

    Args:
        name: String, the layer's name, or its path where names repeat.
        input_dim: Integer, rows of the table.
        output_dim: Integer, columns of the table.
        num_codebooks: Optional integer, subcodes per row (M).
        codebook_size: Optional integer, codewords per codebook (K).
        num_anchors: Optional integer, rows of the anchors (A).
        num_nonzeros: Optional integer, non-zeros of the transform (T).
        stored_as: Optional string, what the rows of other layers are:
            `"int4 rank 16"`, or the name of the layer's class.
        num_values: Integer, numbers in the codebooks and in the weights that
            compose codewords; or non-zeros and numbers in the anchors, which
            the paper counts as parameters.
        code_bytes: Integer, codes as stored: whole bytes per row.
        codebook_bytes: Integer, codebooks as stored.
        offset_bytes: Integer, where rows of a sparsified transform begin.
        packed_offset_bytes: Integer, the same in a LiteRT file.
        column_bytes: Integer, the columns of its non-zeros.
        value_bytes: Integer, its non-zeros.
        anchor_bytes: Integer, anchors as stored.
        row_bytes: Integer, rounded rows as stored: whole bytes per row.
        scale_bytes: Integer, the scales of rounded rows, and their unit.
        projection_bytes: Integer, what rounded rows are multiplied by.
        weight_bytes: Integer, all weights of any other look-up layer.
        uncompressed_bytes: Integer, the table of a `keras.layers.Embedding`.
        fidelity: Optional `Fidelity` to the table it stands for.
    """

    name: str
    input_dim: int
    output_dim: int
    num_codebooks: int | None = None
    codebook_size: int | None = None
    num_anchors: int | None = None
    num_nonzeros: int | None = None
    stored_as: str | None = None
    num_values: int = 0
    code_bytes: int = 0
    codebook_bytes: int = 0
    offset_bytes: int = 0
    packed_offset_bytes: int = 0
    column_bytes: int = 0
    value_bytes: int = 0
    anchor_bytes: int = 0
    row_bytes: int = 0
    scale_bytes: int = 0
    projection_bytes: int = 0
    weight_bytes: int = 0
    uncompressed_bytes: int = 0
    fidelity: Fidelity | None = None

    @property
    def num_vectors(self):
        """Vectors kept: M * K codewords, anchors, or every row."""
        if self.num_anchors is not None:
            return self.num_anchors
        if self.num_codebooks is None:
            return self.input_dim
        return self.num_codebooks * self.codebook_size

    @property
    def transform_bytes(self):
        """The sparse rows as stored."""
        return self.offset_bytes + self.column_bytes + self.value_bytes

    @property
    def id_bytes(self):
        """What is stored for each id: codes, sparse rows or rounded rows."""
        return (
            self.code_bytes
            + self.transform_bytes
            + self.row_bytes
            + self.scale_bytes
        )

    @property
    def shared_bytes(self):
        """What all ids share: codebooks, anchors or a projection."""
        return self.codebook_bytes + self.anchor_bytes + self.projection_bytes

    @property
    def stored_bytes(self):
        """All that is stored for the layer."""
        return (
            self.id_bytes
            + self.shared_bytes
            + self.weight_bytes
            + self.uncompressed_bytes
        )

    @property
    def litert_bytes(self):
        """Sparse rows and anchors in a LiteRT file, or None without anchors.

        A dict from what `quantize` stands for, `"float32"`, `"float16"` and
        `"int8"`, to bytes.
        """
        if self.num_anchors is None:
            return None
        places = self.packed_offset_bytes + self.column_bytes
        return {
            name: places + size * self.num_values
            for name, size in (("float32", 4), ("float16", 2), ("int8", 1))
        }

    @property
    def table_bytes(self):
        """The uncompressed table in float32."""
        return 4 * self.input_dim * self.output_dim

    @property
    def table_int8_bytes(self):
        """The uncompressed table in int8."""
        return self.input_dim * self.output_dim

    @property
    def table_int4_bytes(self):
        """The uncompressed table in int4."""
        return -(-self.input_dim * self.output_dim // 2)

    @property
    def codebook_float16_bytes(self):
        """The codebooks in float16, or None without codes."""
        return 2 * self.num_values if self.num_codebooks else None

    @property
    def codebook_int8_bytes(self):
        """The codebooks in int8, or None without codes."""
        half = self.codebook_float16_bytes
        return half and half // 2

    @property
    def code_bits(self):
        """Code length, M * log2(K) bits per row, or None without codes."""
        if self.num_codebooks is None:
            return None
        return self.num_codebooks * math.log2(self.codebook_size)

    @property
    def exact_code_bytes(self):
        """The codes at exactly M * log2(K) bits per row, or None."""
        if self.num_codebooks is None:
            return None
        return self.input_dim * self.code_bits / 8

    @property
    def exact_bytes(self):
        """The paper's size: exact codes and float32 codebooks, or None."""
        if self.num_codebooks is None:
            return None
        return self.exact_code_bytes + 4 * self.num_values

    @property
    def ratio(self):
        """How many times smaller than the float32 table."""
        return self.table_bytes / self.stored_bytes

    @property
    def coding_schemes(self):
        """Ways of coding with as many vectors: Table 1 of the paper, or None.

        A dict of `"conventional"`, `"binary"` and `"compositional"`, each a
        dict of `num_vectors`, `vectors_per_embedding` (how many of them make
        up one embedding) and `code_bits`.
        """
        if self.num_codebooks is None:
            return None
        num_vectors = self.num_vectors
        half = num_vectors // 2 if num_vectors % 2 == 0 else num_vectors / 2
        columns = ("num_vectors", "vectors_per_embedding", "code_bits")
        rows = {
            "conventional": (self.input_dim, 1, None),
            "binary": (num_vectors, half, half),
            "compositional": (num_vectors, self.num_codebooks, self.code_bits),
        }
        return {
            scheme: dict(zip(columns, row, strict=True))
            for scheme, row in rows.items()
        }

    def to_dict(self):
        """All figures as a dict that `json` can write."""
        figures = dataclasses.asdict(self)
        fidelity = figures.pop("fidelity")
        for name in (
            "num_vectors",
            "transform_bytes",
            "id_bytes",
            "shared_bytes",
            "stored_bytes",
            "litert_bytes",
            "table_bytes",
            "table_int8_bytes",
            "table_int4_bytes",
            "codebook_float16_bytes",
            "codebook_int8_bytes",
            "code_bits",
            "exact_code_bytes",
            "exact_bytes",
            "ratio",
            "coding_schemes",
        ):
            figures[name] = getattr(self, name)
        return {**figures, "fidelity": fidelity}
