"""Matrix products of several learners at once."""

import contextlib

import threadpoolctl

from keras_compembed.utils.one_thread import one_thread


def blas_threads():
    pools = threadpoolctl.ThreadpoolController().select(user_api="blas")
    return {pool["num_threads"] for pool in pools.info()}


def test_the_last_that_leaves_takes_the_limit_back():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        with contextlib.ExitStack() as second:
            with one_thread():
                second.enter_context(one_thread())
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == {2}


def test_an_error_leaves_no_limit():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        with contextlib.suppress(KeyError), one_thread():
            raise KeyError
        assert blas_threads() == {2}
