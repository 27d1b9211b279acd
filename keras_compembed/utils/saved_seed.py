"""States of seed generators in files."""

_KEY = "seed_state"


def save_seed(store, generator):
    """Puts a state into what `save_own_variables` is given."""
    store[_KEY] = generator.state.numpy()


def load_seed(store, generator):
    """Takes the state from what `load_own_variables` is given."""
    arrays = {key: store[key] for key in store.keys()}
    state = arrays.pop(_KEY, None)
    if state is not None:
        generator.state.assign(state)
    return arrays
