"""Training on several machines by Keras's `fit`."""

from keras_compembed.distribution.multi_worker_fit import multi_worker_fit

__all__ = ["multi_worker_fit"]
