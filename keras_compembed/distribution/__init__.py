"""Training on several machines with Keras `fit`."""

from keras_compembed.distribution.multi_worker_fit import multi_worker_fit
from keras_compembed.distribution.multi_worker_fit import wait_for_workers
from keras_compembed.distribution.worker_backup import WorkerBackup

__all__ = ["WorkerBackup", "multi_worker_fit", "wait_for_workers"]
