"""Arguments, structures of models, samples, and how files are written."""

import concurrent.futures
import dataclasses
import os
import resource

import keras
import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from export_models import ROWS
from export_models import code_embedding
from export_models import error_of
from export_models import export
from export_models import ids_input
from export_models import random_ids
from export_models import towers
from export_models import write

import keras_compembed as kc
from keras_compembed import export_litert

L = keras.layers


def mean_model(**kwargs):
    return towers([code_embedding(**kwargs), L.GlobalAveragePooling1D()])


def otherwise_in_files(change):
    """A layer that does something to its inputs in files alone."""

    class OtherwiseInFiles(L.Layer):
        def call(self, inputs):
            return inputs if tf.executing_eagerly() else change(inputs)

        def compute_output_spec(self, inputs):
            return keras.KerasTensor(inputs.shape, inputs.dtype)

    return OtherwiseInFiles()


class _Subclassed(keras.Model):
    """Its own name, `__subclassed`, cannot be that of an outermost scope."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embed = code_embedding()

    def call(self, ids):
        return keras.ops.mean(self.embed(ids), axis=1)


def test_subclassed_models_need_a_signature(path):
    with pytest.raises(ValueError, match="`input_signature` must be given"):
        write(_Subclassed(), path)
    assert not path.exists()
    signature = tf.TensorSpec((None, None), "int32")
    model = _Subclassed()
    model(random_ids(2, 3))
    made = export(model, path, input_signature=signature)
    assert made.held_layers == (model.embed.name,)


def test_bad_arguments(tmp_path):
    model, path = mean_model(), tmp_path / "model.tflite"
    for received in ("new", 2.17, "2"):
        with refused("min_runtime", received):
            write(model, path, min_runtime=received)
    for name, received in {
        "quantize": "int4",
        "optimize_for": "speed",
        "tolerance": 0,
        "runtime": "flex",
        # Older than what the ops need.
        "min_runtime": "1.2",
    }.items():
        with refused(name, received):
            write(model, path, **{name: received})
    with refused("max_bytes", "file_bytes"):
        write(model, path, max_bytes=1_000)
    with refused("metadata", "x"):
        write(model, path, metadata={"title": "x"})
    with refused("target", "mediapipe"):
        export_litert(model, path, target="mediapipe", quantize=None)
    with refused("path", "model.keras"):
        export_litert(model, tmp_path / "model.keras", quantize=None)
    with refused("model", "CodeEmbedding"):
        export_litert(model.layers[1], path, quantize=None)
    with refused("input_signature", "5"):
        export_litert(
            _Subclassed(), path, input_signature=(None, 5), quantize=None
        )
    with refused("input_signature"):
        export_litert(keras.Sequential([code_embedding()]), path, quantize=None)
    missing = tmp_path / "missing" / "model.tflite"
    with refused(received=missing, error=FileNotFoundError):
        export_litert(model, missing, quantize=None)
    assert not os.listdir(tmp_path)


def test_an_existing_file_is_kept_or_replaced(path, capsys):
    path.write_text("old")
    with refused("overwrite=True", error=FileExistsError):
        export_litert(mean_model(), path, quantize=None)
    assert path.read_text() == "old"
    made = export_litert(mean_model(), path, overwrite=True, quantize=None)
    assert made.file_bytes == path.stat().st_size > 3
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading == str(made)
    assert heading.startswith(f"{path}: {made.file_bytes:,} bytes")
    assert lines[0] == "Inputs:" and "int32  (None, None)" in lines[1]
    assert "Bytes:" in lines
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.path = None


def test_a_full_disk_leaves_the_old_file(path):
    path.write_text("old")
    model = keras.Sequential([keras.Input((4,)), L.Dense(2)])
    # Labels are in the file alone, not in what is converted.
    labels = ["no" * 500_000, "yes"]
    limit = resource.RLIMIT_FSIZE
    before = resource.getrlimit(limit)
    # No file may be larger, as if disks were full.
    resource.setrlimit(limit, (500_000, before[1]))
    try:
        with pytest.raises(OSError, match="model.tflite"):
            write(model, path, labels=labels)
    finally:
        resource.setrlimit(limit, before)
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == ["model.tflite"]


def test_another_answer_is_caught_and_the_old_file_stays(path):
    path.write_text("old")
    for change, said in (
        (lambda x: -x, "difference of"),
        (lambda x: x[:, :1], r"\(1, 16, 6\).*\(1, 1, 6\)"),
        (lambda x: x / (x[:, :1] - x[:, :1]), "difference of inf"),
    ):
        model = towers([code_embedding(), otherwise_in_files(change)])
        with pytest.raises(RuntimeError, match=said):
            write(model, path)
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == ["model.tflite"]


@pytest.mark.parametrize(
    ("quantize", "tolerance"), [(None, 1e-4), ("int8", 0.1)]
)
def test_differences_up_to_the_tolerance_pass(quantize, tolerance, path):
    def of(share):
        layer = otherwise_in_files(lambda x: x * (1 + share))
        return keras.Sequential([keras.Input((4,)), layer])

    model = of(0.9 * tolerance)
    made = write(model, path, quantize=quantize)
    assert made.max_error == pytest.approx(0.9 * tolerance, rel=0.05)
    model = of(1.1 * tolerance)
    with pytest.raises(RuntimeError, match=f"{tolerance:g}"):
        write(model, path, quantize=quantize)
    write(model, path, quantize=quantize, tolerance=1.2 * tolerance)


def test_zeros_and_infinities_are_compared_as_they_are(path):
    zeros = L.Rescaling(0.0)
    for rounding in (0.0, 1e-7):
        layer = otherwise_in_files(lambda x, y=rounding: x + np.float32(y))
        model = keras.Sequential([keras.Input((4,)), zeros, layer])
        made = write(model, path)
        assert made.max_error == pytest.approx(rounding)
    layer = code_embedding()
    model = towers([layer, L.Rescaling(1e38)])
    layer.codebooks.assign(100 * layer.codebooks)
    assert np.isinf(model(random_ids(2, 8))).any()
    made = write(model, path)
    assert made.max_error < 1e-6


def test_sample_inputs(path):
    model = mean_model()
    for received in ([[ROWS]], [1, 2]):
        with refused("sample_inputs"):
            write(model, path, sample_inputs=received)
    made = write(model, path, sample_inputs=[[ROWS - 1, 0]])
    assert made.max_error < 1e-6
    for ids in ([[ROWS]], [[-1]]):
        with pytest.raises(RuntimeError, match="out of bounds"):
            kc.export.LiteRTModel(path)(ids)


class Positions(L.Layer):
    """Adds vectors of its own to sequences of up to 12 vectors."""

    def build(self, input_shape):
        self.positions = self.add_weight(shape=(12, input_shape[-1]))

    def call(self, vectors):
        length = keras.ops.shape(vectors)[1]
        if isinstance(length, int) and length > 12:
            raise ValueError("There are 12 positions.")
        return vectors + self.positions[:length]


def test_random_inputs_are_such_as_a_model_takes(path):
    """As long as positions, and ids that their own table has."""
    tokens, segments = ids_input(name="tokens"), ids_input(name="segments")
    vectors = [
        code_embedding()(tokens),
        code_embedding(input_dim=2)(segments),
    ]
    outputs = Positions()(L.Add()(vectors))
    model = keras.Model({"tokens": tokens, "segments": segments}, outputs)
    assert write(model, path).max_error < 1e-6


def test_threads_export_one_model_which_stays_as_it_is(tmp_path):
    model = towers(
        [
            code_embedding(name="table", mask_zero=True),
            L.GlobalAveragePooling1D(),
            L.Dense(3),
        ]
    )
    before = [dict(vars(layer)) for layer in model.layers]
    paths = [tmp_path / f"{number}.tflite" for number in range(3)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        made = list(pool.map(lambda path: write(model, path), paths))
    for one, layer in zip(before, model.layers, strict=True):
        assert one.keys() == vars(layer).keys()
        assert all(one[key] is vars(layer)[key] for key in one)
    assert {each.pooled_layers for each in made} == {("table",)}
    assert len({path.stat().st_size for path in paths}) == 1
    assert all(error_of(path, model) < 1e-6 for path in paths)


def with_zeros(length=9):
    """Ids with zeros at the end, and one text of them alone."""
    ids = random_ids(4, length, high=3)
    ids[:, -2:] = ids[0] = 0
    return ids


def test_layers_and_masks(path):
    layers = [
        L.LSTM(4, return_sequences=True, go_backwards=True),
        L.Bidirectional(L.GRU(3, return_sequences=True)),
        L.TimeDistributed(L.Dense(3)),
    ]
    model = towers([code_embedding(mask_zero=True), *layers])
    calls = [layer.call for layer in layers]
    # Gates and sums of 9 steps in float32.
    export(model, path, with_zeros(), bound=1e-5)
    assert calls == [layer.call for layer in layers]


def test_states_are_kept_from_call_to_call_and_untouched(path):
    layer = L.LSTM(4, stateful=True, unroll=True)
    inputs = keras.Input(batch_shape=(2, 6), dtype="int32")
    model = keras.Sequential([inputs, code_embedding(), layer])
    model(random_ids(2, 6))
    before = [state.numpy() for state in layer.states]
    write(model, path)
    for state, value in zip(layer.states, before, strict=True):
        np.testing.assert_array_equal(state.numpy(), value)
    assert error_of(path, model, *random_ids(3, 2, 6)) < 2e-6
