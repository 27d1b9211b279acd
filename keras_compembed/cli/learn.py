"""`keras-compembed learn`."""

import os
import warnings

from keras_compembed.cli import arguments as common
from keras_compembed.cli.inputs import check_different
from keras_compembed.cli.inputs import check_suffix
from keras_compembed.cli.lines import answering
from keras_compembed.cli.lines import show
from keras_compembed.cli.lines import warn
from keras_compembed.utils.files import check_output
from keras_compembed.utils.validation import check_code_shape

WHAT_IT_DOES = "compress a file of word vectors"
# Not read from `vectors`, whose import takes seconds.
FORMATS = (
    "glove",
    "word2vec",
    "word2vec_binary",
    "fasttext",
    "numpy",
    "safetensors",
    "hugging_face",
    "model2vec",
    "gensim",
)
_HUB = "hf://"
_SHAPE = {"num_codebooks": 32, "codebook_size": 16}
# Words whose neighbours are compared.
_QUERIES = 200


def add_arguments(command):
    command.add_argument(
        "vectors",
        help="the vectors: a file of GloVe, word2vec, fastText or NumPy, a "
        "safetensors file, or the folder of a model, here or at "
        f"{_HUB}USER/REPOSITORY; files may be compressed",
    )
    command.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="the compressed vectors to write, an .npz file",
    )
    command.add_argument(
        "--max-bytes",
        type=common.number_of_bytes,
        metavar="N",
        help="bytes that the output may have, words included, e.g. 2MB or "
        "500k (k is 1,000 bytes); without -m and -k, the way to store vectors "
        "that loses least within them is searched for",
    )
    command.add_argument(
        "-m",
        "--num-codebooks",
        type=common.whole_number,
        metavar="M",
        help="subcodes per word (default: searched for with --max-bytes, else "
        f"{_SHAPE['num_codebooks']})",
    )
    command.add_argument(
        "-k",
        "--codebook-size",
        type=common.whole_number,
        metavar="K",
        help="codewords per codebook, best a power of two (default: searched "
        f"for with --max-bytes, else {_SHAPE['codebook_size']})",
    )
    command.add_argument(
        "--format",
        choices=FORMATS,
        help="what the vectors are (default: what they look like; gensim's "
        "own files are pickles, which are opened only if named)",
    )
    command.add_argument(
        "--words",
        metavar="FILE",
        help="the words of the rows of an array, one a line, or a "
        "tokenizer.json",
    )
    command.add_argument(
        "--tensor",
        metavar="NAME",
        help="which of the arrays of a file has the vectors",
    )
    command.add_argument(
        "--limit",
        type=common.positive_whole_number,
        metavar="N",
        help="how many of the first words to keep (default: all)",
    )
    command.add_argument(
        "--encoding",
        default="utf-8",
        metavar="NAME",
        help="how words are written, e.g. latin-1 (default: utf-8)",
    )
    command.add_argument(
        "--unicode-errors",
        choices=("strict", "ignore", "replace", "backslashreplace"),
        default="strict",
        help="what to do with words that are not written so (default: end "
        "with an error)",
    )
    command.add_argument(
        "--subwords",
        nargs="?",
        const=True,
        default=False,
        type=common.positive_whole_number,
        metavar="N",
        help="of fastText's .bin, keep vectors of groups of letters too, for "
        "words that have none: N of them at most (default: as many as words)",
    )
    common.add_seed(command)
    command.add_argument(
        "--keep-partial",
        action="store_true",
        help="on Ctrl-C once codes are being learned, write the best found so "
        "far (default: Ctrl-C ends without a file)",
    )
    common.add_overwrite(command)


def check(arguments):
    shape = _code_shape(arguments)
    if shape is not None:
        check_code_shape(*shape)
    inputs = list(filter(None, (arguments.vectors, arguments.words)))
    for path in inputs:
        if path.startswith(_HUB):
            continue
        if not os.path.exists(path):
            raise FileNotFoundError(f"No such file: {path!r}.")
        if os.path.isfile(path):
            with open(path, "rb"):
                pass
    check_suffix(arguments.output, ".npz")
    check_different(*inputs, arguments.output)
    check_output(arguments.output, arguments.overwrite)


def _code_shape(arguments):
    """Numbers of codebooks and codewords asked for, or None."""
    given = {name: getattr(arguments, name) for name in _SHAPE}
    if set(given.values()) == {None}:
        return None
    return tuple(
        default if given[name] is None else given[name]
        for name, default in _SHAPE.items()
    )


def run(arguments, stops):
    from keras_compembed.methods.codes import Codes
    from keras_compembed.vectors.compressed_vectors import CompressedVectors
    from keras_compembed.vectors.read_vectors import read_vectors

    shape = _code_shape(arguments)
    show(f"reading {arguments.vectors}")
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = warn
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

    def learn():
        return CompressedVectors.learn(
            vectors,
            None if shape is None else Codes(*shape),
            max_bytes=arguments.max_bytes,
            seed=arguments.seed,
        )

    if arguments.keep_partial:
        with stops.raising_once():
            small = learn()
    else:
        small = learn()
    small.save(arguments.output, arguments.overwrite)
    with answering():
        print(f"\n{_report(arguments, vectors, small)}\n")
        print(f"Written: {arguments.output}")
        if stops.asked:
            print("Stopped by Ctrl-C: the best codes found so far.")


def _report(arguments, vectors, small):
    """What the file takes, and what it lost, in lines."""
    from keras_compembed.reports.fidelity import fidelity

    table = vectors.vectors
    near = fidelity(table, small.table(), num_queries=_QUERIES)
    parts = small.bytes_by_part
    total = sum(parts.values())
    listed = ", ".join(f"{name} {size:,}" for name, size in parts.items())
    smaller = f"{4 * table.size / total:.1f} times than the float32 table"
    if os.path.isfile(arguments.vectors):
        ratio = os.path.getsize(arguments.vectors) / total
        smaller += f", {ratio:.1f} times than {arguments.vectors}"
    lines = {
        "vectors": f"{len(small):,} x {small.vector_size}, as {small.method}",
        "bytes": f"{total:,}: {listed}",
        "smaller": smaller,
    }
    error, cosine = near.centred_relative_squared_error, near.mean_cosine
    if error is not None and cosine is not None:
        lines["lost"] = (
            f"{error:.3f} of the squares about the mean; mean cosine "
            f"{cosine:.3f}"
        )
    if vectors.subwords is not None:
        lines["unknown"] = _report_letters(vectors, small.subwords())
    if near.num_queries:
        lines["neighbors"] = (
            f"{near.neighbor_overlap:.0%} of the nearest "
            f"{near.num_neighbors} of {near.num_queries} words are the same"
        )
    return "\n".join(f"{name:11}{text}" for name, text in lines.items())


def _report_letters(vectors, subwords):
    """How near words that are made of their letters are to what they were."""
    from keras_compembed.reports.fidelity import fidelity

    words = vectors.words[:: max(1, len(vectors) // _QUERIES)]
    near = fidelity(
        vectors.subwords.vectors_of(words),
        subwords.vectors_of(words),
        num_queries=1,
    )
    line = f"{len(subwords):,} groups of letters"
    if near.mean_cosine is None:
        return line
    return f"{line}; mean cosine {near.mean_cosine:.3f} of words made of them"
