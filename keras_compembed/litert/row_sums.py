"""Sums of codewords in a LiteRT file, by the graph that suits best."""

import functools

import numpy as np

from keras_compembed.litert.row_costs import ASSUMED_IDS
from keras_compembed.litert.row_costs import estimate
from keras_compembed.litert.row_costs import estimate_sum
from keras_compembed.litert.row_graphs import Gathers
from keras_compembed.litert.row_graphs import Product

# Graphs are not to hold more than the file saves, for so many then.
_MANY_IDS = 512
# Memory that is no reason to choose a slower graph.
_ANY_MEMORY = 2 << 20
# Largest codebooks for which one-hot rows are worth trying, and groups.
_LARGEST_PRODUCT = 128
_KERAS_PRODUCT = 16
_GROUPS = (8, 4, 2, 1)
# How much larger than need be a faster graph may make a file.
SIZE_MARGINS = {None: 1.02, "size": 1.001}
# Bytes of the ops that take subcodes out of bytes, and of the digits of a byte.
_DIGIT_OPS, _DIGITS = 600, 256
# Numbers that the sums of all pairs of codewords may be.
_MOST_SUMS = 1 << 24


class RowSums:
    """Sums of codewords, one of each codebook."""

    def __init__(self, codewords, options, codes):
        self.codewords = np.asarray(codewords, dtype="float32")
        self._options = options
        self._codes = codes
        self._choose = functools.cache(self._find)
        # Kind of the first graph that reads the codewords, and its numbers.
        self._form = None

    def look_up(self, ids):
        """Sums `(ids, width)` for a rank-1 int32 tensor of ids."""
        graph = self._choose(ids.shape[0], self._form)
        self._form = _form(graph)
        numbers = self._codes.read(ids, graph.together)
        return graph(self.codewords, numbers, self._options)

    def count_elements(self, num_ids):
        """Numbers held for each of so many ids while rows are summed."""
        graph = self._choose(num_ids, self._form)
        costs = estimate(graph, self.codewords.shape, num_ids)
        return -(-costs.arena_bytes // (4 * num_ids))

    def sum_costs(self, num_ids=None):
        """`RowCosts` of the sum of so many rows, or of an open number."""
        return estimate_sum(
            self._choose(num_ids, self._form),
            self.codewords.shape,
            num_ids or ASSUMED_IDS,
            self._options.quantize,
            self._codes.is_aligned,
        )

    def _candidates(self):
        """All graphs that there are to choose from."""
        num_codebooks, codebook_size, width = self.codewords.shape
        if not np.isfinite(self.codewords).all():
            # As Keras does it: a product brings NaN into other rows too.
            return [Product() if codebook_size <= _KERAS_PRODUCT else Gathers()]
        graphs = []
        for together in sorted({1, self._codes.per_byte}):
            columns = -(-num_codebooks // together)
            if codebook_size <= _LARGEST_PRODUCT:
                graphs.append(Product(together))
            if together == 1 or columns * 256 * width <= _MOST_SUMS:
                groups = {columns, *(x for x in _GROUPS if x < columns)}
                graphs += [Gathers(together, group) for group in groups]
        return graphs

    def _find(self, num_ids, form):
        """The graph for so many ids at once, or None for an open number."""
        graphs = [x for x in self._candidates() if form in (None, _form(x))]
        costs = self._estimate(graphs, num_ids or ASSUMED_IDS)

        def time(graph):
            return costs[graph].nanoseconds

        def size(graph):
            per_byte, digits = self._codes.per_byte, 0
            if graph.together < per_byte:
                digits = _DIGIT_OPS + _DIGITS * per_byte
            return costs[graph].file_bytes + digits

        def memory_and_time(graph):
            bytes_held = costs[graph].file_bytes + costs[graph].arena_bytes
            return bytes_held, time(graph)

        goal = self._options.optimize_for
        if goal == "memory":
            return min(graphs, key=memory_and_time)
        if goal != "size":
            graphs = self._lean(graphs, num_ids or _MANY_IDS)
        if goal != "latency":
            rest = self._codes.table.packed.nbytes
            least = rest + min(map(size, graphs))
            most = SIZE_MARGINS[goal] * least - rest
            graphs = [graph for graph in graphs if size(graph) <= most]
        return min(graphs, key=time)

    def _estimate(self, graphs, num_ids):
        shape, quantize = self.codewords.shape, self._options.quantize
        return {
            graph: estimate(graph, shape, num_ids, quantize) for graph in graphs
        }

    def _lean(self, graphs, num_ids):
        """Graphs that take no more memory than a table of int4, if any."""
        width = self.codewords.shape[2]
        codes = self._codes.table.packed
        budget = len(codes) * width // 2 + 4 * num_ids * width - codes.nbytes
        used = {
            graph: costs.file_bytes + costs.arena_bytes
            for graph, costs in self._estimate(graphs, num_ids).items()
        }
        budget = max(budget, _ANY_MEMORY)
        if min(used.values()) > budget:
            # Of tables so small, codewords alone may take more.
            budget = min(used.values()) + _ANY_MEMORY
        return [graph for graph in graphs if used[graph] <= budget]


def _form(graph):
    """What graphs have in common that read the same numbers."""
    return type(graph), graph.together
