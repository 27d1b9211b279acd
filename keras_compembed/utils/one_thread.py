"""Matrix products in one thread."""

import threadpoolctl


def one_thread():
    """A context that keeps matrix products to one thread.

    Many small ones gain little from more, and threads that wait for each
    other by spinning lose much wherever other work holds a core.
    """
    return threadpoolctl.threadpool_limits(1, user_api="blas")
