"""Results as JSON, with what made them."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re

from keras_compembed.utils.files import replacing

FORMAT = 1
_PACKAGES = (
    "keras-compembed",
    "keras",
    "tensorflow",
    "numpy",
    "ai-edge-litert",
    "faiss-cpu",
)


class Record:
    """Rows of a benchmark and their figures for each seed."""

    def __init__(self, benchmark, path=None, command=None):
        self.benchmark, self.command = benchmark, command
        self.path = None if path is None else pathlib.Path(path)
        self.made_by, self.rows = [], []
        if self.path is not None and self.path.exists():
            self._read()

    def _read(self):
        content = json.loads(self.path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            content = {}
        if self.benchmark is None:
            self.benchmark = content.get("benchmark")
        wanted = {"format": FORMAT, "benchmark": self.benchmark}
        for name, value in wanted.items():
            if content.get(name) != value:
                raise ValueError(
                    f"`{name}` of {self.path} must be {value!r}. "
                    f"Received: {name}={content.get(name)!r}"
                )
        self.made_by, self.rows = content["made_by"], content["rows"]

    def find(self, name, row, settings):
        """The row, or None."""
        wanted = plain({"name": name, "row": row, "settings": settings})
        for found in self.rows:
            if wanted.items() <= found.items():
                return found
        return None

    def has(self, name, row, settings, seed):
        found = self.find(name, row, settings)
        return found is not None and any(
            run["seed"] == seed for run in found["runs"]
        )

    def add(self, name, row, settings, seed, figures):
        """Adds the figures of one seed, and writes the file."""
        found = self.find(name, row, settings)
        if found is None:
            key = {"name": name, "row": row, "settings": settings}
            found = plain(key) | {"runs": []}
            self.rows.append(found)
        maker = {"command": self.command, **surroundings()}
        if maker not in self.made_by:
            self.made_by.append(maker)
        found["runs"].append(
            {
                "seed": seed,
                "date": datetime.date.today().isoformat(),
                "made_by": self.made_by.index(maker),
                "figures": plain(figures),
            }
        )
        if self.path is not None:
            self.write()

    def write(self):
        """Writes the file, whole or not at all."""
        text = dumps(
            {
                "format": FORMAT,
                "benchmark": self.benchmark,
                "made_by": self.made_by,
                "rows": self.rows,
            }
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path, overwrite=True) as beside:
            pathlib.Path(beside).write_text(text + "\n", encoding="utf-8")


def surroundings():
    """Versions and processor that figures of this process are measured with."""
    return {
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "processor": _processor(),
    }


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    named = re.search(r"^model name\s*: (.*)$", text, re.M)
    return named[1] if named else platform.machine()


def plain(value):
    """A value as it comes back from a file."""
    return json.loads(json.dumps(value))


def dumps(value):
    """JSON whose innermost lists and objects take one line each."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return re.sub(
        r"\[[^][{}]*\]|\{[^][{}]*\}",
        lambda found: re.sub(r"\s*\n\s*", " ", found[0]),
        text,
    )
