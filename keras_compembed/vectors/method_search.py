"""The way to store a table that loses least in so many bytes."""

from keras_compembed.compression.method_choices import MethodErrors
from keras_compembed.compression.method_choices import choices_by_default
from keras_compembed.compression.stop_request import StopRequest

# Kinds whose best setting is estimated to lose more than so many times what
# the best of all does, and so much besides, are not tried.
_TIMES, _MORE = 1.5, 0.05
_MEASURED = 20
# Smallest files that are counted where none may be small enough.
_SMALLEST = 8


class MethodSearch:
    """Looks for the `Method` that loses least in a file of so many bytes."""

    def __init__(
        self, table, max_bytes, count, sample_weight=None, seed=None, verbose=0
    ):
        self._max_bytes = max_bytes
        self._count = count
        self._verbose = verbose
        self._errors = MethodErrors([table], sample_weight, seed)
        self._sizes = {}
        least = {
            choice: choice.method.litert_bytes(*table.shape, "int8")
            for choice in choices_by_default(table, sample_weight)
        }
        choices = sorted(least, key=least.get)
        smallest = choices[:_SMALLEST]
        if not any([self._fits(choice) for choice in smallest]):
            raise_too_small(max_bytes, min(self._sizes.values()))
        # Files have words besides, and a few bytes that grow with the rest.
        most = max_bytes - min(self._sizes[x] - least[x] for x in smallest)
        self._choices = [x for x in choices if least[x] <= most]

    def find(self):
        """The best `Method`; after Ctrl-C, the best that was measured."""
        with StopRequest().watching() as stop:
            try:
                self._measure_kinds(stop)
                for _ in range(_MEASURED):
                    choice = self._best()
                    if choice in self._errors.known:
                        break
                    self._measure(choice, stop)
            except KeyboardInterrupt:
                known = self._errors.known
                measured = [x for x in self._choices if x in known]
                if not measured:
                    raise
                choice = min(measured, key=known.get)
        return choice.method

    def _fits(self, choice):
        if choice not in self._sizes:
            self._sizes[choice] = self._count(choice.method)
        return self._sizes[choice] <= self._max_bytes

    def _best(self, kind=None):
        """The best by what is known of those that fit, of a kind or all."""
        while True:
            choice = min(
                (x for x in self._choices if kind in (None, x.kind)),
                key=self._errors.expected,
                default=None,
            )
            if choice is None or self._fits(choice):
                return choice
            self._choices.remove(choice)

    def _measure_kinds(self, stop):
        """Quick errors of the most promising of each kind."""
        lowest = self._errors.expected(self._best())
        for kind in {choice.kind: None for choice in self._choices}:
            choice = self._best(kind)
            most = _TIMES * lowest + _MORE
            if choice and self._errors.expected(choice) <= most:
                self._measure(choice, stop)

    def _measure(self, choice, stop):
        error = self._errors.quick(choice)
        if stop.is_set:
            raise KeyboardInterrupt
        if self._verbose:
            size = self._sizes[choice]
            print(f"{choice.name}: {size:,} bytes, error {error:.4f}")


def raise_too_small(max_bytes, least, whose=""):
    raise ValueError(
        f"`max_bytes` must be at least {least:,} for these words and vectors"
        f"{whose}. Received: max_bytes={max_bytes}."
    )
