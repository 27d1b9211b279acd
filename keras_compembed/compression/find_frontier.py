"""What a model's tables lose at all sizes."""

from keras_compembed.compression.budget_search import check_search
from keras_compembed.compression.compress_model import check_model
from keras_compembed.compression.find_size import FindSize
from keras_compembed.compression.searched_tables import find_searched_tables
from keras_compembed.utils.validation import check_positive_int


def find_frontier(
    model,
    search=None,
    layers=None,
    layer_settings=None,
    min_bytes=65_536,
    seed=None,
    sample_inputs=None,
    verbose=1,
):
    """The sizes that a model can have, and what its tables lose at each.

    By arithmetic and short fits to samples of rows, without training: what
    `compress_model` with a limit looks at first, from the smallest file up.

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((20,), dtype="int32"),
    ...     keras.layers.Embedding(500, 32, name="words"),
    ...     keras.layers.GlobalAveragePooling1D(),
    ... ])
    >>> methods = [kc.methods.Rounded(2), kc.methods.Rounded(4)]
    >>> search = kc.compression.BudgetSearch(methods, quantize="int8")
    >>> found = find_frontier(model, search, min_bytes=0, verbose=0)
    >>> [point.name for point in found.best]
    ['int2', 'int4']

    Args:
        model: A built `keras.Model`.
        search: Optional `BudgetSearch`. Its data is used only to count how
            often ids occur. Defaults to `None`: a new one.
        layers, layer_settings, min_bytes, seed, sample_inputs, verbose: Same as
            in `compress_model`.

    Returns:
        A `Frontier`.
    """
    check_model(model)
    search = check_search(search)
    check_positive_int("min_bytes", min_bytes, minimum=0)
    tables = find_searched_tables(
        model, layers, layer_settings, min_bytes, seed, search, verbose
    )
    found = FindSize(
        model, tables, search, seed, sample_inputs, verbose, tunes=False
    ).frontier()
    if verbose:
        print(f"\n{found}")
    return found
