"""Tables as codes of codewords."""

import copy
import functools
import inspect
import math

import numpy as np

from keras_compembed.codes.packing import bytes_per_row
from keras_compembed.compositions.linear_composition import LinearComposition
from keras_compembed.compositions.registry import get_composition
from keras_compembed.compositions.registry import is_same_composition
from keras_compembed.layers.code_embed_reduce import CodeEmbedReduce
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.layers.reversible_code_embedding import (
    ReversibleCodeEmbedding,
)
from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.learners.factor_quantizer import FactorQuantizer
from keras_compembed.learners.registry import get_learner
from keras_compembed.methods.method import Fit
from keras_compembed.methods.method import Method
from keras_compembed.utils.sizes import count_litert_bytes
from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import require


class Codes(Method):
    """A short code for each row, whose codewords make up its vector.

    See `keras_compembed.CodeEmbedding`.

    Example:

    >>> method = Codes(16, 16)
    >>> method.name
    'codes 16x16'
    >>> method.litert_bytes(10_000, 64, quantize="int8")
    96384

    Args:
        num_codebooks: Integer. Subcodes per row (M). Defaults to `32`.
        codebook_size: Integer from 2 to 65536. Codewords per codebook (K).
            Defaults to `16`.
        composition: Optional composition of codewords: `"sum"`, `"concat"`,
            `"linear"`, `"lstm"` or a `Composition`. Defaults to `None`: that
            of the learner, or `"sum"`.
        learner: Optional callable `learner(num_codebooks, codebook_size)`
            that makes a `CodeLearner`. If it takes a `seed` too, it gets the
            one for learning where it has none of its own, and likewise
            `verbose=0`. Defaults to `None`: `AdditiveQuantizer`, with a `rank`
            `FactorQuantizer`, or for other compositions than `"sum"`
            `KDCodeLearner`.
        rank: Optional integer. Codewords are so wide, and a matrix makes
            vectors of their sums: composition `"linear"`, which is then not
            to be given. Defaults to `None`.
        effort: Positive number, see `AdditiveQuantizer`, for the learner by
            default. Defaults to `1.0`.

    Raises:
        ValueError: if a size is out of range, `rank` comes with a
            composition, or `learner` makes no learner.
    """

    rows = CodeEmbedding
    reduce = CodeEmbedReduce
    reversible = ReversibleCodeEmbedding
    is_by_row = True

    def __init__(
        self,
        num_codebooks=32,
        codebook_size=16,
        composition=None,
        learner=None,
        rank=None,
        effort=1.0,
    ):
        self.num_codebooks, self.codebook_size = check_code_shape(
            num_codebooks, codebook_size
        )
        self.effort = check_positive_number("effort", effort)
        self.rank = rank
        if rank is not None:
            check_positive_int("rank", rank)
            require(
                composition is None,
                "`rank` must be None with a composition.",
                rank=rank,
                composition=composition,
            )
        self._composition = composition
        # A learner may be a model, which can be called.
        is_function = callable(learner) and not isinstance(learner, CodeLearner)
        require(
            learner is None or is_function,
            "`learner` must be a function that makes a learner, such as the "
            "class `keras_compembed.learners.GumbelCodeLearner`.",
            learner=learner,
        )
        self.learner = learner

    @property
    def composition(self):
        if self.rank is not None:
            # Not before it is asked for: searches weigh thousands of methods.
            return LinearComposition(self.rank)
        return self._composition

    def with_settings(self, **settings):
        """Returns a `Codes` with other arguments; `composition` drops `rank`.

        Args:
            **settings: Arguments of `Codes`.
        """
        mine = {
            "num_codebooks": self.num_codebooks,
            "codebook_size": self.codebook_size,
            "composition": self._composition,
            "learner": self.learner,
            "rank": None if settings.get("composition") else self.rank,
            "effort": self.effort,
        }
        return Codes(**{**mine, **settings})

    @property
    def name(self):
        name = f"codes {self.num_codebooks}x{self.codebook_size}"
        if self.rank is not None:
            return f"{name} rank {self.rank}"
        if self.composition in (None, "sum"):
            return name
        kind = getattr(self.composition, "name", self.composition)
        return f"{name} {kind}"

    def start(self, seed=None, verbose=0):
        shape = self.num_codebooks, self.codebook_size
        options = {"seed": seed, "verbose": verbose}
        if self.learner is not None:
            learner = self._call_learner(shape, seed, verbose)
        elif self.rank is not None:
            learner = FactorQuantizer(
                *shape, self.rank, effort=self.effort, **options
            )
        elif self.composition in (None, "sum"):
            learner = AdditiveQuantizer(*shape, effort=self.effort, **options)
        else:
            learner = None
        learner = get_learner(learner, self.composition, *shape, **options)

        shape = {
            "num_codebooks": self.num_codebooks,
            "codebook_size": self.codebook_size,
        }
        return Fit(
            {**shape, "composition": learner.composition},
            functools.partial(
                CodeEmbedding.from_table, learner=learner, **shape
            ),
        )

    def _call_learner(self, shape, seed, verbose):
        taken = inspect.signature(self.learner).parameters
        options = {} if verbose or "verbose" not in taken else {"verbose": 0}
        learner = self.learner(*shape, **options)
        if "seed" in taken and getattr(learner, "seed", seed) is None:
            return self.learner(*shape, **options, seed=seed)
        return learner

    def litert_bytes(self, input_dim, output_dim, quantize=None):
        shape = self.num_codebooks, self.codebook_size
        codewords = math.prod(shape)
        if self.rank is not None:
            matrices = [codewords * self.rank, output_dim * self.rank]
        elif self.composition in (None, "sum"):
            matrices = [codewords * output_dim]
        else:
            composition = get_composition(self.composition, *shape, output_dim)
            shapes = [composition.codebooks_shape]
            shapes += [weight.shape for weight in composition.weights]
            matrices = map(math.prod, shapes)
        return input_dim * bytes_per_row(*shape) + sum(
            count_litert_bytes(numbers, quantize) for numbers in matrices
        )

    def reason_against(self, input_dim, output_dim):
        if self.rank is not None and self.rank > output_dim:
            return f"it is narrower than rank {self.rank}"
        if self.num_codebooks > output_dim and is_same_composition(
            self.composition or "sum", "concat"
        ):
            return "it is narrower than `num_codebooks` parts side by side"
        return None

    def quicker(self, effort):
        if self.learner is not None:
            return self
        quick = copy.copy(self)
        quick.effort = self.effort * effort
        return quick

    def new_layer(self, cls, fit, input_dim, output_dim, **kwargs):
        # Random codes would take time, and be of no use.
        codes = np.zeros((input_dim, self.num_codebooks), "uint8")
        return cls(input_dim, output_dim, codes=codes, **fit.options, **kwargs)
