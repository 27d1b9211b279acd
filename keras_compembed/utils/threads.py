"""Threads of the library behind NumPy's matrix products."""

import contextlib
import ctypes

import numpy as np

_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)


@contextlib.contextmanager
def single_blas_thread():
    """Keeps NumPy's matrix products to one thread, where it uses OpenBLAS.

    Many small products gain little from threads, and OpenBLAS's threads wait
    for each other by spinning: where other work holds a core, or a container
    has fewer cores than the machine, each product then takes a time slice of
    the scheduler, tens of milliseconds instead of one.
    """
    functions = _openblas()
    if functions is None:
        yield
        return
    get, put = functions
    threads = get()
    put(1)
    try:
        yield
    finally:
        put(threads)


def _openblas():
    """Functions that get and set the number of threads, or None."""
    core = getattr(np, "_core", None) or np.core
    try:
        # Names are looked up in the libraries that this one links, too.
        library = ctypes.CDLL(core._multiarray_umath.__file__)
    except (AttributeError, OSError):
        return None
    for name in _NAMES:
        get = getattr(library, name.format("get"), None)
        put = getattr(library, name.format("set"), None)
        if get and put:
            get.argtypes, get.restype = (), ctypes.c_int
            put.argtypes, put.restype = (ctypes.c_int,), None
            return get, put
    return None
