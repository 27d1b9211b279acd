"""A table of a search, and what methods lose of it."""

from keras_compembed.compression.method_choices import choices_by_default
from keras_compembed.compression.method_choices import choices_of
from keras_compembed.compression.method_errors import MethodErrors
from keras_compembed.compression.replaceable_layers import can_hold
from keras_compembed.compression.replaced_table import ReplacedTable
from keras_compembed.compression.replaced_table import read_tables
from keras_compembed.compression.spectrum import Spectrum
from keras_compembed.methods.exact_methods import exact_methods
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_table


class SearchedTable:
    """A table, the methods that may store it, and what they lose."""

    def __init__(self, name, layer, settings, pooling, methods):
        self.name = name
        self.layer = layer
        self.pooling = pooling
        self.settings = settings
        shape = layer.input_dim, layer.output_dim
        self._tables = read_tables(layer)
        for table in self._tables:
            check_table(table, f"embeddings of {name}")
        weight = check_sample_weight(settings["sample_weight"], shape[0])
        self._errors = MethodErrors(self._tables, weight, settings["seed"])
        self.energy = self._errors.energy
        spectrum = Spectrum(self._tables[0], weight)
        if methods is not None:
            choices = choices_of(methods)
        else:
            choices = choices_of(exact_methods(self._tables[0]))
            choices += choices_by_default(*shape, spectrum)
        self.choices = [
            choice for choice in choices if self._can(choice.method, shape)
        ]
        self._weights = {}

    def _can(self, method, shape):
        if not can_hold(method, self.layer):
            return False
        if self.settings["pooled"] is True and not method.combines:
            return False
        return method.reason_against(*shape) is None

    def bytes_of(self, method, quantize, width=None):
        """Integer, constants of the table in a file."""
        size = method.litert_bytes(
            self.layer.input_dim, width or self.layer.output_dim, quantize
        )
        return len(self._tables) * size

    def replaced(self, method):
        """A `ReplacedTable` that has learned nothing yet."""
        pooling = self.pooling if method.combines else None
        settings = {**self.settings, "method": method}
        return ReplacedTable(self.name, self.layer, settings, None, 0, pooling)

    def known_error(self, choice):
        """The error that was measured, carefully if it was, or None."""
        return self._errors.known(choice)

    def expected_error(self, choice):
        """The error of a choice: measured, or estimated and corrected."""
        return self._errors.expected(choice)

    def quick_error(self, choice):
        """What a short fit to a sample of rows loses."""
        return self._errors.quick(choice)

    def error(self, choice):
        """What a whole fit to the table loses; it is kept for copies."""

        def learn():
            replaced = self.replaced(choice.method)
            replaced.learn()
            self._weights[choice.name] = replaced.small.get_weights()
            return [part.embeddings for part in replaced.small_parts()]

        return self._errors.whole(choice, learn)

    def fill(self, replaced, choice):
        """Gives a layer what was learned for a choice, or learns it."""
        weights = self._weights.get(choice.name)
        shapes = [weight.shape for weight in replaced.small.weights]
        if weights is None or shapes != [x.shape for x in weights]:
            replaced.learn()
        else:
            replaced.small.set_weights(weights)
