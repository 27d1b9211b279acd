"""What a model's tables lose at all sizes."""

from keras_compembed.compression.budget import check_budget
from keras_compembed.compression.compress_model import check_model
from keras_compembed.compression.find_size import FindSize


def find_frontier(
    model, budget=None, layers=None, seed=None, sample_inputs=None, verbose=1
):
    """The sizes that a model can have, and what its tables lose at each.

    By arithmetic and short fits to samples of rows, without training: what
    `compress_model` with a budget looks at first, from the smallest file up.

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((20,), dtype="int32"),
    ...     keras.layers.Embedding(500, 32, name="words"),
    ...     keras.layers.GlobalAveragePooling1D(),
    ... ])
    >>> methods = [kc.methods.Rounded(2), kc.methods.Rounded(4)]
    >>> budget = kc.Budget(methods=methods, quantize="int8")
    >>> found = find_frontier(model, budget, ["words"], verbose=0)
    >>> [point.name for point in found.best]
    ['int2', 'int4']

    Args:
        model: A built `keras.Model`.
        budget: Optional `keras_compembed.Budget`, which needs no limit. Its
            data is used only to count how often ids occur.
        layers, seed, sample_inputs, verbose: Same as in `compress_model`.

    Returns:
        A `Frontier`.
    """
    check_model(model)
    found = FindSize(
        model,
        check_budget(budget),
        layers,
        seed,
        sample_inputs,
        verbose,
        tunes=False,
    ).frontier()
    if verbose:
        print(f"\n{found}")
    return found
