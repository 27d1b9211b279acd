"""Starts workers on this machine, and restarts all of them if one dies.

    python examples/multi_worker/launch.py --workers 2 PROGRAM ARGUMENTS...

Sets the environment variable `TF_CONFIG` of each worker. For several hosts, see
`jobset.yaml` and `slurm.sh` in this folder.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time

# TensorFlow may need ten to detect and report a silent worker.
SECONDS_TO_END = 60


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--restarts", type=int, default=3, help="the most restarts"
    )
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args(arguments)
    if args.workers < 1:
        parser.error(f"--workers must be positive. Received: {args.workers}")
    if not os.path.isfile(args.program):
        parser.error(f"PROGRAM must be a file. Received: {args.program!r}")
    for attempt in range(args.restarts + 1):
        code = run(args.workers, [args.program, *args.arguments])
        if code == 0:
            return 0
        left = args.restarts - attempt
        print(f"a worker ended with {code}; restarts left: {left}", flush=True)
    return 1


def run(number, program):
    """Runs workers until all are done or one fails; returns its exit code."""
    workers = [f"localhost:{port}" for port in free_ports(number)]
    processes = []
    try:
        for index in range(number):
            task = {"type": "worker", "index": index}
            config = {"cluster": {"worker": workers}, "task": task}
            environment = {**os.environ, "TF_CONFIG": json.dumps(config)}
            processes.append(
                subprocess.Popen([sys.executable, *program], env=environment)
            )
            pid, address = processes[-1].pid, workers[index]
            print(f"worker {index}: process {pid}, {address}", flush=True)
        while True:
            codes = [process.poll() for process in processes]
            failed = [code for code in codes if code]
            if failed or None not in codes:
                return failed[0] if failed else 0
            time.sleep(0.2)
    finally:
        end(processes)


def end(processes):
    """Terminates processes, and kills those that do not end in time."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + SECONDS_TO_END
    for process in processes:
        try:
            process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("localhost", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


if __name__ == "__main__":
    sys.exit(main())
