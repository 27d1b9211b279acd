"""The transform of an `ANTEmbedding` in and out."""

import numpy as np
import tensorflow as tf

from keras_compembed.layers.ant_training import ANTTraining
from keras_compembed.transforms.activations import activate
from keras_compembed.transforms.fixed_rows import FixedRows
from keras_compembed.transforms.sparse_transform import SparseTransform
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_table


class ANTWeights(ANTTraining):
    """Base of `ANTEmbedding`: what its weights are, and how they are saved."""

    def get_transform(self):
        """The non-zeros of T, a `SparseTransform`.

        With `"sparsemax"` and `"entmax"`, those of the weights that they
        give, so that `E = T A` again; with `"softmax"`, of what it is
        applied to.

        Raises:
            ValueError: if a number is not finite.
        """
        self._require_built("get_transform")
        if self.activation in (None, "softmax"):
            transform = self._rows.to_sparse()
        else:
            transform = SparseTransform.from_parts(
                (
                    activate(
                        tf.constant(self._rows.rows(*part)),
                        self.activation,
                        self.segments,
                    ).numpy()
                    for part in self._rows.chunks()
                ),
                self.num_anchors,
            )
        self._check_finite(transform)
        return transform

    def assign_transform(self, transform):
        """Sets T, before training or in place of it.

        Args:
            transform: `SparseTransform`, or array `(input_dim, num_anchors)`.

        Raises:
            ValueError: if it has another shape, or more non-zeros in a row
                than `max_nonzeros`.
        """
        self._require_built("assign_transform")
        if not isinstance(transform, SparseTransform):
            transform = SparseTransform.from_parts(
                [check_table(transform, "transform")], np.shape(transform)[1]
            )
        shape = transform.num_rows, transform.num_columns
        if shape != (self.input_dim, self.num_anchors):
            raise ValueError(
                "`transform` must have shape (input_dim, num_anchors) = "
                f"{(self.input_dim, self.num_anchors)}. Received: {shape}."
            )
        self._rows.load(transform)

    @property
    def nnz(self):
        """Integer, the non-zeros of T."""
        return self.get_transform().nnz

    @property
    def density(self):
        """Float, the part of T that is not 0."""
        return self.nnz / (self.input_dim * self.num_anchors)

    @property
    def embeddings(self):
        """The whole table as a float32 array `(input_dim, output_dim)`."""
        self._require_built("embeddings")
        table = np.empty((self.input_dim, self.output_dim), "float32")
        for start, stop in self._rows.chunks():
            rows = tf.constant(self._rows.rows(start, stop))
            table[start:stop] = self._compose(rows).numpy()
        return table

    def sparsify(self, max_nonzeros=None):
        """Turns the layer into its inference form, which stores T sparse.

        Vectors stay what they are, unless there are more non-zeros than
        wanted, of which the smallest are then dropped. T is fixed from now
        on, while anchors can be trained further. Optimizers forget what they
        kept for T, and models that hold the layer can be saved, exported and
        trained further as they are. Functions of your own, wrapped in
        `tf.function` before, must be wrapped again.

        Args:
            max_nonzeros: Optional integer, the most non-zeros to keep. Defaults
                to `target_nonzeros`, or to all.

        Raises:
            ValueError: if the layer is sparse already, a number is not finite,
                or `max_nonzeros` is not a positive integer.
        """
        if self.storage == "fixed":
            raise ValueError(
                "`sparsify` must be called once. "
                f"Received: the layer {self.name!r}, which is sparse already."
            )
        if max_nonzeros is None:
            max_nonzeros = self.target_nonzeros
        else:
            check_positive_int("max_nonzeros", max_nonzeros)
        transform = self.get_transform()
        if max_nonzeros is not None:
            transform = transform.keep_largest(max_nonzeros)
        self._rows.drop()
        if self.activation != "softmax":
            self.activation = None
        longest = int(transform.row_lengths.max(initial=0))
        self.storage = "fixed"
        self._rows = FixedRows(self, transform.nnz, longest)
        # Keras locks the weights of a built layer, as its own `quantize` has
        # to undo too.
        self._tracker.unlock()
        self._rows.build()
        self._tracker.lock()
        self._rows.load(transform)

    def save_own_variables(self, store):
        self._rows.settle()
        transform = self._rows.to_sparse()
        self._check_finite(transform)
        store["anchors"] = self.anchors.numpy()
        store["l1"] = self.l1_value.numpy()
        store["offsets"] = transform.offsets
        store["columns"] = transform.columns
        store["values"] = transform.values
        for name, value in self._rows.state().items():
            store[name] = value

    def load_own_variables(self, store):
        self.anchors.assign(store["anchors"])
        self.l1_value.assign(store["l1"])
        transform = SparseTransform(
            np.asarray(store["offsets"]),
            np.asarray(store["columns"]),
            np.asarray(store["values"]),
            self.num_anchors,
        )
        self.assign_transform(transform)
        self._rows.load_state(store)

    def _check_finite(self, transform):
        bad = [
            name
            for name, values in (
                ("anchors", self.anchors.numpy()),
                ("transform", transform.values),
            )
            if not np.isfinite(values).all()
        ]
        if bad:
            raise ValueError(
                f"The weights of the layer {self.name!r} must be finite. "
                f"Received: NaN or infinity in {' and '.join(bad)}. Lower the "
                "learning rate, or look for NaN in the inputs and the loss."
            )
