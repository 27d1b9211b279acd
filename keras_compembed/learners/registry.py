"""The learner of a table by default."""

from keras_compembed.compositions.composition import is_same_composition
from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.learners.kd_code_learner import KDCodeLearner
from keras_compembed.utils.validation import require


def get_learner(learner, composition, num_codebooks, codebook_size, **kwargs):
    shape = num_codebooks, codebook_size
    if learner is None:
        if composition in (None, "sum"):
            return AdditiveQuantizer(*shape, **kwargs)
        return KDCodeLearner(*shape, composition=composition, **kwargs)
    require(
        isinstance(learner, CodeLearner),
        "`learner` must be a learner, such as "
        f"`keras_compembed.learners.AdditiveQuantizer{shape}`.",
        learner=learner,
    )
    got = learner.num_codebooks, learner.codebook_size
    require(
        got == shape,
        "`learner` must have the layer's `num_codebooks` and "
        f"`codebook_size`, {shape}.",
        shape=got,
    )
    seed = kwargs.get("seed")
    require(
        seed is None or getattr(learner, "seed", seed) is not None,
        "`seed` must be None with a `learner` that has none: give it to the "
        f"learner, `{type(learner).__name__}(..., seed={seed})`.",
        seed=seed,
    )
    require(
        composition is None
        or is_same_composition(composition, learner.composition),
        "`composition` must be that of the `learner`. To compose its codes in "
        "another way, pass `codes=learner.codes` to the layer itself.",
        composition=composition,
    )
    return learner
