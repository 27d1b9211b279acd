import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import contextlib
import ctypes
import functools
import gc
import importlib.metadata
import pathlib
import signal
import sys

# What XLA compiles is run a few times only, and is the same in the next run.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
os.environ.setdefault(
    "TF_XLA_FLAGS",
    "--tf_xla_persistent_cache_directory="
    f"{pathlib.Path(__file__).parents[1]}/.cache/"
    f"xla-{importlib.metadata.version('tensorflow')}",
)

import keras
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops

# Before TensorFlow runs anything: afterwards devices cannot be added.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration() for _ in range(2)],
)

# Arenas of threads that compile and run graphs, each of 64 MB: a few will do.
M_ARENA_MAX = -8
LIBC = ctypes.CDLL("libc.so.6") if sys.platform == "linux" else None
if LIBC is not None:
    LIBC.mallopt(M_ARENA_MAX, 2)


# A shell that runs tests in the background has them ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def forget_custom_gradients():
    """TensorFlow keeps its own, and with each the graph it was traced in."""
    gradients = ops.gradient_registry._registry
    for name in list(gradients):
        if name.startswith("CustomGradient-"):
            del gradients[name]


@pytest.fixture(scope="module", autouse=True)
def clean_up():
    """Hands memory back between files, and keeps collections short.

    Keras, TensorFlow and pytest collect garbage often. What is there before
    the first test of a file, modules above all, is left out: looking through
    it takes half a second each time. So no garbage may be left by then, and
    pytest lets go of what the last test of a file had only after its end.
    """
    forget_custom_gradients()
    gc.collect()
    # Of graphs that are gone, too.
    keras.utils.clear_session()
    if LIBC is not None:
        LIBC.malloc_trim(0)
    gc.freeze()


# The class that has it: Keras asks whether a model's `compile` is its own.
TRAINER = next(each for each in keras.Model.__mro__ if "compile" in vars(each))
COMPILE = TRAINER.compile


@functools.wraps(COMPILE)
def compile_and_build(model, *args, **kwargs):
    """Builds the optimizer, too: in `fit`, the step would be traced twice."""
    COMPILE(model, *args, **kwargs)
    optimizer = model.optimizer
    # Keras builds those of a file again, which a loss scale does not bear.
    scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if model.built and optimizer is not None and not scaled:
        optimizer.build(model.trainable_variables)


@contextlib.contextmanager
def compiling_by(function):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TRAINER, "compile", function)
        yield


@pytest.fixture(scope="session", autouse=True)
def built_optimizers():
    with compiling_by(compile_and_build):
        yield


@pytest.fixture(scope="session")
def compiling_as_keras():
    """A function; in its context, `fit` builds optimizers, not `compile`."""
    return lambda: compiling_by(COMPILE)


@pytest.fixture(scope="session")
def strategy():
    """Two devices. A second such strategy in one process would fail."""
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"],
        cross_device_ops=tf.distribute.HierarchicalCopyAllReduce(),
    )


@pytest.fixture(scope="session")
def data_dir():
    """The folder of real data, for tests marked `data`."""
    folder = os.environ.get("COMPEMBED_DATA")
    if not folder:
        pytest.skip("COMPEMBED_DATA does not name a folder of data")
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        pytest.fail(f"COMPEMBED_DATA must be a folder. Received: {folder}")
    return folder


def pytest_collection_modifyitems(items):
    # The longest first, so that two processes end together.
    files = {item.path for item in items if "slow" in item.keywords}
    items.sort(key=lambda item: item.path not in files)
    if os.environ.get("COMPEMBED_DATA"):
        return
    skip = pytest.mark.skip(reason="needs COMPEMBED_DATA")
    for item in items:
        if "data" in item.keywords:
            item.add_marker(skip)
