"""The way to store a table that loses least in so many bytes."""

from keras_compembed.compression.method_choices import choices_by_default
from keras_compembed.compression.method_errors import MethodErrors
from keras_compembed.compression.spectrum import Spectrum
from keras_compembed.utils.validation import check_sample_weight

# Kinds whose best setting is estimated to lose more than so many times what
# the best of all does, and so much besides, are not tried.
_TIMES, _MORE = 1.5, 0.05
_MEASURED = 20
# Smallest files that are counted where none is small enough.
_SMALLEST = 8


def find_method(
    table, max_bytes, count, sample_weight=None, seed=None, verbose=0
):
    """The `Method` that loses least in a file of so many bytes.

    Same as in a search for a model: estimates by arithmetic say what to
    measure, and quick fits of a sample correct them.

    Args:
        table: Array `(rows, columns)`.
        max_bytes: Integer.
        count: Callable, from a `Method` to the bytes of its file.
        sample_weight: Optional array `(rows,)`, how much each row counts.
        seed: Optional integer.
        verbose: `0` or `1`, whether to show what is measured.

    Raises:
        ValueError: if no file is so small.
    """
    weight = check_sample_weight(sample_weight, len(table))
    shape = table.shape
    choices = choices_by_default(*shape, Spectrum(table, weight))
    sizes = {}

    def fits(choice):
        if choice.name not in sizes:
            sizes[choice.name] = count(choice.method)
        return sizes[choice.name] <= max_bytes

    # Files have scales and words besides.
    least = {x.name: x.method.litert_bytes(*shape, "int8") for x in choices}
    choices.sort(key=lambda choice: least[choice.name])
    if not any(fits(choice) for choice in choices[:_SMALLEST]):
        raise_too_small(max_bytes, min(sizes.values()))
    choices = [x for x in choices if least[x.name] <= max_bytes]
    errors = MethodErrors([table], weight, seed)

    def measure(choice):
        error = errors.quick(choice)
        if verbose:
            print(
                f"{choice.name}: {sizes[choice.name]:,} bytes, error "
                f"{error:.4f}",
                flush=True,
            )

    def best():
        """The best by what is known, of those that fit."""
        while True:
            choice = min(choices, key=errors.expected)
            if fits(choice):
                return choice
            choices.remove(choice)

    lowest = errors.expected(best())
    for kind in {choice.kind: None for choice in choices}:
        of_kind = [choice for choice in choices if choice.kind == kind]
        of_kind.sort(key=errors.expected)
        first = next(filter(fits, of_kind), None)
        if first and errors.expected(first) <= _TIMES * lowest + _MORE:
            measure(first)
    for _ in range(_MEASURED):
        choice = best()
        if errors.known(choice) is not None:
            break
        measure(choice)
    return choice.method


def check_size(method, count, max_bytes):
    """Raises if the file of a method is larger than `max_bytes`."""
    size = count(method)
    if size > max_bytes:
        raise_too_small(max_bytes, size, f" with {method.name}")


def raise_too_small(max_bytes, least, whose=""):
    raise ValueError(
        f"`max_bytes` must be at least {least:,} for these words and vectors"
        f"{whose}. Received: max_bytes={max_bytes}."
    )
