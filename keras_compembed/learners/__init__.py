"""What learns the codes of a table."""

from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.learners.gumbel_code_learner import GumbelCodeLearner
from keras_compembed.learners.kd_code_learner import KDCodeLearner
from keras_compembed.learners.random_codes import RandomCodes
from keras_compembed.learners.temperature_schedule import TemperatureSchedule

__all__ = [
    "AdditiveQuantizer",
    "CodeLearner",
    "GumbelCodeLearner",
    "KDCodeLearner",
    "RandomCodes",
    "TemperatureSchedule",
]
