"""Runs the golden LiteRT files on aarch64, the processor of most phones.

    apt-get install qemu-user debootstrap
    python tools/check_aarch64.py
    python tools/check_aarch64.py --litert 1.1.0 --cpu cortex-a55

`build/aarch64` gets Debian's Python for aarch64, and the wheels of
ai-edge-litert and NumPy for it, and keeps them. qemu runs them on any
processor: 10.0 does; 7.2, that of Debian 12, crashes in XNNPACK. debootstrap
needs root. "off" is the largest difference from what a file answered when it
was made, over the largest number. Ends with 1 if a file differs or is refused.
"""

import argparse
import importlib.metadata
import pathlib
import platform
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILES = ROOT / "tests" / "golden" / "litert"
FOLDER = ROOT / "build" / "aarch64"
SUITE, PYTHON = "bookworm", "3.11"
TOLERANCE = 1e-5  # Same as in tests/test_golden_files.py.


def download_python():
    """Puts a Python for aarch64 into the folder."""
    subprocess.run(
        [
            *("debootstrap", "--download-only", "--arch=arm64"),
            *("--variant=minbase", "--include=python3,libstdc++6"),
            *(SUITE, FOLDER),
        ],
        check=True,
    )
    for package in FOLDER.glob("var/cache/apt/archives/*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, FOLDER], check=True)


def download_packages(folder, litert):
    """Puts what the check imports into a folder, of the NumPy that is here."""
    numpy = importlib.metadata.version("numpy")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--no-deps"),
            *("--only-binary=:all:", "--python-version", PYTHON),
            *("--platform", "manylinux_2_17_aarch64"),
            *("--platform", "manylinux_2_27_aarch64", "--target", folder),
            *(f"ai-edge-litert=={litert}", f"numpy=={numpy}"),
        ],
        check=True,
    )


def check():
    """Compares what files answer on this processor with what they answered."""
    print(f"{platform.machine()}, Python {platform.python_version()}")
    paths = sorted(FILES.glob("*.tflite"))
    results = {}
    for path in paths:
        try:
            results[path] = off = measure(path)
            print(f"{path.name:28} off {off:.1e}")
        except (RuntimeError, ValueError) as error:
            print(f"{path.name:28} refused: {str(error).splitlines()[0]}")
    same = sum(off <= TOLERANCE for off in results.values())
    print(f"{same} files of {len(paths)} answer the same.")
    return int(same < len(paths) or not paths)


def measure(path):
    """How far a file's outputs are off."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    with np.load(path.with_suffix(".npz")) as file:
        expected = {name: file[name] for name in file if name != "options"}
    run = Interpreter(str(path)).get_signature_runner()
    ((name, details),) = run.get_input_details().items()
    got = run(**{name: expected.pop("inputs").astype(details["dtype"])})
    if len(got) == 1:
        got = {"outputs": next(iter(got.values()))}
    return np.max([difference(got[each], expected[each]) for each in expected])


def difference(got, expected):
    """Largest difference over the largest number; of integers, 0 or inf."""
    if got.shape != expected.shape:
        return float("inf")
    if expected.dtype.kind != "f":
        return 0.0 if (got == expected).all() else float("inf")
    return abs(got - expected).max() / max(abs(expected).max(), 1e-30)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--litert", help="version; default: the one here")
    parser.add_argument("--cpu", default="max", help="one of qemu's")
    parser.add_argument("--qemu", default="qemu-aarch64", help="its command")
    parser.add_argument("--here", action="store_true", help="without qemu")
    args = parser.parse_args()
    if args.here:
        return check()
    litert = args.litert or importlib.metadata.version("ai-edge-litert")
    python, packages = FOLDER / f"usr/bin/python{PYTHON}", FOLDER / litert
    if not python.exists():
        download_python()
    if not packages.exists():
        download_packages(packages, litert)
    command = [args.qemu, "-cpu", args.cpu, "-L", FOLDER]
    command += ["-E", f"PYTHONPATH={packages}", python, __file__, "--here"]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
