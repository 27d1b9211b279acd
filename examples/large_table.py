"""Compresses a table larger than memory, on a Dask cluster.

Rows stay in one or several `.npy` or `.safetensors` files. The cluster is made
of processes on this machine, or it is already running:

    python -m examples.large_table table.npy --output small.keras --workers 4
    python -m examples.large_table table.npy --output small.keras \
        --scheduler tcp://first-host:8786

To start a cluster, run `dask scheduler` on the first host and `dask worker
tcp://first-host:8786 --nworkers auto` on each host. All hosts need this package
and the table under the same path. Codes are the same either way. With
`--cache FOLDER`, finished codes are kept there. Requires `distributed`.
"""

import argparse
import contextlib
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import distributed
import joblib
import keras

import keras_compembed as kc
from keras_compembed.utils.files import check_output
from keras_compembed.utils.files import replacing


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tables", type=pathlib.Path, nargs="+")
    parser.add_argument(
        "--output", type=pathlib.Path, required=True, help="a .keras file"
    )
    parser.add_argument("--num-codebooks", type=int, default=32)
    parser.add_argument("--codebook-size", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scheduler", help="address of a running cluster")
    parser.add_argument(
        "--workers",
        type=int,
        default=os.cpu_count(),
        help="processes on this machine, without `--scheduler`",
    )
    parser.add_argument(
        "--cache", type=pathlib.Path, help="folder for finished codes"
    )
    args = parser.parse_args(argv)
    # Check before hours of work.
    if args.output.suffix != ".keras":
        parser.error(f"--output must end in .keras. Received: {args.output}")
    if args.workers < 1:
        parser.error(f"--workers must be positive. Received: {args.workers}")
    return args


@contextlib.contextmanager
def cluster(scheduler=None, workers=None):
    """Context: the cluster does all parallel work."""
    with contextlib.ExitStack() as stack:
        if scheduler is None:
            scheduler = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    dashboard_address=None,
                )
            )
        client = stack.enter_context(distributed.Client(scheduler))
        cores = sum(client.nthreads().values())
        stack.enter_context(joblib.parallel_config("dask", n_jobs=cores))
        yield


def main(argv=None):
    """Returns the layer."""
    args = parse_arguments(argv)
    tables = [kc.vectors.open_table(path) for path in args.tables]
    args.output.parent.mkdir(parents=True, exist_ok=True)
    check_output(args.output, overwrite=True)
    shape = args.num_codebooks, args.codebook_size
    learner = kc.learners.AdditiveQuantizer(
        *shape, seed=args.seed, cache=args.cache
    )
    with cluster(args.scheduler, args.workers):
        layer = kc.CodeEmbedding.from_table(tables, *shape, learner=learner)
    model = keras.Sequential([keras.Input((None,), dtype="int32"), layer])
    with replacing(args.output, overwrite=True) as beside:
        model.save(beside)
    size = args.output.stat().st_size
    rows, width = sum(map(len, tables)), tables[0].shape[1]
    print(
        f"{rows:,} x {width} table, {4 * rows * width:,} bytes in float32: "
        f"compressed to {size:,} bytes in {args.output}"
    )
    return layer


if __name__ == "__main__":
    main()
