"""The folder in which long work saves how far it got."""

import collections
import contextlib
import contextvars
import dataclasses
import os

from keras_compembed.utils.files import check_room
from keras_compembed.utils.validation import check_positive_number

_current = contextvars.ContextVar("checkpoint_folder", default=None)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where to save, and how often."""

    folder: str
    interval: float
    counts: collections.Counter = dataclasses.field(
        default_factory=collections.Counter
    )


def check_folder(name, path):
    """Returns the whole path of a folder, or raises if it is of none."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ValueError(
            f"`{name}` must name a folder. Received: {name}={path!r}."
        )
    path = os.path.abspath(os.path.expanduser(path))
    if os.path.lexists(path) and not os.path.isdir(path):
        raise NotADirectoryError(
            f"`{name}` must be a folder. Received: the file {path!r}."
        )
    return path


@contextlib.contextmanager
def checkpoint_folder(path, interval=30):
    """Lets long work go on where it was cut short.

    What is called within the block saves how far it got. If the process is
    killed, or the machine goes down, start the same program again: it goes on
    from what was saved, to the result of an undisturbed run.

    - `AdditiveQuantizer` and `FactorQuantizer` save sweeps, and
      `GumbelCodeLearner` and `KDCodeLearner` validation intervals, wherever
      they are used: by themselves, in `CodeEmbedding.from_table`,
      `CompressedVectors.learn` or `compress_model`.
    - `ANTEmbedding.from_table`, and the method `Anchors` with it, saves each
      fit of the anchors.
    - A search of `compress_model` for a number of bytes, or a loss, saves each
      copy that it trained, where its data are arrays.

    What is saved belongs to the call that it was saved by: the same settings,
    seed, arrays and version of this package. Any other begins anew and leaves
    it alone. What cannot be told from other work for sure is not saved, and a
    warning says why: callbacks, datasets, losses and optimizers of one's own.
    Code of layers that you wrote is not looked at: delete the folder when you
    change it. With a seed, a learner then has the same bits on one device.
    Without one, equal calls in a block draw differently, and each block begins
    with the first of them again: to try several times, pass seeds, or have all
    tries in one block. Once all is done, delete the folder; until then the same
    program gives what it gave before, at once. All else, such as `from_table`
    of `QuantizedEmbedding`, and sweeps that refine what was learned by
    gradients, takes shorter and begins anew.

    A file is written beside and then renamed: what is half-written is never
    read. One that is damaged, and a disk that is full, is a warning, and work
    goes on. Ctrl-C keeps what was found so far, as without a folder; the same
    call afterwards goes on from what was saved before it.

    All of this is work of one process and thread. Several that work at once,
    each in such a block of its own and on different things, may share a
    folder.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> learner = kc.learners.AdditiveQuantizer(8, 16, seed=0, verbose=0)
    >>> with kc.checkpoint_folder("checkpoint"):
    ...     codes = learner.train(table).codes

    Args:
        path: String or path-like, a folder for this alone. It is made if it is
            not there.
        interval: Number of seconds from one save to the next, or more where
            saving would take a tenth of the time; 0 for each chance. Defaults
            to `30`.

    Yields:
        The path of the folder.

    Raises:
        ValueError: if `path` is no name of a folder or `interval` is negative.
        NotADirectoryError: if `path` is a file.
        OSError: if nothing can be written there.
    """
    path = check_folder("path", path)
    check_positive_number("interval", interval, zero=True)
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise type(error)(
            f"Cannot make the folder {path!r} of checkpoints: {error.strerror}."
        ) from error
    check_room(path, 0, "of checkpoints")
    token = _current.set(Place(path, interval))
    try:
        yield path
    finally:
        _current.reset(token)


def current_place():
    """The `Place` of the block that this is called in, or None."""
    return _current.get()
