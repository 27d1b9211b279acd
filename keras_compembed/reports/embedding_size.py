"""Bytes of one embedding layer."""

import dataclasses
import math

from keras_compembed.reports.fidelity import Fidelity

# What is stored for each id, and what all ids share.
_ID_PARTS = ("codes", "sparse rows", "rounded rows", "scales")
_SHARED_PARTS = ("codebooks", "anchors", "projection")


@dataclasses.dataclass(frozen=True)
class EmbeddingSize:
    """Bytes of one embedding layer: as stored, by part, and uncompressed."""

    name: str
    input_dim: int
    output_dim: int
    stored_as: str
    parts: dict
    num_values: int = 0
    num_codebooks: int | None = None
    codebook_size: int | None = None
    num_anchors: int | None = None
    num_nonzeros: int | None = None
    fidelity: Fidelity | None = None

    @property
    def id_bytes(self):
        """What is stored for each id."""
        return sum(self.parts.get(name, 0) for name in _ID_PARTS)

    @property
    def shared_bytes(self):
        """What all ids share: codebooks, anchors or a projection."""
        return sum(self.parts.get(name, 0) for name in _SHARED_PARTS)

    @property
    def stored_bytes(self):
        """All that is stored for the layer."""
        return sum(self.parts.values())

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
    def code_bits(self):
        """Code length, M * log2(K) bits per row, or None without codes."""
        if self.num_codebooks is None:
            return None
        return self.num_codebooks * math.log2(self.codebook_size)

    @property
    def exact_bytes(self):
        """The paper's size: exact codes and float32 codebooks, or None."""
        if self.num_codebooks is None:
            return None
        return self.input_dim * self.code_bits / 8 + 4 * self.num_values

    @property
    def ratio(self):
        """How many times smaller than the float32 table."""
        return self.table_bytes / self.stored_bytes

    def to_dict(self):
        """All figures as a dict that `json` can write."""
        figures = dataclasses.asdict(self)
        names = "id_bytes shared_bytes stored_bytes table_bytes "
        names += "table_int8_bytes table_int4_bytes code_bits exact_bytes ratio"
        return figures | {name: getattr(self, name) for name in names.split()}
