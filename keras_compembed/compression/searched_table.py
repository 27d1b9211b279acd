"""A table of a search, and what methods lose of it."""

import keras
import numpy as np

from keras_compembed.compression.method_choices import choices_by_default
from keras_compembed.compression.method_choices import choices_of
from keras_compembed.compression.replaceable_layers import layer_class
from keras_compembed.compression.replaced_table import ReplacedTable
from keras_compembed.compression.replaced_table import read_tables
from keras_compembed.compression.spectrum import Spectrum
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_table

# Of quick fits: the rows of a sample, and the share of the time.
_SAMPLE_ROWS, QUICK = 16_384, 0.1


class SearchedTable:
    """A table, the methods that may store it, and what they lose.

    Args:
        name: String, what to call it in messages.
        layer: An Embedding layer.
        settings: Dict of what `layer_settings` may hold.
        pooling: Optional `Pooling` that alone reads its rows.
        methods: Optional list of `Method`s.
        importance: Positive number.

    Attributes:
        choices: List of `MethodChoice`s.
        energy: Number by which errors count beside those of other tables.
    """

    def __init__(self, name, layer, settings, pooling, methods, importance=1.0):
        self.name = name
        self.layer = layer
        self.pooling = pooling
        self.settings = settings
        shape = layer.input_dim, layer.output_dim
        self._tables = read_tables(layer)
        for table in self._tables:
            check_table(table, f"embeddings of {name}")
        weight = check_sample_weight(settings["sample_weight"], shape[0])
        self._means = [np.average(x, 0, weight) for x in self._tables]
        self._weight = weight
        spectrum = Spectrum(self._tables[0], weight)
        choices = (
            choices_by_default(*shape, spectrum)
            if methods is None
            else choices_of(methods)
        )
        self.choices = [
            choice for choice in choices if self._can(choice.method, shape)
        ]
        squares = np.square(self._tables[0] - self._means[0]).sum(axis=1)
        self.energy = importance * float(np.average(squares, weights=weight))
        self._errors = {}
        self._weights = {}

    def _can(self, method, shape):
        if layer_class(method, self.layer) is None:
            return False
        if self.settings["pooled"] is True and method.reduce is None:
            return False
        return method.reason_against(*shape) is None

    def bytes_of(self, method, quantize, width=None):
        """Integer, constants of the table in a file.

        Args:
            method: A `Method`.
            quantize: Same as in `export_litert`.
            width: Optional integer, of rows as the file has them. Defaults to
                `None`: that of the table.
        """
        size = method.litert_bytes(
            self.layer.input_dim, width or self.layer.output_dim, quantize
        )
        return len(self._tables) * size

    def replaced(self, method):
        """A `ReplacedTable` that has learned nothing yet."""
        pooling = None if method.reduce is None else self.pooling
        settings = {**self.settings, "method": method}
        return ReplacedTable(self.name, self.layer, settings, None, 0, pooling)

    def known_error(self, choice):
        """The error that was measured, carefully if it was, or None."""
        for effort in (1.0, QUICK):
            if (choice.name, effort) in self._errors:
                return self._errors[choice.name, effort]
        return None

    def quick_error(self, choice):
        """What a short fit to a sample of rows loses."""
        key = choice.name, QUICK
        if key not in self._errors:
            method = choice.method.quicker(QUICK)
            rows = slice(None)
            num_rows = self.layer.input_dim
            if method.is_by_row and num_rows > _SAMPLE_ROWS:
                rng = np.random.default_rng(0)
                rows = np.sort(
                    rng.choice(num_rows, _SAMPLE_ROWS, replace=False)
                )
            weight = None if self._weight is None else self._weight[rows]
            found = [
                method.start(self.settings["seed"], 0)
                .from_table(table[rows], sample_weight=weight)
                .embeddings
                for table in self._tables
            ]
            self._errors[key] = self._error(found, rows)
        return self._errors[key]

    def error(self, choice):
        """What a whole fit to the table loses; it is kept for copies."""
        key = choice.name, 1.0
        if key not in self._errors:
            replaced = self.replaced(choice.method)
            replaced.learn()
            self._weights[choice.name] = replaced.small.get_weights()
            parts = [
                replaced.small,
                getattr(replaced.small, "reverse_embedding", None),
            ]
            found = [
                part.embeddings
                for part, _ in zip(parts, self._tables, strict=False)
            ]
            self._errors[key] = self._error(found, slice(None))
        return self._errors[key]

    def _error(self, found, rows):
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

    def fill(self, replaced, choice):
        """Gives a layer what was learned for a choice, or learns it."""
        weights = self._weights.get(choice.name)
        shapes = [weight.shape for weight in replaced.small.weights]
        if weights is None or shapes != [x.shape for x in weights]:
            replaced.learn()
        else:
            replaced.small.set_weights(weights)
