"""States of seed generators in files.

Keras leaves them out: a model that was loaded would draw numbers of its own.
"""

_KEY = "seed_state"


def save_seed(store, generator):
    """Puts a state into what `save_own_variables` is given.

    Args:
        store: Dict of arrays.
        generator: `keras.random.SeedGenerator`.
    """
    store[_KEY] = generator.state.numpy()


def load_seed(store, generator):
    """Takes the state from what `load_own_variables` is given.

    Args:
        store: Dict of arrays. Where it holds no state, as files made before
            states were saved, the generator is left as it is.
        generator: `keras.random.SeedGenerator`.

    Returns:
        Dict of the other arrays.
    """
    arrays = {key: store[key] for key in store.keys()}
    state = arrays.pop(_KEY, None)
    if state is not None:
        generator.state.assign(state)
    return arrays
