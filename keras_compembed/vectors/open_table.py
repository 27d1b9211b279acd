"""Opens tables that stay in their files."""

import collections
import os
import re

from keras_compembed.utils.table_shards import TableShards
from keras_compembed.vectors.formats import numpy_arrays
from keras_compembed.vectors.formats import safetensors_file
from keras_compembed.vectors.formats.source import Source

_ENDINGS = (".npy", ".safetensors")
_PART = re.compile(r"(?P<name>.*?)(?P<number>\d+)-of-(?P<all>\d+)\..*")
_NUMBERED = re.compile(r"(?P<name>.*?)(?P<number>\d+)\.\w+")


def open_table(path, tensor=None):
    """Opens a table that stays in its files.

    Learners, and `from_table` of layers, read such a table a part at a time,
    so that it may be larger than memory:

    | `path` | what it is |
    |---|---|
    | a `.npy` file | an array that `numpy.save` wrote |
    | a `.safetensors` file | one of its tensors |
    | a folder | the rows of all its files of one of these kinds, in the \
order of their names, with numbers within names in the order of numbers: \
`part-2` before `part-10` |
    | a list of paths | the rows of these files, in this order |

    Files are found out by how they begin, within a folder by how their names
    end; others in it are not read. Where names say of how many parts they are,
    as `part-00001-of-00003` does, all must be there. Names that differ by the
    number at their end must count from 0 or 1 on, and leave none out. Beside
    such parts there may be no other file of their kind, such as a copy of one.

    Example:

    >>> for place in range(3):
    ...     np.save(f"part-{place}.npy", np.full((100, 8), place, "float32"))
    >>> table = open_table([f"part-{place}.npy" for place in range(3)])
    >>> table.shape
    (300, 8)
    >>> learner = kc.learners.AdditiveQuantizer(2, 4, verbose=0)
    >>> learner.train(table).codes.shape
    (300, 2)

    Args:
        path: String or path-like, or a list of them.
        tensor: Optional string, the name of the table in safetensors files
            that hold several. Defaults to the only one of two axes.

    Returns:
        `numpy.memmap` of one file, else `TableShards`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if a file is neither of the kinds or not whole, holds no
            table of real numbers, or has other columns or another dtype than
            the others; if `tensor` names none; if a folder has files of both
            kinds, or of neither, lacks parts that their names tell of, or has
            other files beside numbered parts.
    """
    if isinstance(path, list | tuple):
        if not path:
            raise ValueError("`path` must name files. Received: an empty list.")
        paths = path
    elif not isinstance(path, str | os.PathLike):
        raise ValueError(
            f"`path` must be a path, or a list of paths. Received: {path=}."
        )
    elif os.path.isdir(path):
        paths = _files_of(path)
    else:
        return _open(path, tensor)
    tables = [_open(one, tensor) for one in paths]
    for place, table in enumerate(tables):
        kind = table.shape[1], table.dtype
        first = tables[0].shape[1], tables[0].dtype
        if kind != first:
            raise ValueError(
                "`path` must name tables of as many columns and of one dtype. "
                f"Received: {os.fspath(paths[0])!r} with {first[0]} columns of "
                f"{first[1]}, {os.fspath(paths[place])!r} with {kind[0]} of "
                f"{kind[1]}."
            )
    return TableShards(tables)


def _files_of(folder):
    """Paths of the files of a folder that are parts of a table, in order."""
    names = [
        name
        for name in os.listdir(folder)
        if name.endswith(_ENDINGS) and not name.startswith(".")
    ]
    endings = sorted({os.path.splitext(name)[1] for name in names})
    if len(endings) != 1:
        raise ValueError(
            f"`path` must name a folder of `.npy` or of `.safetensors` files. "
            f"Received: {os.fspath(folder)!r}, with "
            f"{' and '.join(endings) or 'neither'}. A list of paths says which "
            "files are meant."
        )
    _check_parts(folder, names)
    names.sort(key=_with_numbers)
    return [os.path.join(folder, name) for name in names]


def _check_parts(folder, names):
    numbers = collections.defaultdict(set)
    counted = collections.defaultdict(list)
    # What parts have in common, and whether they are numbered.
    kinds = {}
    for name in names:
        if part := _PART.fullmatch(name):
            numbers[part["name"], part["all"]].add(part["number"])
            kinds[f"{part['name']}...-of-{part['all']}"] = True
        elif part := _NUMBERED.fullmatch(name):
            counted[part["name"]].append(int(part["number"]))
            kinds[f"{part['name']}..."] = True
        else:
            kinds[name] = False
    if len(kinds) > 1 and any(kinds.values()):
        found = " and ".join(repr(kind) for kind in sorted(kinds)[:3])
        raise ValueError(
            "`path` must name a folder of the parts of one table, whose names "
            "differ by their numbers alone. Received: "
            f"{os.fspath(folder)!r}, with {found}. A list of paths says which "
            "files are meant."
        )
    for (name, number), found in numbers.items():
        if len(found) != int(number):
            raise ValueError(
                f"`path` must name a folder of all parts. Received: "
                f"{os.fspath(folder)!r}, with {len(found)} of the {number} "
                f"parts '{name}...-of-{number}'."
            )
    for name, found in counted.items():
        found.sort()
        start = min(found[0], 1)
        if len(found) > 1 and found != list(range(start, start + len(found))):
            raise ValueError(
                "`path` must name a folder of parts that count from 0 or 1 on "
                f"and leave none out. Received: {os.fspath(folder)!r}, with "
                f"{len(found)} files '{name}...', numbered {found[0]} to "
                f"{found[-1]}. A list of paths says which files are meant."
            )


def _with_numbers(name):
    """What sorts `part-2` before `part-10`."""
    parts = re.split("([0-9]+)", name)
    return [int(x) if x.isdigit() else x for x in parts], name


def _open(path, tensor):
    source = Source(path)
    if source.is_folder:
        raise ValueError(
            f"`path` must list files. Received: the folder {source}."
        )
    if source.compression is not None:
        raise ValueError(
            f"{source} must be a file that is not compressed, to stay where "
            f"it is. Received: a {source.compression} file. Decompress it; of "
            "a `.npz`, save the array with `numpy.save`."
        )
    if numpy_arrays.is_npy(source):
        if tensor is not None:
            raise ValueError(
                "`tensor` must be None for a file of one array. Received: "
                f"{tensor=} for {source}."
            )
        return numpy_arrays.map_array(source)
    if safetensors_file.looks_like(source):
        return safetensors_file.map_tensor(source, tensor)
    raise ValueError(
        f"{source} must be written by `numpy.save` or be a safetensors file. "
        f"Received: a file that begins with {source.head[:8]!r}."
    )
