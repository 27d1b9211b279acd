"""Files that earlier versions wrote are read, and answer the same."""

import json
import zipfile

# A file holds its layer.
import hosts  # noqa: F401
import keras
import make_golden
import numpy as np
import pytest
from export_models import write

import keras_compembed as kc


def every(pattern, number):
    """Files of one kind, as parameters; none of them may get lost."""
    paths = sorted(make_golden.FOLDER.glob(pattern))
    assert len(paths) >= number
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def load_model(path):
    with zipfile.ZipFile(path) as archive:
        version = json.loads(archive.read("metadata.json"))["keras_version"]
    written, own = (
        tuple(map(int, each.split(".")[:2]))
        for each in (version, keras.__version__)
    )
    if written > own:
        pytest.skip(f"Keras {version} wrote it, which this Keras cannot read")
    return keras.saving.load_model(path)


def load_arrays(path):
    with np.load(path.with_suffix(".npz")) as file:
        # Paths of weights, which older ones name, depend on what was made.
        return {
            " ".join(name.split()[:2]): array for name, array in file.items()
        }


@every("*.keras", 33)
def test_models_load_answer_the_same_and_train_on(path):
    model = load_model(path)
    # Single batches are done sooner than graphs of them.
    model.run_eagerly = True
    expected = load_arrays(path)
    inputs = []
    while make_golden.input_name(len(inputs)) in expected:
        inputs.append(expected.pop(make_golden.input_name(len(inputs))))
    labels = expected.pop("labels")
    got = make_golden.describe(model, inputs, labels)
    assert set(got) == set(expected)
    for key, values in expected.items():
        # Weights are read; the rest is computed, perhaps on another machine.
        rtol, atol = (0, 0) if key.startswith("weight") else (1e-4, 1e-5)
        np.testing.assert_allclose(got[key], values, rtol, atol, err_msg=key)

    steps = int(model.optimizer.iterations)
    model.train_on_batch(inputs[0] if len(inputs) == 1 else inputs, labels)
    assert model.optimizer.iterations == steps + 1
    for number, weight in enumerate(make_golden.weights_of(model)):
        if weight.trainable:
            old = got[make_golden.weight_name(number)]
            new = weight.numpy()
            assert np.isfinite(new).all() and not np.array_equal(old, new)


def assert_close(got, expected, key=""):
    """Equal where they are words or integers, else as float32 sums are."""
    expected = np.asarray(expected)
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected, key)
        return
    size = np.abs(expected).max(initial=0)
    np.testing.assert_allclose(
        got, expected, rtol=0, atol=1e-5 * size, err_msg=key
    )


@every("vectors/*.npz", 13)
def test_vectors_load_and_answer_the_same(path, tmp_path):
    small = kc.vectors.CompressedVectors.load(path)
    expected = json.loads(path.with_suffix(".json").read_text("utf-8"))
    got = make_golden.describe_vectors(small)
    assert set(got) == set(expected)
    for key in ("words", "method", "unknown"):
        assert got[key] == expected[key]
    for key in ("table", "vectors", "letters"):
        if expected[key] is not None:
            assert_close(got[key], expected[key], key)
    lists = zip(
        [*got["most_similar"], got["analogy"]],
        [*expected["most_similar"], expected["analogy"]],
        strict=True,
    )
    for found, wanted in lists:
        for values in zip(
            zip(*found, strict=True), zip(*wanted, strict=True), strict=True
        ):
            assert_close(*values)
    small.save(tmp_path / "again.npz")
    again = (tmp_path / "again.npz").stat().st_size
    assert again <= 1.02 * path.stat().st_size + 500


@every("litert/*.tflite", 28)
def test_litert_files_are_run_and_made_anew_alike(path, tmp_path):
    model = load_model(path.with_suffix(".keras"))
    expected = load_arrays(path)
    inputs = expected.pop("inputs")
    options = json.loads(str(expected.pop("options")))
    again = tmp_path / path.name
    write(model, again, **options)
    for file in (path, again):
        got = make_golden.run_litert(file, inputs)
        assert set(got) == set(expected)
        for key, values in expected.items():
            assert_close(got[key], values, key)
    assert again.stat().st_size <= 1.02 * path.stat().st_size + 500
