"""Base class of methods."""

import abc
import copy
import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_seed


@dataclasses.dataclass(frozen=True)
class Fit:
    """One fit of a method to a table."""

    options: dict
    from_table: Callable


class Method(abc.ABC):
    """Base class of methods to store a table."""

    # The layer class, and whether it can combine rows, or compute logits as
    # well.
    rows = None
    combines = reverses = False
    is_by_row = False
    # Options of one table.
    sample_weight = seed = None
    pooled = True
    # Steps between updates of codes that follow a task.
    recode_every = None

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """String: the method and its settings, e.g. `"codes 32x16"`."""

    @abc.abstractmethod
    def start(self, seed: int | None = None, verbose: int = 0) -> Fit:
        """Returns a `Fit` after checking the settings."""

    @abc.abstractmethod
    def litert_bytes(
        self, input_dim: int, output_dim: int, quantize: str | None = None
    ) -> int:
        """Returns the bytes of a table's constants in a LiteRT file.

        The graph adds about 2 kB for a plain lookup, 3 kB for int2 rows, up to
        9 kB for methods that compute a row's place, such as `Pruned` and
        `Anchors`, and up to 17 kB for `Tiered`.

        Args:
            input_dim: Integer. Rows of the table.
            output_dim: Integer. Columns of the table.
            quantize: Same as in `export_litert`. Defaults to `None`.
        """

    def for_table(
        self,
        sample_weight: ArrayLike | None = None,
        pooled: bool = True,
        seed: int | None = None,
    ) -> "Method":
        """Returns the same method with options for one table of a model.

        Example:

        >>> counts = np.arange(1000)
        >>> method = Codes(16, 16).for_table(sample_weight=counts**0.5)

        Args:
            sample_weight: Optional array `(input_dim,)`. The weight of each
                row, e.g. by how often its token occurs. Defaults to `None`.
            pooled: Boolean. `False` keeps the layer from pooling its rows
                itself. Defaults to `True`.
            seed: Optional integer. Seed of learning, instead of the seed of
                `keras_compembed.compress_model`. Defaults to `None`.
        """
        new = copy.copy(self)
        if sample_weight is not None:
            new.sample_weight = np.asarray(sample_weight)
        new.pooled = check_boolean("pooled", pooled)
        new.seed = check_seed(seed)
        return new

    @property
    def is_plain(self) -> bool:
        """Whether the method has no options beyond those of `start`."""
        options = self.sample_weight, self.seed, self.recode_every
        return self.pooled and all(option is None for option in options)

    def tuned(self) -> "Method":
        """The same method with trainable rows, if possible."""
        return self

    def folded(self) -> "Method | None":
        """The same method with the next layer folded in, or None."""
        return None

    def reason_against(self, input_dim: int, output_dim: int) -> str | None:
        """Why a table of this shape does not fit, or None."""
        return None

    def quicker(self, effort: float) -> "Method":
        """The same method with fits in `effort` of the time, if possible."""
        return self

    def new_layer(
        self, fit: Fit, input_dim: int, output_dim: int, **kwargs: object
    ) -> LookupLayer:
        """A built layer, shaped like that of `fit.from_table`."""
        layer = self.rows(input_dim, output_dim, **fit.options, **kwargs)
        layer.build()
        return layer


def check_method(name, value):
    """Returns a `Method`, or raises an error."""
    if not isinstance(value, Method):
        raise TypeError(
            f"`{name}` must be a method such as `keras_compembed.methods."
            f"Codes(16, 16)`. Received: {name}={value!r}."
        )
    return value
