"""The most memory that LiteRT files take to run once, on Linux.

A file is read into memory whole, as on a phone. The figure is the largest
resident set of a process, less what it was before, in a fork of a process that
never imported TensorFlow.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

_STATUS = pathlib.Path("/proc/self/status")
_CLEAR = pathlib.Path("/proc/self/clear_refs")
_SECONDS = 0.05


@contextlib.contextmanager
def measuring():
    """Gives a function of files, a list of `(path, shapes)`."""
    command = [sys.executable, "-m", "benchmarks.common.peak_memory"]
    root = pathlib.Path(__file__).parents[2]
    with subprocess.Popen(
        command,
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:

        def measure(files):
            request = [
                (os.path.abspath(path), list(shapes.items()))
                for path, shapes in files
            ]
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline() or '"no answer"')
            if isinstance(answer, str):
                raise RuntimeError(f"Memory was not measured: {answer}")
            return answer["bytes"]

        yield measure
        process.stdin.close()


def main():
    # Loaded before any process is forked off.
    from benchmarks.common import litert  # noqa: F401

    for line in sys.stdin:
        child = os.fork()
        if not child:
            _answer(json.loads(line))
            os._exit(0)
        os.waitpid(child, 0)


def _answer(files):
    try:
        answer = {"bytes": _run(files)}
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)


def _run(files):
    from benchmarks.common import litert

    if not _STATUS.exists():
        return None
    # Code that runs is read from disk: not for the file's account.
    for path, shapes in files:
        litert.File(path, dict(shapes)).run_on_zeros()
    kept = []
    with counting() as count:
        for path, shapes in files:
            content = pathlib.Path(path).read_bytes()
            file = litert.File(content, dict(shapes))
            file.run_on_zeros()
            kept.append((content, file))
    return count()


@contextlib.contextmanager
def counting():
    """Gives a function of the most bytes that this process took within."""
    before = peak = 0
    if _STATUS.exists():
        # What is free would be taken again, unseen.
        ctypes.CDLL(None).malloc_trim(0)
        # The largest resident set is counted from here on.
        _CLEAR.write_text("5")
        before = _kilobytes("VmRSS")

    def count():
        return 1024 * (peak - before) if _STATUS.exists() else None

    yield count
    if _STATUS.exists():
        peak = _kilobytes("VmHWM")


@contextlib.contextmanager
def counting_own():
    """`counting`, of memory without pages of files, looked at now and then."""
    before = peak = _kilobytes("RssAnon") if _STATUS.exists() else 0
    ended = threading.Event()

    def watch():
        nonlocal peak
        while _STATUS.exists() and not ended.wait(_SECONDS):
            peak = max(peak, _kilobytes("RssAnon"))

    def count():
        return 1024 * (peak - before) if _STATUS.exists() else None

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield count
    finally:
        ended.set()
        thread.join()


def _kilobytes(name):
    (number,) = re.findall(rf"{name}:\s+(\d+) kB", _STATUS.read_text())
    return int(number)


if __name__ == "__main__":
    main()
