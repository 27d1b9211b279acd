"""Losses that layers add while devices synchronize in their calls."""

import keras
import tensorflow as tf


class ReplicaLosses(keras.layers.Layer):
    """Base of layers that add losses and synchronize devices in `call`.

    Devices then take turns within a step, and Keras keeps the losses of all
    in one list.
    """

    def add_replica_loss(self, loss):
        """Adds a loss that counts for the device it was computed on."""
        loss.replica_context = tf.distribute.get_replica_context()
        self.add_loss(loss)

    def _get_own_losses(self):
        context = tf.distribute.get_replica_context()
        return [
            loss
            for loss in super()._get_own_losses()
            if getattr(loss, "replica_context", context) is context
        ]
