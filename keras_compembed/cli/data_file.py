"""`--data`: arrays to train and to evaluate models on."""

import os
import zipfile

from keras_compembed.cli.inputs import check_file

PARTS = ("train", "validation", "test")
HELP = (
    "an .npz file, as numpy.savez writes, with x_train, y_train, x_validation, "
    "y_validation, x_test and y_test; of several inputs or outputs, "
    "x_train_NAME and so on"
)


def find_parts(path):
    """The parts that a data file holds, those with inputs and labels."""
    check_file(path)
    if not zipfile.is_zipfile(path):
        raise ValueError(
            "--data must be an .npz file, as numpy.savez writes. Received: "
            f"{os.fspath(path)!r}."
        )
    with zipfile.ZipFile(path) as file:
        names = [name.removesuffix(".npy") for name in file.namelist()]
    parts = {}
    for part in PARTS:
        pair = [
            [x for x in names if x == stem or x.startswith(f"{stem}_")]
            for stem in (f"x_{part}", f"y_{part}")
        ]
        if all(pair):
            parts[part] = pair
        elif any(pair):
            raise _missing(path, names, part)
    return parts


def require_parts(path, *choices):
    """The first of some parts that a data file holds."""
    parts = find_parts(path)
    for part in choices:
        if part in parts:
            return part
    names = [name for pair in parts.values() for part in pair for name in part]
    raise _missing(path, names, choices[0])


def _missing(path, names, part):
    return ValueError(
        f"--data must hold x_{part} and y_{part}. Received: {path!r} with "
        f"{', '.join(sorted(names)) or 'nothing of the kind'}."
    )


def read_part(path, part):
    """Inputs and labels of a part: arrays, or dicts of them by name."""
    import numpy as np

    pair = find_parts(path)[part]
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = [{name: file[name] for name in names} for names in pair]
    except ValueError as error:
        raise ValueError(
            f"--data must hold arrays of numbers or texts. Received: {path!r} "
            f"({error})."
        ) from error
    stems = f"x_{part}", f"y_{part}"
    return tuple(map(_structure, stems, arrays))


def _structure(stem, arrays):
    if stem in arrays:
        return arrays[stem]
    return {name.removeprefix(f"{stem}_"): x for name, x in arrays.items()}
