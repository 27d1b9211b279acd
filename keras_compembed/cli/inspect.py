"""`keras-compembed inspect`."""

from keras_compembed.cli import files
from keras_compembed.cli import learn
from keras_compembed.export.inspect_litert import inspect_litert
from keras_compembed.vectors.compressed_vectors import CompressedVectors


def run(arguments):
    path, json = arguments.file, arguments.json
    files.check_file(path)
    if json:
        files.check_output(json, "", arguments.overwrite, path)
    if path.endswith(".npz"):
        lines = learn.describe(CompressedVectors.load(path))
        found, text = lines, learn.format_lines(lines)
    else:
        text = inspect_litert(path)
        found = text.to_dict()
    if json:
        files.write_json(found, json, arguments.overwrite)
    return text
