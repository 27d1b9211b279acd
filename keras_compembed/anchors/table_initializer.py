"""Anchors that stand for rows of a table."""

from keras_compembed.anchors.anchor_initializer import AnchorInitializer
from keras_compembed.anchors.anchor_initializer import check_num_anchors
from keras_compembed.anchors.anchor_initializer import check_rows
from keras_compembed.utils.validation import check_fitted_table


class TableInitializer(AnchorInitializer):
    """Chooses anchors in a space that has a point for each object."""

    def __init__(self, table, seed=None):
        super().__init__(seed)
        self.table = check_fitted_table(table)
        self._choices = {}

    def choose_rows(self, num_anchors):
        """int64 array `(num_anchors,)` of distinct rows of the table."""
        raise NotImplementedError

    def choose(self, input_dim, num_anchors):
        check_rows("table", self.table, input_dim)
        check_num_anchors(num_anchors, input_dim)
        return self._choose(num_anchors)

    def vectors(self, num_anchors, output_dim):
        if self.table.shape[1] != output_dim:
            return super().vectors(num_anchors, output_dim)
        check_num_anchors(num_anchors, len(self.table))
        return self.table[self._choose(num_anchors)].astype("float32")

    def get_config(self):
        return {"table": self.table.tolist(), **super().get_config()}

    def _choose(self, num_anchors):
        # A layer asks for ids and for vectors: passes over the table are
        # made once.
        if num_anchors not in self._choices:
            self._choices = {num_anchors: self.choose_rows(num_anchors)}
        return self._choices[num_anchors].copy()
