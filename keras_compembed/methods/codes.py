"""Tables as codes and codebooks."""

import copy
import functools
import inspect
import math
from collections.abc import Callable

import numpy as np

from keras_compembed.compositions.composition import Composition
from keras_compembed.compositions.composition import LinearComposition
from keras_compembed.compositions.composition import get_composition
from keras_compembed.compositions.composition import is_same_composition
from keras_compembed.layers.code_embedding import CodeEmbedding
from keras_compembed.layers.code_embedding import get_learner
from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.learners.additive_quantizer import FactorQuantizer
from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.learners.task_codes import get_task_codes
from keras_compembed.methods.method import Fit
from keras_compembed.methods.method import Method
from keras_compembed.stores.codes import count_code_bytes
from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import require


class Codes(Method):
    """Stores each row as a short code that picks codewords from codebooks.

    The vector is the sum of the codewords, or another composition of them. See
    `keras_compembed.CodeEmbedding`.

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
        composition: Optional composition of codewords, see `CodeEmbedding`.
            Defaults to `None`: the learner's, or `"sum"`.
        learner: Optional callable `learner(num_codebooks, codebook_size)` that
            returns a `CodeLearner`. It gets `seed` and `verbose` if it has
            these arguments. Defaults to `None`: `AdditiveQuantizer`,
            `FactorQuantizer` with a `rank`, or `KDCodeLearner` for compositions
            other than `"sum"`.
        rank: Optional integer. Low-rank codes: codewords have this width, and a
            matrix maps their sum to a vector (composition `"linear"`). Excludes
            `composition`. Defaults to `None`.
        effort: Positive number. How long the default learner searches, see
            `AdditiveQuantizer`. Defaults to `1.0`.
        recode_every: Optional integer. Lets codes follow the task: the callback
            `keras_compembed.compression.RecodeEmbeddings` updates them every
            this number of training steps. Defaults to `None`: codes are fixed.

    Raises:
        ValueError: If an argument is out of range.
    """

    rows = CodeEmbedding
    combines = reverses = is_by_row = True

    def __init__(
        self,
        num_codebooks: int = 32,
        codebook_size: int = 16,
        composition: str | tuple | Composition | None = None,
        learner: Callable | None = None,
        rank: int | None = None,
        effort: float = 1.0,
        recode_every: int | None = None,
    ):
        self.num_codebooks, self.codebook_size = check_code_shape(
            num_codebooks, codebook_size
        )
        self.effort = check_positive_number("effort", effort)
        self.rank = check_positive_int("rank", rank, optional=True)
        self.recode_every = check_positive_int(
            "recode_every", recode_every, optional=True
        )
        require(
            rank is None or composition is None,
            "`rank` must be None with a `composition`.",
            rank=rank,
            composition=composition,
        )
        self._composition = composition
        # A learner may be a model, and models are callable.
        is_function = callable(learner) and not isinstance(learner, CodeLearner)
        require(
            learner is None or is_function,
            "`learner` must be a callable that returns a learner, such as "
            "`keras_compembed.learners.GumbelCodeLearner`.",
            learner=learner,
        )
        self.learner = learner

    @property
    def composition(self):
        if self.rank is not None:
            # Made on demand: searches compare thousands of methods.
            return LinearComposition(self.rank)
        return self._composition

    @property
    def name(self):
        name = f"codes {self.num_codebooks}x{self.codebook_size}"
        if self.rank is not None:
            return f"{name} rank {self.rank}"
        if self.composition in (None, "sum"):
            return name
        kind = self.composition
        if isinstance(kind, tuple):
            kind = " ".join(map(str, kind))
        return f"{name} {getattr(kind, 'name', kind)}"

    def start(self, seed=None, verbose=0):
        shape = {
            "num_codebooks": self.num_codebooks,
            "codebook_size": self.codebook_size,
        }
        options = {**shape, "seed": seed, "verbose": verbose}
        learner = None
        if self.learner is not None:
            learner = self._call_learner(shape.values(), seed, verbose)
        elif self.rank is not None:
            learner = FactorQuantizer(
                rank=self.rank, effort=self.effort, **options
            )
        elif self.composition in (None, "sum"):
            learner = AdditiveQuantizer(effort=self.effort, **options)
        learner = get_learner(learner, self.composition, **options)
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
        return count_code_bytes(input_dim, shape, matrices, quantize)

    def folded(self):
        # The matrix is merged into the codebooks.
        return Codes(self.num_codebooks, self.codebook_size)

    def reason_against(self, input_dim, output_dim):
        if self.rank is not None and self.rank > output_dim:
            return f"it has fewer columns than rank {self.rank}"
        if self.num_codebooks > output_dim and is_same_composition(
            self.composition or "sum", "concat"
        ):
            return "it has fewer columns than `num_codebooks`"
        return None

    def quicker(self, effort):
        if self.learner is not None:
            return self
        new = copy.copy(self)
        new.effort *= effort
        return new

    def new_layer(self, fit, input_dim, output_dim, codes=None, **kwargs):
        # Zeros: random codes would only take time.
        zeros = np.zeros((input_dim, self.num_codebooks), "uint8")
        codes, _ = get_task_codes(codes)
        if codes is not None:
            codes.first_codes = zeros
        options = {"codes": codes or zeros, **fit.options, **kwargs}
        return self.rows(input_dim, output_dim, **options)
