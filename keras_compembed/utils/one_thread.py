"""Matrix products in one thread."""

import contextlib
import threading

import threadpoolctl

# The limit is one of the process: the first that enters sets it, and the last
# that leaves takes it back.
_LOCK = threading.Lock()
_USERS = []


@contextlib.contextmanager
def one_thread():
    """A context that keeps matrix products to one thread."""
    with _LOCK:
        limits = (
            _USERS[0]
            if _USERS
            else threadpoolctl.threadpool_limits(1, user_api="blas")
        )
        _USERS.append(limits)
    try:
        yield
    finally:
        with _LOCK:
            _USERS.pop()
            if not _USERS:
                limits.restore_original_limits()
