"""Bytes of one embedding layer."""

import dataclasses
import math

from keras_compembed.reports.fidelity import Fidelity


@dataclasses.dataclass(frozen=True)
class EmbeddingSize:
    """Bytes of one embedding layer, as stored and as other formats of it."""

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
        """Sparse rows and anchors in a LiteRT file, or None without anchors."""
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
        """Codings with as many vectors: Table 1 of the paper."""
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
