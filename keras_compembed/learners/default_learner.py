"""Learners that fit a layer."""

from keras_compembed.compositions.registry import is_same_composition
from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.learners.kd_code_learner import KDCodeLearner


def default_learner(composition, num_codebooks, codebook_size, **kwargs):
    if composition in (None, "sum"):
        return AdditiveQuantizer(num_codebooks, codebook_size, **kwargs)
    return KDCodeLearner(
        num_codebooks, codebook_size, composition=composition, **kwargs
    )


def check_learner(learner, num_codebooks, codebook_size, composition):
    got = (learner.num_codebooks, learner.codebook_size)
    if got != (num_codebooks, codebook_size):
        raise ValueError(
            "`learner` must have the layer's `num_codebooks` and "
            f"`codebook_size`, {(num_codebooks, codebook_size)}. "
            f"Received: a learner with {got}."
        )
    if composition is not None and not is_same_composition(
        composition, learner.composition
    ):
        raise ValueError(
            "`composition` must be that of the `learner`. Received: "
            f"composition={composition!r} and a learner with "
            f"{learner.composition!r}. To compose its codes in another way, "
            "pass `codes=learner.codes` to the layer itself."
        )
