"""Learners by default, and ways to learn codes with a task by name."""

import keras

from keras_compembed.compositions.registry import is_same_composition
from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.learners.following_codes import FollowingCodes
from keras_compembed.learners.kd_code_learner import KDCodeLearner
from keras_compembed.learners.nearest_codes import NearestCodes
from keras_compembed.learners.softmax_codes import SoftmaxCodes
from keras_compembed.learners.task_codes import TaskCodes

_TASK_CODES = {
    "softmax": SoftmaxCodes,
    "nearest": NearestCodes,
    "follow": FollowingCodes,
}


def get_task_codes(identifier):
    """A new `TaskCodes`, or None."""
    if identifier is None:
        return None
    if isinstance(identifier, str) and identifier in _TASK_CODES:
        return _TASK_CODES[identifier]()
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, TaskCodes):
        return identifier.copy()
    names = ", ".join(repr(name) for name in _TASK_CODES)
    raise ValueError(
        f"`learn_codes` must be None, {names} or an instance such as "
        "`keras_compembed.learners.SoftmaxCodes(temperature=0.5)`. "
        f"Received: learn_codes={identifier!r}."
    )


def get_learner(learner, composition, num_codebooks, codebook_size, **kwargs):
    """A learner that fits a layer."""
    shape = num_codebooks, codebook_size
    if learner is None:
        if composition in (None, "sum"):
            return AdditiveQuantizer(*shape, **kwargs)
        return KDCodeLearner(*shape, composition=composition, **kwargs)
    if not isinstance(learner, CodeLearner):
        raise ValueError(
            "`learner` must be a learner, such as "
            f"`keras_compembed.learners.AdditiveQuantizer{shape}`. "
            f"Received: learner={learner!r}."
        )
    got = learner.num_codebooks, learner.codebook_size
    if got != shape:
        raise ValueError(
            "`learner` must have the layer's `num_codebooks` and "
            f"`codebook_size`, {shape}. Received: a learner with {got}."
        )
    seed = kwargs.get("seed")
    if seed is not None and getattr(learner, "seed", seed) is None:
        raise ValueError(
            "`seed` must be None with a `learner` that has none: give it to "
            f"the learner, `{type(learner).__name__}(..., seed={seed})`. "
            f"Received: {seed=}."
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
    return learner
