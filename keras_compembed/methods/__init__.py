"""Ways to store a table of vectors in few bytes."""

from keras_compembed.methods.anchors import Anchors
from keras_compembed.methods.codes import Codes
from keras_compembed.methods.hashed import Hashed
from keras_compembed.methods.method import Fit
from keras_compembed.methods.method import Method
from keras_compembed.methods.pruned import Pruned
from keras_compembed.methods.quotient_remainder import QuotientRemainder
from keras_compembed.methods.rounded import Rounded
from keras_compembed.methods.tensor_train import TensorTrain
from keras_compembed.methods.vocabulary import Vocabulary

__all__ = [
    "Anchors",
    "Codes",
    "Fit",
    "Hashed",
    "Method",
    "Pruned",
    "QuotientRemainder",
    "Rounded",
    "TensorTrain",
    "Vocabulary",
]
