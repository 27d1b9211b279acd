"""What is known of the tensors of a model, while it is traced."""

import collections
import dataclasses
import functools
from collections.abc import Callable

import keras
import tensorflow as tf

from keras_compembed.export.marks import MarkedLookup
from keras_compembed.export.marks import Texts


@dataclasses.dataclass(eq=False)
class Vectors:
    """What is known of a tensor."""

    tensor: tf.Tensor
    layer: keras.layers.Layer
    inputs: tf.Tensor
    ids: tf.Tensor
    products: object
    reference: Callable
    features: Callable | None = None
    finish: Callable | None = None
    is_held: bool = True

    @property
    def length(self):
        """Ids of each text, or None if that is open."""
        return self.ids.shape[1] if self.ids.shape.rank == 2 else None


# A place where a layer took something else than its input, the `Vectors`
# `source`.
LinearSite = collections.namedtuple(
    "LinearSite", ("key", "owner", "source", "output", "width", "lookup")
)


class LinearTrace:
    """Remembers the vectors of look-up layers, and what is made of them."""

    def __init__(self, options, forms):
        self.options, self.forms = options, forms
        self.lookups = []
        self._folded = {}
        self.refused = set()
        self.restart()

    def restart(self):
        """Forgets a trace, but not what is refused."""
        self._known, self._calls, self.sites = {}, {}, []
        self.lookups = [x for x in self.lookups if x.method != "texts"]
        for lookup in self.lookups:
            lookup.calls, lookup.has_constants = 0, False
            lookup.outputs.clear()

    def remember(self, vectors):
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

    def add_lookup(self, layer, method, texts=None):
        form, number = self.forms[id(layer)], len(self.lookups)
        self.lookups.append(MarkedLookup(layer, method, number, form, texts))
        return self.lookups[-1]

    def mark(self, vectors, texts, function):
        """Calls a function of the ids, written down between marks."""
        lookup = self.add_lookup(vectors.layer, "texts", texts)
        lookup.has_other_inputs = not vectors.is_held
        return lookup.marked(function)(vectors.ids)

    def add_site(self, key, owner, vectors, output, width=0):
        """Notes what was made by the last mark."""
        self.sites.append(
            LinearSite(key, owner, vectors, output, width, self.lookups[-1])
        )

    def multiply(self, pooled, owner=None, reference=None):
        """Sums of vectors as a product, with a mark before and after it."""
        matrix = self.fold(pooled.products, owner)

        def compute(ids):
            sums = pooled.features(ids)
            if matrix is not None:
                sums = tf.matmul(sums, tf.constant(self.options.note(matrix)))
            return pooled.finish(sums, ids)

        return self.mark(pooled, Texts(reference or pooled.reference), compute)

    def fold(self, products, owner=None):
        """The matrix of products, times a kernel of rank 2 or 3."""
        key = id(products), id(owner)
        if key not in self._folded:
            kernel = None if owner is None else read_kernel(owner)
            self._folded[key] = products.fold(kernel)
        return self._folded[key]


class LiveOps:
    """What the outputs of a traced function depend on."""

    def __init__(self, graph):
        self._graph = graph
        self._live = functools.cache(_live_ops)

    def holds(self, tensor):
        """Whether a tensor is needed in its own graph."""
        return tensor is not None and tensor.op.name in self._live(tensor.graph)

    def reads(self, variable):
        """Whether a Keras variable is read."""
        # In the scope of a strategy, a variable has a copy on each device.
        strategy = tf.distribute.get_strategy()
        copies = strategy.experimental_local_results(variable.value)
        handles = {id(copy.handle) for copy in copies}
        live = self._live(self._graph)
        return any(
            id(outer) in handles
            and any(op.name in live for op in inner.consumers())
            for outer, inner in self._graph.captures
        )


def _live_ops(graph):
    names = set()
    ahead = [*(tensor.op for tensor in graph.outputs), *graph.control_outputs]
    while ahead:
        op = ahead.pop()
        if op.name not in names:
            names.add(op.name)
            ahead.extend(tensor.op for tensor in op.inputs)
            ahead.extend(op.control_inputs)
    return names


def read_kernel(layer):
    """The kernel of a layer as a float32 array."""
    # Not in the function that is traced.
    with tf.init_scope():
        return keras.ops.convert_to_numpy(layer.kernel).astype("float32")
