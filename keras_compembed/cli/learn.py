"""`keras-compembed learn`."""

from keras_compembed import cli
from keras_compembed.cli import files
from keras_compembed.methods.codes import Codes
from keras_compembed.reports.fidelity import fidelity
from keras_compembed.vectors.compressed_vectors import CompressedVectors
from keras_compembed.vectors.read_vectors import read_vectors

# Words to compare the neighbors of.
_QUERIES = 200
# Names to show of parts of a file.
_PARTS = {"rounded": "quantized rows", "besides": "other"}


def run(arguments):
    path, inputs = arguments.output, (arguments.vectors, arguments.words)
    files.check_output(path, ".npz", arguments.overwrite, *inputs)
    shape = files.given(arguments, "num_codebooks", "codebook_size")
    method = Codes(**shape) if shape else None
    vectors = read_vectors(
        arguments.vectors,
        arguments.format,
        words=arguments.words,
        tensor=arguments.tensor,
        limit=arguments.limit,
        encoding=arguments.encoding,
        unicode_errors=arguments.unicode_errors,
        subwords=arguments.subwords,
    )
    options = {"max_bytes": arguments.max_bytes, "seed": arguments.seed}
    with cli.keeping(arguments.keep_partial):
        small = CompressedVectors.learn(vectors, method, **options)
    small.save(path, arguments.overwrite)
    found = describe(small, vectors)
    return f"\n{format_lines(found)}\n\nWritten: {path}"


def describe(small, vectors=None):
    """Dict of lines: size of the file, and accuracy if given the original."""
    parts = small.bytes_by_part
    total = sum(parts.values())
    listed = ", ".join(f"{_PARTS.get(x, x)} {parts[x]:,}" for x in parts)
    ratio = 4 * len(small) * small.vector_size / total
    lines = {
        "vectors": f"{len(small):,} x {small.vector_size}, as {small.method}",
        "bytes": f"{total:,}: {listed}",
        "smaller": f"{ratio:.1f} times, compared with the float32 table",
    }
    if vectors is None:
        return lines
    near = fidelity(vectors.vectors, small.table(), num_queries=_QUERIES)
    error, cosine = near.centred_relative_squared_error, near.mean_cosine
    if error is not None and cosine is not None:
        lines["lost"] = (
            f"{error:.3f} of the variance (relative squared error); mean "
            f"cosine {cosine:.3f}"
        )
    if near.num_queries:
        lines["neighbors"] = (
            f"{near.neighbor_overlap:.0%} kept, of the "
            f"{near.num_neighbors} nearest of {near.num_queries} words"
        )
    return lines


def format_lines(lines):
    """The lines of `describe` as text."""
    return "\n".join(f"{name:11}{text}" for name, text in lines.items())
