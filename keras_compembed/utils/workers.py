"""What several workers, under one strategy, can share."""

import tensorflow as tf

# What TensorFlow sends from worker to worker when variables are made.
_SENT = ("bool", "float16", "float32", "float64", "int32", "int64")


def has_workers(strategy):
    """Whether a `tf.distribute.Strategy` is of several workers."""
    return (
        isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        and strategy.extended._in_multi_worker_mode()
    )


def check_sent(layer, dtype):
    """Raises if workers cannot be sent a variable of this dtype.

    Args:
        layer: The layer that makes it.
        dtype: String, or None for that of the layer.

    Raises:
        ValueError: if the layer is made under a strategy of several workers.
    """
    if dtype in (None, *_SENT) or not has_workers(tf.distribute.get_strategy()):
        return
    raise ValueError(
        f"{type(layer).__name__} must be made on one machine: TensorFlow sends "
        f"no {dtype} from worker to worker, as tables of codes and of rounded "
        "numbers are. Received: the layer "
        f"{layer.name!r} under a MultiWorkerMirroredStrategy of several "
        "workers. Train with an `ANTEmbedding` or a table there, and make "
        "codes after."
    )
