"""Learners of codes, from a table or along with a task."""

from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.learners.gumbel_code_learner import GumbelCodeLearner
from keras_compembed.learners.kd_code_learner import KDCodeLearner
from keras_compembed.learners.task_codes import SoftmaxCodes
from keras_compembed.learners.training import Training

__all__ = [
    "AdditiveQuantizer",
    "GumbelCodeLearner",
    "KDCodeLearner",
    "SoftmaxCodes",
    "Training",
]
