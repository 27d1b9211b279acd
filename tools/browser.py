"""Drives a Chromium without a window, by its DevTools protocol."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SECONDS = 60


def find_chromium():
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """A Chromium with one page; use it in a `with` block.

    Attributes:
        addresses: List of strings, what the page has asked for so far.
        errors: List of strings, exceptions that no code caught.
    """

    def __init__(self, path):
        self.addresses = []
        self.errors = []
        self._path = path
        self._numbers = itertools.count(1)
        self._unread = b""

    def __enter__(self):
        self._profile = tempfile.mkdtemp()
        ours, self._commands = os.pipe()
        self._answers, theirs = os.pipe()
        # It reads from 3 and writes to 4.
        command = (
            'exec "$0" --headless=new --no-sandbox --disable-gpu '
            "--no-first-run --disable-background-networking "
            "--remote-debugging-pipe "
            f'"--user-data-dir={self._profile}" 3<&{ours} 4>&{theirs}'
        )
        self._process = subprocess.Popen(
            ["bash", "-c", command, self._path],
            pass_fds=(ours, theirs),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours)
        os.close(theirs)
        self._session = None
        target = self.send("Target.createTarget", url="about:blank")
        self._session = self.send(
            "Target.attachToTarget", flatten=True, **target
        )["sessionId"]
        for domain in ("Network", "Page", "Runtime"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
        shutil.rmtree(self._profile, ignore_errors=True)

    def send(self, method, **parameters):
        """The result of a method of the protocol."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def run(self, code):
        """The value of JavaScript, which may be a promise of it."""
        result = self.send(
            "Runtime.evaluate",
            expression=code,
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, code):
        """Waits until JavaScript is true."""
        end = time.monotonic() + _SECONDS
        while not self.run(code):
            assert time.monotonic() < end, self.run("document.body.innerText")
            time.sleep(0.05)

    def open(self, address, until="true"):
        """Opens an address, and waits until JavaScript is true there."""
        self.send("Page.navigate", url=address)
        there = f"location.href == {json.dumps(address)}"
        self.wait(f"{there} && document.readyState == 'complete' && {until}")

    def type(self, text):
        """Types into what has the focus."""
        self.send("Input.insertText", text=text)

    def press(self, key, code, text=""):
        """Presses a key, e.g. `press("Enter", 13, "\\r")`."""
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                text=text,
                windowsVirtualKeyCode=code,
            )

    def picture(self):
        """What is to be seen, as a PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot")["data"])

    def _read(self):
        while b"\0" not in self._unread:
            read = os.read(self._answers, 1 << 16)
            assert read, "Chromium has ended."
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\0")
        message = json.loads(line)
        details = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.addresses.append(details["request"]["url"])
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(details))
        return message
