"""Codes by annealed coordinate search."""

import numpy as np

from keras_compembed.learners.beam_encoding import encode_rows
from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.learners.kept_codes import KeptCodes
from keras_compembed.learners.quantizer_run import QuantizerRun
from keras_compembed.utils.one_thread import one_thread
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_fitted_table
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_sample_weight
from keras_compembed.utils.validation import check_seed


class AdditiveQuantizer(CodeLearner):
    """Learns codes whose codewords add up to the rows of a table.

    Alternates between codes and codebooks: a sweep draws each subcode anew
    with the others fixed, at a temperature that falls, then least squares
    fits the codebooks to the codes. At the end sweeps take the best subcode.
    Tables of 10,000 rows or more start from the codes of a linear encoder
    trained for a moment, which saves most of the sweeps.

    It needs memory for a few copies of codes and codebooks, and of a bounded
    part of the table. It runs on one core, or within
    `joblib.parallel_config` on several, or on several machines: for tables
    of 100,000 rows or more, with the same result.

    Ctrl-C stops `train` early: codes are improved once more, and the best
    found so far are kept. A second Ctrl-C leaves out the improvement.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> quantizer = AdditiveQuantizer(
    ...     num_codebooks=8, codebook_size=16, seed=0, verbose=0
    ... )
    >>> quantizer.train(table).codes.shape
    (1000, 8)
    >>> quantizer.decode(quantizer.codes).shape
    (1000, 64)

    Args:
        num_codebooks: Integer. Subcodes per row (M). Defaults to `32`.
        codebook_size: Integer from 2 to 65536. Codewords per codebook (K).
            Defaults to `16`.
        effort: Positive number. How long to search, for a lower loss: time
            is about proportional to it. Defaults to `1.0`.
        seed: Optional integer. Makes `train` and `encode` repeatable.
        verbose: `0` or `1`, whether to show progress. Defaults to `1`.
        cache: Optional string or path-like, a folder. Finished codes are kept
            there, in a file named by a hash of table and settings, and
            `train` reads them instead of learning the same again. Nothing is
            kept without a seed, nor after Ctrl-C. Defaults to `None`.

    Attributes:
        codes: Unsigned integers `(rows, num_codebooks)`, None before `train`.
        codebooks: float32 `(num_codebooks, codebook_size, columns)`, or None.
        history: Dict of lists. `"loss"` is the mean squared distance of a row
            (of the rows in recent batches, while the encoder is trained), and
            last that of the codes and codebooks kept, the best of the run;
            `"seconds"` is the time since the start.

    References:
        - Babenko & Lempitsky, Additive Quantization for Extreme Vector
          Compression, CVPR 2014
        - Martinez et al., LSQ++: Lower Running Time and Higher Recall in
          Multi-Codebook Quantization, ECCV 2018 (annealing)
        - [Bengio et al., 2013](https://arxiv.org/abs/1308.3432) (gradients
          straight through the choice of codes)
    """

    def __init__(
        self,
        num_codebooks=32,
        codebook_size=16,
        effort=1.0,
        seed=None,
        verbose=1,
        cache=None,
    ):
        self.num_codebooks, self.codebook_size = check_code_shape(
            num_codebooks, codebook_size
        )
        self.effort = check_positive_number("effort", effort)
        self.seed = check_seed(seed)
        self.cache = cache
        self.verbose = check_choice("verbose", verbose, (0, 1, 2))
        self.history = {"loss": [], "seconds": []}

    def train(self, table, sample_weight=None):
        table = check_fitted_table(table, shards=True)
        weight = check_sample_weight(sample_weight, len(table))
        settings = {
            "num_codebooks": self.num_codebooks,
            "codebook_size": self.codebook_size,
            "effort": self.effort,
            "seed": self.seed,
        }
        folder = None if self.seed is None else self.cache
        kept = KeptCodes(folder, settings, table, weight)
        found, run = kept.load(), None
        if found is None:
            run = QuantizerRun(self, table, weight)
            with one_thread():
                found = run.run()
        self._keep(**found)
        if run is not None and run.is_whole:
            kept.save(**found)
        return self

    def encode(self, table):
        table = self._check_new_rows(table)
        with one_thread():
            return encode_rows(
                table, self.codebooks, np.random.default_rng(self.seed)
            )
