"""Ctrl-C, and other signals that ask the process to end."""

import contextlib
import os
import signal
import sys

from keras_compembed.cli.lines import PROGRAM
from keras_compembed.utils.files import remove_temporary_folders

_LINES = {
    "SIGINT": "interrupted",
    "SIGTERM": "terminated",
    "SIGHUP": "the terminal was closed",
}


class Stops:
    """Ends the process when it is asked to, with nothing half-written."""

    def __init__(self):
        self.asked = False
        self._raises = False

    def listen(self):
        """Ends the process on a signal, from now on."""
        for name in _LINES:
            number = getattr(signal, name, None)
            # Ignored in the background, e.g. by `nohup`.
            if number and signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._stop)

    def ignore(self):
        """Lets nothing end the process, which is about to end, from now on."""
        for name in _LINES:
            number = getattr(signal, name, None)
            if number and signal.getsignal(number) == self._stop:
                signal.signal(number, signal.SIG_IGN)

    @contextlib.contextmanager
    def raising_once(self):
        """Makes a first Ctrl-C a `KeyboardInterrupt`, in a block."""
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def _stop(self, number, frame):
        if number == signal.SIGINT and self._raises and not self.asked:
            self.asked = True
            raise KeyboardInterrupt
        try:
            remove_temporary_folders()
            line = _LINES[signal.Signals(number).name]
            # Not `print`, which may be what was interrupted.
            if sys.stderr.isatty():
                os.write(2, b"\n")
            os.write(2, f"{PROGRAM}: error: {line}\n".encode())
        finally:
            # Even where the terminal is gone.
            os._exit(128 + number)
