"""What is known of the tensors of a model, while it is traced."""

import tensorflow as tf

from keras_compembed.export.kernels import read_kernel
from keras_compembed.export.linear_site import LinearSite
from keras_compembed.export.marks import MarkedLookup
from keras_compembed.export.marks import Texts


class LinearTrace:
    """Remembers the vectors of look-up layers, and what is made of them."""

    def __init__(self, lookups, options):
        self._lookups = lookups
        self._options = options
        self._folded = {}
        self.refused = set()
        self.restart()

    def restart(self):
        """Forgets a trace, but not what is refused."""
        self._known, self._calls, self.sites = {}, {}, []
        self._lookups[:] = [x for x in self._lookups if x.method != "texts"]
        for lookup in self._lookups:
            lookup.calls, lookup.has_constants = 0, False
            lookup.outputs.clear()

    def remember(self, vectors):
        """Notes what is known of a tensor."""
        self._known[id(vectors.tensor)] = vectors

    def find(self, tensor, owner):
        """What is known of a tensor here, and the key of the place."""
        key = self.next_key(owner)
        known = self._known.get(id(tensor))
        if (
            known is None
            or key in self.refused
            or known.ids.graph is not tf.compat.v1.get_default_graph()
        ):
            return None, key
        return known, key

    def next_key(self, owner):
        """A key for a call of a layer or operation, alike in each trace."""
        number = self._calls.get(id(owner), 0)
        self._calls[id(owner)] = number + 1
        return id(owner), number

    def mark(self, vectors, texts, function):
        """Calls a function of the ids, written down between marks."""
        lookup = MarkedLookup(
            vectors.layer, "texts", len(self._lookups), texts=texts
        )
        lookup.has_other_inputs = not vectors.is_held
        self._lookups.append(lookup)
        return lookup.marked(function)(vectors.ids)

    def add_site(self, key, owner, vectors, output, width=0):
        """Notes what was made by the last mark."""
        self.sites.append(
            LinearSite(key, owner, vectors, output, width, self._lookups[-1])
        )

    def multiply(self, pooled, matrix=None, reference=None):
        """Sums of vectors as a product, with a mark before and after it."""
        if matrix is None:
            matrix = self.fold(pooled.products)

        def compute(ids):
            sums = pooled.features(ids)
            if matrix is not None:
                sums = tf.matmul(sums, self._constant(matrix))
            return pooled.finish(sums, ids)

        return self.mark(pooled, Texts(reference or pooled.reference), compute)

    def _constant(self, matrix):
        return tf.constant(self._options.note(matrix))

    def fold(self, products, owner=None):
        """The matrix of products, times a kernel of rank 2 or 3."""
        key = id(products), id(owner)
        if key not in self._folded:
            if owner is None:
                matrix = products.fold()
            else:
                matrix = products.fold(read_kernel(owner))
            self._folded[key] = matrix
        return self._folded[key]
