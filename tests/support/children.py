"""Processes that start in a moment: a server that imported TensorFlow forks.

The server has run no op, so its children may. Where a process listens for
others, or must import by itself, use `subprocess`.
"""

import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["keras_compembed"])


def start(target, *arguments):
    """Starts a function of a module in a process, and returns the process."""
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    return process


def run_python(code, *arguments, folder=None, **environment):
    """Runs code as `python -c` does; returns a `subprocess.CompletedProcess`.

    In a folder, or that of this process, with variables of the environment.
    """
    arguments = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as temporary:
        streams = [pathlib.Path(temporary, name) for name in ("out", "err")]
        process = start(
            _run,
            code,
            arguments,
            os.path.abspath(folder or os.getcwd()),
            {**os.environ, **environment},
            sys.path,
            streams,
        )
        process.join()
        texts = [stream.read_text() for stream in streams]
    return subprocess.CompletedProcess(
        ["-c", *arguments], process.exitcode, *texts
    )


def _run(code, arguments, folder, environment, path, streams):
    for number, stream in enumerate(streams, 1):
        file = os.open(stream, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    sys.path[:] = path
    exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})
    sys.stdout.flush()
