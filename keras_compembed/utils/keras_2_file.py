"""Files of models that Keras 2 wrote, read without it."""

import json
import zipfile


def read_keras_2_file(path):
    """The version of Keras in a file, and the JSON of its model's config."""
    # Not at the top: most commands need no h5py.
    import h5py

    found = {}
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            if {"metadata.json", "config.json"} <= set(file.namelist()):
                found = json.loads(file.read("metadata.json"))
                found["model_config"] = file.read("config.json")
    elif h5py.is_hdf5(path):
        with h5py.File(path) as file:
            found = dict(file.attrs)
    values = (found.get(x, b"") for x in ("keras_version", "model_config"))
    return tuple(x.decode() if isinstance(x, bytes) else x for x in values)
