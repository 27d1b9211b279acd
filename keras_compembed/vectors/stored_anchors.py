"""Rows stored as sparse combinations of anchors."""

import numpy as np

from keras_compembed.layers.ant_embedding import ANTEmbedding
from keras_compembed.transforms.fixed_rows import FixedRows
from keras_compembed.transforms.l1 import L1
from keras_compembed.transforms.sparse_transform import SparseTransform
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.vectors.stored_rows import StoredRows
from keras_compembed.vectors.stored_rows import check_arrays
from keras_compembed.vectors.stored_rows import check_shared

_HIGHEST = 127


class StoredAnchors(StoredRows):
    """Rows of an `ANTEmbedding`."""

    kind = "weights"
    shared_kind = "anchors"
    layer = ANTEmbedding

    @classmethod
    def check(cls, settings, rows, shared, count):
        columns = check_positive_int("columns", settings["columns"])
        num_anchors = check_positive_int("num_anchors", settings["num_anchors"])
        wanted = {
            "lengths": ("uint8 uint16 uint32", (count,)),
            "anchors": ("uint8 uint16 uint32", (None,)),
            "values": ("int8", (None,)),
        }
        check_arrays(rows, wanted)
        check_shared(shared, {"vectors": (num_anchors, columns)})
        total = rows["lengths"].sum(dtype="int64")
        if not total == len(rows["anchors"]) == len(rows["values"]):
            raise ValueError("its rows have other numbers than it holds")
        if rows["anchors"].max(initial=0) >= num_anchors:
            raise ValueError("its rows name anchors that it does not hold")

    @staticmethod
    def read_settings(layer):
        return {"columns": layer.output_dim, "num_anchors": layer.num_anchors}

    @staticmethod
    def read_rows(layer):
        transform, scales = _read_transform(layer)
        lengths = transform.row_lengths
        values = transform.values / scales[transform.columns]
        return {
            "lengths": lengths.astype(np.min_scalar_type(lengths.max())),
            "anchors": transform.columns,
            "values": np.rint(values).astype("int8"),
        }

    @staticmethod
    def read_shared(layer):
        _, scales = _read_transform(layer)
        # Rows weigh them as 1 at most.
        scales = scales * _HIGHEST
        return {"vectors": np.asarray(layer.anchors) * scales[:, None]}

    def start(self):
        self._lengths = self.rows["lengths"].astype("int64")
        self._offsets = np.concatenate([[0], np.cumsum(self._lengths)])

    @property
    def shape(self):
        return len(self.rows["lengths"]), self.settings["columns"]

    def _transform(self):
        return SparseTransform(
            self._offsets,
            self.rows["anchors"],
            self.rows["values"] / np.float32(_HIGHEST),
            self.settings["num_anchors"],
        )

    @property
    def name(self):
        mean = len(self.rows["values"]) / len(self.rows["lengths"])
        return f"{self.settings['num_anchors']} anchors, {mean:.3g} a row"

    def make_layer(self, **kwargs):
        transform = self._transform()
        layer = ANTEmbedding(
            *self.shape,
            num_anchors=self.settings["num_anchors"],
            l1=L1(0, non_negative=False),
            storage=FixedRows.for_transform(transform),
            **kwargs,
        )
        layer.build()
        layer.anchors.assign(self.floats["vectors"])
        layer.assign_transform(transform)
        return layer

    def read(self, ids):
        part = self.take(self.rows, ids)
        rows = np.repeat(np.arange(len(part["lengths"])), part["lengths"])
        shape = len(part["lengths"]), self.settings["num_anchors"]
        weights = np.zeros(shape, "float32")
        weights[rows, part["anchors"]] = part["values"]
        return weights / np.float32(_HIGHEST) @ self.floats["vectors"]

    def scores(self, query):
        weighed = self.floats["vectors"] @ query / _HIGHEST
        products = self.rows["values"] * weighed[self.rows["anchors"]]
        sums = np.concatenate([[0], np.cumsum(products, dtype="float64")])
        return np.diff(sums[self._offsets]).astype("float32")

    @classmethod
    def take(cls, rows, ids):
        lengths = rows["lengths"].astype("int64")
        starts = (np.cumsum(lengths) - lengths)[ids]
        taken = lengths[ids]
        before = np.cumsum(taken) - taken
        places = np.arange(taken.sum()) + np.repeat(starts - before, taken)
        return {
            "lengths": rows["lengths"][ids],
            "anchors": rows["anchors"][places],
            "values": rows["values"][places],
        }


def _read_transform(layer):
    """A layer's transform, and a scale for each anchor."""
    if layer.activation == "softmax":
        raise ValueError(
            "Rows must weigh anchors as they are to be stored. Received: the "
            f"layer {layer.name!r} with activation='softmax'."
        )
    transform = layer.get_transform()
    highest = np.zeros(layer.num_anchors, "float32")
    np.maximum.at(highest, transform.columns, np.abs(transform.values))
    return transform, np.where(highest > 0, highest, 1) / _HIGHEST
