"""Layers that load all of their weights, or none."""


class WholeLoad:
    """Checks the shapes in a file before the first weight is set."""

    def load_own_variables(self, store):
        variables = self._trainable_variables + self._non_trainable_variables
        check_shapes(
            self, store, {str(i): each for i, each in enumerate(variables)}
        )
        super().load_own_variables(store)


def check_shapes(layer, store, variables):
    """Raises if a file has arrays of other shapes than a layer."""
    for key, variable in variables.items():
        if key in store.keys() and store[key].shape != variable.shape:
            raise ValueError(
                f"The weights of the layer {layer.name!r} must have its "
                f"shapes, {tuple(variable.shape)} of {variable.path!r}. "
                f"Received: {tuple(store[key].shape)}."
            )
