"""Ctrl-C as a wish to stop, which what runs may have answered itself."""

import contextlib
import signal
import threading


class StopRequest:
    """Whether to go on."""

    def __init__(self):
        self.is_set = False
        self._waits = False

    @contextlib.contextmanager
    def waiting(self):
        """Lets a first Ctrl-C only be noted, in a block of a few seconds."""
        before, self._waits = self._waits, True
        try:
            yield
        finally:
            self._waits = before

    @contextlib.contextmanager
    def watching(self):
        """Is set by Ctrl-C, which does what it did before, too."""
        before = signal.getsignal(signal.SIGINT)
        in_main = threading.current_thread() is threading.main_thread()
        if not in_main or not callable(before):
            yield self
            return

        def note(signum, frame):
            is_first = not self.is_set
            self.is_set = True
            try:
                before(signum, frame)
            except KeyboardInterrupt:
                if not (is_first and self._waits):
                    raise

        signal.signal(signal.SIGINT, note)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)
