"""What methods lose of tables: estimated, measured, and corrected."""

import keras
import numpy as np

from keras_compembed.utils.validation import check_sample_weight

# Of quick fits: the rows of a sample, and the share of the time.
_SAMPLE_ROWS, _QUICK = 16_384, 0.1


class MethodErrors:
    """Squared errors of methods, over the squares of rows about their mean."""

    def __init__(self, tables, sample_weight=None, seed=None):
        self._tables = tables
        self._weight = check_sample_weight(sample_weight, len(tables[0]))
        self._means = [np.average(x, 0, self._weight) for x in tables]
        self._seed = seed
        squares = np.square(tables[0] - self._means[0]).sum(axis=1)
        self.energy = float(np.average(squares, weights=self._weight))
        # Errors that were measured, by choice.
        self.known = {}
        # Logarithms of errors measured over errors estimated, by kind.
        self._logs = {}

    def expected(self, choice):
        """The error of a choice: measured, or estimated and corrected."""
        if choice in self.known:
            return self.known[choice]
        if choice.estimate is None:
            # Only a measurement can tell: it is made as soon as it fits.
            return 0.0
        # What was never measured is hoped to be as good as estimated: so it
        # is measured before anything worse is taken.
        logs = self._logs.get(choice.kind)
        return choice.estimate * (float(np.exp(np.mean(logs))) if logs else 1)

    def quick(self, choice):
        """Measures what a short fit to a sample of rows loses."""
        method = choice.method.quicker(_QUICK)
        rows = slice(None)
        num_rows = len(self._tables[0])
        if method.is_by_row and num_rows > _SAMPLE_ROWS:
            rng = np.random.default_rng(0)
            rows = np.sort(rng.choice(num_rows, _SAMPLE_ROWS, replace=False))
        weight = None if self._weight is None else self._weight[rows]
        found = [
            method.start(self._seed, 0)
            .from_table(table[rows], sample_weight=weight)
            .embeddings
            for table in self._tables
        ]
        error = self.known[choice] = self.of(found, rows)
        if choice.estimate:
            log = np.log(max(error, 1e-9) / choice.estimate)
            self._logs.setdefault(choice.kind, []).append(log)
        return error

    def of(self, found, rows=slice(None)):
        """The error of some rows of tables that were made of them."""
        lost = there = 0.0
        weight = None if self._weight is None else self._weight[rows]
        for rebuilt, table, mean in zip(
            found, self._tables, self._means, strict=True
        ):
            table = table[rows].astype("float32")
            rebuilt = keras.ops.convert_to_numpy(
                keras.ops.cast(rebuilt, "float32")
            )
            squares = np.square(table - rebuilt).sum(axis=1, dtype="float64")
            lost += np.average(squares, weights=weight)
            squares = np.square(table - mean).sum(axis=1, dtype="float64")
            there += np.average(squares, weights=weight)
        return float(lost / there) if there else 0.0
