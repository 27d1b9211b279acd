"""A store of rows as sparse combinations of anchors."""

import copy
import functools
import types

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.anchors.anchor_initializer import Mixed
from keras_compembed.anchors.anchor_initializer import get_anchor_initializer
from keras_compembed.anchors.anchor_initializer import without_data
from keras_compembed.anchors.l1 import L1
from keras_compembed.anchors.l1 import get_l1
from keras_compembed.anchors.l1 import proximal_step
from keras_compembed.anchors.l1 import separation
from keras_compembed.anchors.relations import Relations
from keras_compembed.anchors.sparse_coding import sparse_code
from keras_compembed.anchors.sparse_rows import FixedRows
from keras_compembed.anchors.sparse_transform import SparseTransform
from keras_compembed.anchors.transform import Mixture
from keras_compembed.anchors.transform import Transform
from keras_compembed.anchors.transform_rows import FreeEntries
from keras_compembed.anchors.transform_rows import TransformStart
from keras_compembed.litert.compressed_rows import CompressedRows
from keras_compembed.litert.compressed_rows import PackedOffsets
from keras_compembed.litert.compressed_rows import dense_rows
from keras_compembed.litert.compressed_rows import round_values
from keras_compembed.litert.litert_form import LiteRTForm
from keras_compembed.litert.litert_form import RowChunks
from keras_compembed.litert.litert_form import join_weights
from keras_compembed.litert.litert_form import length_of
from keras_compembed.litert.litert_form import number_groups
from keras_compembed.litert.litert_form import top_of_chunks
from keras_compembed.litert.litert_form import unflatten
from keras_compembed.optimizers.device_rows import unique_ids
from keras_compembed.stores.row_arrays import RowArrays
from keras_compembed.stores.row_arrays import check_arrays
from keras_compembed.stores.row_arrays import check_shared
from keras_compembed.stores.store import Store
from keras_compembed.stores.store import WeightSpec
from keras_compembed.utils.files import count_bytes
from keras_compembed.utils.files import count_litert_bytes
from keras_compembed.utils.saving import get_settings
from keras_compembed.utils.tensor_ops import repeat_rows
from keras_compembed.utils.tensor_ops import weighted_sums
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require

_OF_TRANSFORM = "offsets", "columns", "values"
_HIGHEST = 127
_VALUE_BYTES = {None: 4, "float16": 2, "int8": 1, "int8_codebooks": 4}
# In LiteRT, dense rows times all anchors are faster than sums of gathered
# anchors, up to these numbers of anchors: in total, and for each number or slot
# that is read.
_DENSE_ANCHORS = 128
_DENSE_ANCHORS_PER_NUMBER = 48
_DENSE_ANCHORS_PER_SLOT = 16


@keras.saving.register_keras_serializable(package="keras_compembed")
class Anchors(Store):
    """A sparse transform T times the anchors A."""

    kind = "weights"
    second_table = None
    settings = ("num_anchors",)
    attributes = (
        "anchor_ids segments storage mixture activation softmax_rows relations"
    ).split()

    def __init__(
        self,
        input_dim,
        output_dim,
        num_anchors=100,
        anchors="dynamic",
        transform=None,
        l1=1e-5,
        relations=None,
        mask_zero=False,
    ):
        super().__init__(input_dim, output_dim)
        self.num_anchors = check_positive_int(
            "num_anchors", num_anchors, maximum=input_dim
        )
        shape = self.input_dim, self.num_anchors
        self._transform = get_settings(Transform, transform).shaped(*shape)
        self.storage = self._transform.storage
        self.mixture = self._transform.mixture
        self.softmax_rows = self._transform.softmax_rows
        self.activation = self.mixture.activation
        self.l1 = get_l1(l1)
        require(
            not self.l1.target_nonzeros
            or self.activation not in ("sparsemax", "entmax"),
            "`target_nonzeros` must be None with 'sparsemax' and 'entmax'.",
            target_nonzeros=self.l1.target_nonzeros,
        )
        parts = get_settings(WeightSpec, anchors).arguments
        initializer = get_anchor_initializer(
            parts["initializer"], self.mixture.num_sets
        )
        self._spec = WeightSpec(**parts | {"initializer": initializer})
        self.segments = initializer.sizes(self.num_anchors)
        self.relations = _get_relations(relations, input_dim, initializer)
        self.anchor_ids = initializer.choose(*shape)
        weight = self.l1.negative_weight
        require(
            relations is None or weight or (self.anchor_ids >= 0).any(),
            "`relations` need an anchor initializer that ties anchors to ids, "
            "or a `negative_weight`; otherwise they have no effect.",
            negative_weight=weight,
        )
        self.mask_zero = mask_zero

    def make_variables(self, add):
        self.anchors = add(
            "anchors",
            shape=(self.num_anchors, self.output_dim),
            **self._spec.arguments,
        )
        self.l1_value = add(
            "l1",
            shape=(),
            initializer=keras.initializers.Constant(self.l1.l1),
            dtype="float32",
            trainable=False,
        )
        start = TransformStart(
            self.anchor_ids, self.l1.non_negative, self._transform.initializer
        )
        free = FreeEntries(self.relations, self.anchor_ids)
        rows = self.storage
        step = functools.partial(
            proximal_step, rows, self.l1, self.l1_value, self.anchors
        )

        def add_rows(name, trainable, **kwargs):
            if trainable:
                # Proximal steps for trained rows.
                kwargs |= {"after_step": step}
                kwargs |= {"regularizer": self._transform.regularizer}
                return add(name, **kwargs)
            return add(name, trainable=False, **kwargs)

        rows.build(add_rows, self.dtype, start, self.l1, self.l1_value, free)

    def read(self, ids, training=False, counts=None):
        rows, places = self._read_rows(ids, training)
        return repeat_rows(self._compose(rows), places)

    def _read_rows(self, ids, training):
        different, places, room = unique_ids(ids, self.input_dim)
        rows = self.storage.read(different, room, training)
        weight = self.l1.negative_weight
        if training and weight > 0:
            loss = separation(
                different, rows, weight, self.relations, self.mask_zero
            )
            self.losses = (loss,)
        return rows, places

    def _compose(self, rows):
        weights = self.mixture(rows, self.segments)
        anchors = tf.convert_to_tensor(self.anchors.value)
        return tf.matmul(tf.cast(weights, anchors.dtype), anchors)

    def read_all(self):
        rows = self.storage
        if not tf.executing_eagerly():
            return self._compose(rows.read_all())
        # In parts, to save memory.
        parts = ((tf.range(*part), part[1] - part[0]) for part in rows.chunks())
        return tf.concat([self._compose(rows.read(*x)) for x in parts], axis=0)

    def sum_rows(self, ids, weights, training=False, counts=None):
        """Weighted sums: weights are summed before they multiply anchors."""
        rows, places = self._read_rows(tf.reshape(ids, (-1,)), training)
        mixed = repeat_rows(self.mixture(rows, self.segments), places)
        anchors = tf.cast(self.anchors.value, weights.dtype)
        return tf.matmul(weighted_sums(mixed, weights), anchors)

    def score(self, vectors):
        """Products `(vectors, input_dim)`, `(h A') T'`, without the table."""
        anchors = tf.cast(self.anchors.value, vectors.dtype)
        scores = tf.matmul(vectors, anchors, transpose_b=True)
        if self.softmax_rows is not None:
            return self.storage.project(scores, self.softmax_rows)
        weights = self.mixture(self.storage.read_all(), self.segments)
        weights = tf.cast(weights, scores.dtype)
        return tf.matmul(scores, weights, transpose_b=True)

    def get_transform(self):
        """The non-zeros of T, after the activation if any."""
        rows = self.storage
        if self.activation in (None, "softmax"):
            transform = rows.to_sparse().without_zeros()
        else:
            dense = (tf.constant(rows.rows(*part)) for part in rows.chunks())
            parts = (self.mixture(x, self.segments).numpy() for x in dense)
            transform = SparseTransform.from_parts(parts, self.num_anchors)
        self._check_finite(transform)
        return transform

    def assign_transform(self, transform):
        """Sets T to a `SparseTransform` or an array."""
        if not isinstance(transform, SparseTransform):
            part = check_table(transform, "transform")
            transform = SparseTransform.from_parts([part], part.shape[1])
        shape = transform.num_rows, transform.num_columns
        wanted = self.input_dim, self.num_anchors
        require(
            shape == wanted,
            f"`transform` must have shape {wanted}.",
            shape=shape,
        )
        self.storage.load(transform)

    @property
    def _owner(self):
        """Name of the layer, for messages."""
        return self.anchors.path.split("/")[-2]

    def _check_finite(self, transform):
        parts = {"anchors": self.anchors.numpy(), "transform": transform.values}
        bad = [name for name, x in parts.items() if not np.isfinite(x).all()]
        require(
            not bad,
            f"Weights of the layer {self._owner!r} must be finite. NaN or "
            f"infinity in {' and '.join(bad)}: lower the learning rate.",
            bad=bad,
        )

    def save(self, file):
        """Adds the state for a `.keras` file to a dict of arrays."""
        self.storage.settle()
        transform = self.storage.to_sparse()
        self._check_finite(transform)
        file["anchors"] = self.anchors.numpy()
        file["l1"] = self.l1_value.numpy()
        arrays = {x: getattr(transform, x) for x in _OF_TRANSFORM}
        for name, value in (arrays | self.storage.state()).items():
            file[name] = value

    def restore(self, file):
        """Restores the state that `save` wrote."""
        arrays = [np.asarray(file[name]) for name in _OF_TRANSFORM]
        # Raises before it sets anything if shapes differ.
        self.assign_transform(SparseTransform(*arrays, self.num_anchors))
        self.anchors.assign(file["anchors"])
        l1 = np.asarray(file["l1"])
        self.l1_value.assign(l1)
        # The config has the first value of an adapted weight.
        if not self.l1.target_nonzeros and l1 != np.float32(self.l1.l1):
            self.l1.l1 = float(l1)
        self.storage.load_state(file)

    def arrays(self):
        if self.activation == "softmax":
            raise ValueError(
                "Rows of a layer with activation='softmax' cannot be stored. "
                f"Received: the layer {self._owner!r}."
            )
        transform = self.get_transform()
        highest = np.zeros(self.num_anchors, "float32")
        np.maximum.at(highest, transform.columns, np.abs(transform.values))
        scales = np.where(highest > 0, highest, 1) / _HIGHEST
        settings = {"columns": self.output_dim, "num_anchors": self.num_anchors}
        # Weights in rows are at most 1.
        vectors = np.asarray(self.anchors) * (scales * _HIGHEST)[:, None]
        rows = _round(transform, scales)
        return AnchorRows(settings, rows, {"vectors": vectors})

    def load(self, arrays):
        """Takes `AnchorRows`, or arrays of `stripped` or `grown`."""
        self.anchors.assign(arrays.anchors)
        self.l1_value.assign(arrays.l1)
        self.storage.load(arrays.transform)

    def _exact(self, transform):
        """Arrays for `load`, with unrounded floats of T."""
        return types.SimpleNamespace(
            anchors=self.anchors, l1=self.l1_value, transform=transform
        )

    def stripped(self, max_nonzeros=None, trainable=False):
        """A sparse T with fixed places of non-zeros."""
        if max_nonzeros is None:
            max_nonzeros = self.l1.target_nonzeros
        transform = self.get_transform()
        if max_nonzeros is not None:
            transform = transform.keep_largest(max_nonzeros)
        changes = {"storage": FixedRows.for_transform(transform, trainable)}
        if self.activation != "softmax":
            changes["mixture"] = Mixture(self.mixture.num_sets)
        settings = self._transform.changed(**changes)
        return {"transform": settings}, self._exact(transform)

    def grown(self, vectors):
        fixed = isinstance(self.storage, FixedRows)
        require(
            self.activation is None,
            "To grow, rows of T must be plain weights, without activation.",
            layer=self._owner,
            activation=self.activation,
        )
        require(
            self.relations is None or fixed and not self.l1.negative_weight,
            "To grow, rows of T must have no relations.",
            layer=self._owner,
        )
        room = getattr(self.storage, "max_nonzeros", self.num_anchors)
        anchors = keras.ops.convert_to_numpy(self.anchors).astype("float32")
        limits = room, self.l1.non_negative
        transform = self.storage.to_sparse()
        transform = _append_rows(transform, vectors, anchors, *limits)
        changes = {"input_dim": transform.num_rows}
        if fixed:
            rows = FixedRows.for_transform(transform, self.storage.trainable)
            changes["transform"] = self._transform.changed(storage=rows)
        return changes, self._exact(transform)

    def sizes(self):
        if not self.variables:
            return None
        transform = self.get_transform()
        rows = sum(getattr(transform, name).nbytes for name in _OF_TRANSFORM)
        return {
            "stored_as": f"{self.num_anchors} anchors",
            "parts": {
                "sparse rows": rows,
                "anchors": count_bytes([self.anchors]),
            },
            "num_anchors": self.num_anchors,
            "num_nonzeros": transform.nnz,
            "num_values": transform.nnz + self.num_anchors * self.output_dim,
        }

    def litert(self, options, path):
        return _AnchorsForm(self, options)

    def get_config(self):
        shape = self.input_dim, self.num_anchors, self.output_dim
        spec = self._spec.arguments
        spec["initializer"] = without_data(spec["initializer"], *shape)
        # Relations are for training only.
        trained = not isinstance(self.storage, FixedRows)
        config = {
            "anchors": WeightSpec(**spec),
            "transform": self._transform,
            "l1": self.l1,
            "relations": self.relations if trained else None,
            "mask_zero": self.mask_zero,
        }
        serialize = keras.saving.serialize_keras_object
        parts = {name: serialize(part) for name, part in config.items()}
        return {**super().get_config(), **parts}


class AnchorRows(RowArrays):
    """Anchors and their weights as plain arrays."""

    kind = Anchors.kind
    shared_kind = "anchors"
    # The `l1` of a store with these rows.
    l1 = 0

    @classmethod
    def check(cls, settings, rows, shared, count):
        """Raises unless arrays of a file are valid."""
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
            raise ValueError("its row lengths do not match its weights")
        if rows["anchors"].max(initial=0) >= num_anchors:
            raise ValueError("its rows use anchors that do not exist")

    def start(self):
        self.anchors = self.floats["vectors"]
        self._lengths = self.rows["lengths"].astype("int64")
        self._offsets = np.concatenate([[0], np.cumsum(self._lengths)])

    @property
    def shape(self):
        return len(self._lengths), self.settings["columns"]

    @property
    def transform(self):
        return SparseTransform(
            self._offsets,
            self.rows["anchors"],
            self.rows["values"] / np.float32(_HIGHEST),
            self.settings["num_anchors"],
        )

    @property
    def name(self):
        mean = len(self.rows["values"]) / len(self._lengths)
        return f"{self.settings['num_anchors']} anchors, {mean:.3g} a row"

    def make_store(self):
        return Anchors(
            *self.shape,
            self.settings["num_anchors"],
            transform=FixedRows.for_transform(self.transform),
            l1=L1(0, non_negative=False),
        )

    def with_vectors(self, vectors):
        limits = len(self.anchors), False
        transform = _append_rows(self.transform, vectors, self.anchors, *limits)
        scales = np.ones(len(self.anchors), "float32") / _HIGHEST
        return self.with_rows(_round(transform.without_zeros(), scales))

    def read(self, ids):
        part = self.take(ids)
        rows = np.repeat(np.arange(len(part["lengths"])), part["lengths"])
        shape = len(part["lengths"]), self.settings["num_anchors"]
        weights = np.zeros(shape, "float32")
        weights[rows, part["anchors"]] = part["values"]
        return weights / np.float32(_HIGHEST) @ self.anchors

    def scores(self, query):
        weighed = self.anchors @ query / _HIGHEST
        products = self.rows["values"] * weighed[self.rows["anchors"]]
        sums = np.concatenate([[0], np.cumsum(products, dtype="float64")])
        return np.diff(sums[self._offsets]).astype("float32")

    def take(self, ids):
        taken = self._lengths[ids]
        before = np.cumsum(taken) - taken
        places = np.repeat(self._offsets[:-1][ids] - before, taken)
        places += np.arange(len(places))
        return {
            "lengths": self.rows["lengths"][ids],
            "anchors": self.rows["anchors"][places],
            "values": self.rows["values"][places],
        }


class _AnchorsForm(LiteRTForm):
    """The non-zeros of T, and the anchors in use, in a LiteRT file."""

    def __init__(self, store, options):
        super().__init__(store, options)
        transform = store.get_transform()
        anchors = keras.ops.convert_to_numpy(store.anchors).astype("float64")
        values = transform.values.astype("float64")
        self.bias = None
        if store.activation == "softmax":
            values, anchors, bias = softmax_as_linear(
                transform, anchors, store.segments
            )
            self.bias = bias.astype("float32")
        # Leave out unused anchors.
        used = np.unique(transform.columns)
        columns = np.searchsorted(used, transform.columns)
        anchors = anchors[used]
        if not len(used):
            anchors = np.zeros((1, store.output_dim))
        columns = np.append(columns, 0)
        values, scales, step = round_values(
            np.append(values, 0), columns, len(anchors), options.quantize
        )
        self.rows = CompressedRows(
            PackedOffsets(transform.offsets),
            transform.row_lengths,
            columns,
            values,
            len(anchors),
            step,
        )
        if scales is not None:
            anchors = anchors * scales[:, None]
        self.anchors = options.note(anchors.astype("float32"))
        most = _DENSE_ANCHORS_PER_NUMBER * self.rows.longest
        self.rows.has_windows |= len(anchors) > most
        self.chunks = RowChunks(
            store.input_dim, max(store.output_dim, store.num_anchors)
        )
        self.has_features = self.can_fold = self.can_spread = True
        self.matrix = self.anchors
        if self.bias is not None:
            # One bias for each summed vector.
            self.matrix = np.concatenate([self.anchors, self.bias[None]])
        self.columns, self.num_numbers = len(self.matrix), self.matrix.size
        # Approximate size of the transform in a file.
        self.num_bytes = self.rows.num_bytes

    def look_up(self, ids):
        vectors = self._look_up(ids)
        return vectors if self.bias is None else vectors + self.bias

    def _look_up(self, ids):
        """Products of rows of T with A, dense or sparse."""
        rows, columns, values = self.rows.read(ids)
        has_windows = self.rows.may_read_windows(ids)
        if has_windows:
            most = _DENSE_ANCHORS_PER_SLOT * self.rows.longest
        else:
            most = _DENSE_ANCHORS_PER_NUMBER * self.rows.mean_length
        # Sums of gathered anchors have an open shape, which `CompiledModel`
        # misreads.
        has_no_sums = ids.shape[0] is not None and not has_windows
        size = len(self.anchors)
        if has_no_sums or size <= max(_DENSE_ANCHORS, most):
            dense = dense_rows(rows, columns, values, tf.shape(ids), size)
            return self._options.product(dense, self.anchors)
        anchors = self._options.gatherer(self.anchors)(columns)
        vectors = anchors * tf.expand_dims(values, -1)
        if has_windows:
            return tf.reduce_sum(vectors, axis=0)
        return tf.math.unsorted_segment_sum(vectors, rows, tf.size(ids))

    def folded_rows(self, ids):
        lookup = copy.copy(self)
        lookup.anchors = self.anchors @ self.kernel
        if self.bias is not None:
            lookup.bias = self.bias @ self.kernel
        return lookup.look_up(ids)

    def features(self, ids):
        flat = tf.reshape(ids, [-1])
        size = tf.size(ids) if flat.shape[0] is None else flat.shape[0]
        # One group for each id.
        features = self.weigh(flat, tf.range(size), None, size)
        if self.bias is not None:
            features = tf.pad(features, [[0, 0], [0, 1]], constant_values=1.0)
        return unflatten(features, ids, self.columns)

    def feature_sums(self, ids, counts, weights, mean):
        groups, size = number_groups(ids)
        weights = join_weights(counts, weights)
        flat = None if weights is None else tf.reshape(weights, [-1])
        sums = self.weigh(tf.reshape(ids, [-1]), groups, flat, size)
        if self.bias is not None:
            if weights is None:
                total = tf.ones_like(sums[:, :1]) * length_of(ids)
            else:
                total = tf.reduce_sum(weights, axis=1, keepdims=True)
            sums = tf.concat([sums, total], axis=1)
        return sums / length_of(ids) if mean else sums

    def weigh(self, ids, groups, weights, num_groups):
        """Sums of weighted rows of the transform."""
        if self.rows.may_read_windows(ids):
            columns, values = self.rows.windows(ids)
        else:
            rows, columns, values = self.rows.numbers(ids)
            groups = tf.gather(groups, rows)
            weights = None if weights is None else tf.gather(weights, rows)
        if weights is not None:
            values *= weights
        num_anchors = len(self.anchors)
        sums = tf.math.unsorted_segment_sum(
            tf.reshape(values, [-1]),
            tf.reshape(columns + groups * num_anchors, [-1]),
            num_groups * num_anchors,
        )
        return tf.reshape(sums, [-1, num_anchors])

    def score(self, vectors):
        num_rows = self.store.input_dim
        # A zero that the converter cannot fold; it would store dense rows.
        zero = tf.minimum(tf.cast(vectors[0, 0] >= 0, tf.int32), 0)
        ids = tf.range(zero, num_rows + zero)
        rows, columns, values = self.rows.numbers(ids)
        scores = tf.matmul(vectors, self.anchors, transpose_b=True)
        if vectors.shape[0] is None:
            parts = tf.gather(tf.transpose(scores), columns)
            products = tf.math.unsorted_segment_sum(
                parts * tf.expand_dims(values, 1), rows, num_rows
            )
            logits = tf.transpose(products)
        else:
            dense = dense_rows(
                rows, columns, values, [num_rows], len(self.anchors)
            )
            logits = tf.matmul(scores, dense, transpose_b=True)
        if self.bias is not None:
            logits += tf.matmul(vectors, self.bias[:, None])
        return logits

    def top_ids(self, vectors, k):
        return top_of_chunks([self.score(vectors)], k)


def softmax_as_linear(transform, anchors, segments):
    """Weights and anchors, with the sum of softmaxes as their product."""
    firsts = np.cumsum([0, *segments[:-1]])
    sizes = np.asarray(segments)
    means = np.add.reduceat(anchors, firsts) / sizes[:, None]
    bias = means.sum(axis=0)
    segment_of = np.repeat(np.arange(len(sizes)), sizes)
    anchors = anchors - means[segment_of]
    numbers = transform.values.astype("float64")
    if not len(numbers):
        return numbers, anchors, bias
    rows = np.repeat(np.arange(transform.num_rows), transform.row_lengths)
    keys = rows * len(sizes) + segment_of[transform.columns]
    # A group is the part of a row in a segment: neighbors, as columns ascend.
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(starts, append=len(keys))
    zeros = sizes[keys[starts] % len(sizes)] - counts
    top = np.maximum.reduceat(numbers, starts)
    top = np.where(zeros > 0, np.maximum(top, 0), top)
    of_zero = np.where(zeros > 0, np.exp(-np.maximum(top, 0)), 0)
    exps = np.exp(numbers - np.repeat(top, counts))
    sums = np.add.reduceat(exps, starts) + zeros * of_zero
    exps -= np.repeat(of_zero, counts)
    return exps / np.repeat(sums, counts), anchors, bias


def litert_bytes(nnz, offsets, shape, quantize):
    """Bytes of `nnz` non-zeros and anchors of a shape in a LiteRT file."""
    column = np.min_scalar_type(shape[0] - 1).itemsize
    # One extra number ends the list.
    of_rows = (nnz + 1) * (column + _VALUE_BYTES[quantize])
    anchors = count_litert_bytes(shape[0] * shape[1], quantize)
    return of_rows + PackedOffsets(offsets).nbytes + anchors


def _append_rows(transform, vectors, anchors, room, non_negative):
    """A transform with rows for more vectors."""
    # The mean number of non-zeros of other rows.
    mean = -(-transform.nnz // transform.num_rows)
    most = min(max(1, mean), room)
    return transform.append(sparse_code(vectors, anchors, most, non_negative))


def _round(transform, scales):
    """The rows of `AnchorRows`, in units of a scale for each anchor."""
    lengths = transform.row_lengths
    values = np.rint(transform.values / scales[transform.columns])
    return {
        "lengths": lengths.astype(np.min_scalar_type(lengths.max())),
        "anchors": transform.columns,
        "values": values.clip(-_HIGHEST, _HIGHEST).astype("int8"),
    }


def _get_relations(relations, input_dim, initializer):
    if isinstance(relations, dict):
        relations = keras.saving.deserialize_keras_object(relations)
    if relations is None:
        return None
    require(
        isinstance(relations, Relations) and relations.input_dim == input_dim,
        f"`relations` must be `Relations` of {input_dim} ids.",
        relations=relations,
    )
    require(
        not isinstance(initializer, Mixed),
        "`relations` must be None with several sets of anchors.",
        relations=relations,
    )
    return relations
