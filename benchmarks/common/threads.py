"""One thread, so that processor time is that of the method."""

import os

_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)


def use_one_thread():
    """Before NumPy and TensorFlow, which read it when they are imported."""
    for variable in _VARIABLES:
        os.environ.setdefault(variable, "1")
