"""Look-up layers whose vocabulary grows."""

import weakref

from keras_compembed.utils.validation import check_new_rows


class GrowingTable:
    """Lets a built look-up layer take more ids."""

    _fixed_by = ()

    def _fix_rows(self, layer):
        """Has `add_ids` refuse while another layer counts on the rows."""
        self._fixed_by = weakref.WeakSet([*self._fixed_by, layer])

    def add_ids(self, vectors, **options):
        """Appends ids, whose vectors are stored as the layer stores others.

        Codebooks, anchors or projection are used as they are, and what other
        ids have stays the same, bit by bit. `input_dim` grows, in this layer
        and so in models that hold it: these predict, are trained, saved and
        exported as before, and reverse calls give more logits. A functional
        model still tells the number of logits that it was made with, in
        `output_shape`; layers behind it with weights for each logit do not
        fit any more. Functions of your own, wrapped in `tf.function` before,
        must be wrapped again.

        While rows are trained, as by `learn_codes="follow"` or
        `learn_rows=True`, or in an `ANTEmbedding` before `sparsify`, the new
        ones are trained too, and optimizers keep what they have for the
        others.

        Args:
            vectors: Array `(new ids, output_dim)`.
            **options: `max_nonzeros` of `ANTEmbedding`, the non-zeros of a
                row at most. Defaults to as many as other rows have, on
                average.

        Returns:
            `range` of the new ids.

        Raises:
            ValueError: if `vectors` is not a finite matrix of `output_dim`
                columns with a row at least, the layer is the
                `class_embedding` of a `CANESoftmax`, which has a fixed number
                of classes, or nothing can be found for them: codes are
                learned from nothing or by a teacher, codewords are not
                composed linearly, vectors need larger scales than there is
                room for, or weights of anchors are a `mixture` or follow
                `relations`.
        """
        self._require_built("add_ids")
        vectors = check_new_rows(vectors, self.output_dim)
        for layer in self._fixed_by:
            raise ValueError(
                "`add_ids` must not be called for the `class_embedding` of a "
                f"{type(layer).__name__}, whose biases, candidates and noises "
                f"are for num_classes={layer.num_classes}. Received: "
                f"{len(vectors)} rows for the {type(self).__name__} "
                f"{self.name!r}, which belongs to {layer.name!r}."
            )
        return self._append(self._make_rows(vectors, **options), len(vectors))

    def _append(self, rows, number):
        new = range(self.input_dim, self.input_dim + number)
        self._take_rows(rows, new.stop)
        self.input_dim = new.stop
        return new
