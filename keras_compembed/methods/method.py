"""Base of the ways to store a table."""

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
    """One use of a method, on one table."""

    options: dict
    from_table: Callable


class Method(abc.ABC):
    """Base of the ways to store a table, each with settings of its own."""

    # The layer of such rows, and whether it takes the place of one that
    # combines rows, or that also gives logits.
    rows = None
    combines = reverses = False
    is_by_row = False
    # Options of one table.
    sample_weight = seed = None
    pooled = True
    # How often rows that follow a task are stored again.
    recode_every = None

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """String, the method and its settings, such as `"codes 32x16"`."""

    @abc.abstractmethod
    def start(self, seed: int | None = None, verbose: int = 0) -> Fit:
        """A `Fit`, whose settings are checked."""

    @abc.abstractmethod
    def litert_bytes(
        self, input_dim: int, output_dim: int, quantize: str | None = None
    ) -> int:
        """Bytes of constants that a table takes in a LiteRT file.

        The graph comes on top: about 2 kB of a plain look-up, and up to 9 kB
        where a row's place is computed, as by `Vocabulary`, `Pruned` and
        `Anchors`.

        Args:
            input_dim: Integer, rows of the table.
            output_dim: Integer, columns of the table.
            quantize: Same as in `export_litert`.
        """

    def for_table(
        self,
        sample_weight: ArrayLike | None = None,
        pooled: bool = True,
        seed: int | None = None,
    ) -> "Method":
        """The same method, with options of one table of a model.

        Example:

        >>> counts = np.arange(1000)
        >>> method = Codes(16, 16).for_table(sample_weight=counts**0.5)

        Args:
            sample_weight: Optional array `(input_dim,)`, how much each row
                counts, e.g. how often its token occurs.
            pooled: Boolean. `False` for a layer that shall give rows though
                only a pooling reads them. Defaults to `True`.
            seed: Optional integer. Seed of learning, in place of that of
                `keras_compembed.compress_model`.
        """
        new = copy.copy(self)
        if sample_weight is not None:
            new.sample_weight = np.asarray(sample_weight)
        new.pooled = check_boolean("pooled", pooled)
        new.seed = check_seed(seed)
        return new

    @property
    def is_plain(self) -> bool:
        """Whether nothing is set that `start` does not know."""
        options = self.sample_weight, self.seed, self.recode_every
        return self.pooled and all(option is None for option in options)

    def tuned(self) -> "Method":
        """The same, with rows that are trained where they can be."""
        return self

    def folded(self) -> "Method | None":
        """The same with a layer behind in what rows share, if that can be."""
        return None

    def reason_against(self, input_dim: int, output_dim: int) -> str | None:
        """Why a table of this shape cannot be stored so, or None."""
        return None

    def quicker(self, effort: float) -> "Method":
        """The same method, whose fits take `effort` of the time, if it can."""
        return self

    def new_layer(
        self, fit: Fit, input_dim: int, output_dim: int, **kwargs: object
    ) -> LookupLayer:
        """A built layer of the shape of that of `fit.from_table`."""
        layer = self.rows(input_dim, output_dim, **fit.options, **kwargs)
        layer.build()
        return layer


def check_method(name, value):
    """Returns a `Method`, or raises an error that names the argument."""
    if not isinstance(value, Method):
        raise TypeError(
            f"`{name}` must be a method such as `keras_compembed.methods."
            f"Codes(16, 16)`. Received: {name}={value!r}."
        )
    return value
