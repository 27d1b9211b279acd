"""Layers that load all of their weights, or none."""


class WholeLoad:
    """Checks the shapes in a file before the first weight is set."""

    def load_own_variables(self, store):
        # Its own come first.
        own = {str(i): each for i, each in enumerate(self.weights)}
        check_shapes(self, store, own)
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
