"""What is known of the tensors of a model, while it is traced."""

import dataclasses
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


@dataclasses.dataclass(eq=False)
class LinearSite:
    """A place where a layer took something else than its input."""

    key: tuple
    owner: object
    source: Vectors
    output: tf.Tensor | None = None
    width: int = 0
    lookup: MarkedLookup | None = None


class LinearTrace:
    """Remembers the vectors of look-up layers, and what is made of them."""

    def __init__(self, lookups, options):
        self._lookups = lookups
        self.options = options
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
        self._names = {}

    def holds(self, tensor):
        """Whether a tensor is needed in its own graph."""
        if tensor is None:
            return False
        return tensor.op.name in self._live(tensor.graph)

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

    def _live(self, graph):
        if id(graph) not in self._names:
            names = set()
            ahead = [tensor.op for tensor in graph.outputs]
            ahead += list(graph.control_outputs)
            while ahead:
                op = ahead.pop()
                if op.name not in names:
                    names.add(op.name)
                    ahead.extend(tensor.op for tensor in op.inputs)
                    ahead.extend(op.control_inputs)
            self._names[id(graph)] = names
        return self._names[id(graph)]


def read_kernel(layer):
    """The kernel of a layer as a float32 array."""
    # Not in the function that is traced.
    with tf.init_scope():
        return keras.ops.convert_to_numpy(layer.kernel).astype("float32")
