"""Damages files of vectors at random, and reads them.

    python -m tools.fuzz_vectors --cases 100000

Each case is a valid file of one format with a few changes: cut, bytes
flipped, lines doubled or moved. It must be read, or refused by `ValueError`;
where the message names a `limit=` that reads the rows before the fault, that
is tried. Pickles are left out: what opens them may do anything.

A case that ends in another way is kept in `--keep`, and the command fails.
"""

import argparse
import faulthandler
import os
import pathlib
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests/support"))

from vector_files import MAKERS
from vector_files import check_limit
from vector_files import damage
from vector_files import make_files

_SLOW, _HANGS = 5, 60  # Seconds.
_BYTES = 1 << 29  # What the files, of less than 10 kB, may take.
_REPORT = 10_000


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--keep", type=pathlib.Path, default=pathlib.Path("fuzz_vectors")
    )
    return parser.parse_args(argv)


def limit_memory():
    """Makes an array of many bytes an error, where the system can."""
    pages = pathlib.Path("/proc/self/statm")
    if pages.exists():
        import resource

        used = int(pages.read_text().split()[0]) * resource.getpagesize()
        limit = used + _BYTES, resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_AS, limit)


def main(argv=None):
    args = parse_arguments(argv)
    counts = dict.fromkeys(MAKERS, 0)
    good = dict.fromkeys(MAKERS, 0)
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        files = make_files(pathlib.Path(folder))
        for file in files.values():
            check_limit(*file[1:])
        limit_memory()
        valid = {n: (f.path, f.path.read_bytes()) for n, f in files.items()}
        for case in range(args.cases):
            rng = np.random.default_rng([args.seed, case])
            name = list(files)[case % len(files)]
            path, data = valid[name]
            damaged = damage(data, rng)
            path.write_bytes(damaged)
            faulthandler.dump_traceback_later(_HANGS, exit=True)
            start = time.monotonic()
            try:
                good[name] += check_limit(*files[name][1:])
                if time.monotonic() - start > _SLOW:
                    raise AssertionError("slow")
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                faults += 1
                args.keep.mkdir(exist_ok=True)
                (args.keep / f"{name}-{case}").write_bytes(damaged)
                print(f"{name}, case {case}: {error!r}", flush=True)
            faulthandler.cancel_dump_traceback_later()
            path.write_bytes(data)
            counts[name] += 1
            if (case + 1) % _REPORT == 0:
                print(f"{case + 1} cases", flush=True)
    for name, count in counts.items():
        print(f"{name}: {count} cases, {good[name]} of them read")
    print(f"{args.cases} cases, {faults} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
