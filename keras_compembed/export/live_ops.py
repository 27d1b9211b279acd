"""Which operations of a traced function matter."""

import tensorflow as tf


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
