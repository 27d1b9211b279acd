import keras
import numpy as np
import pytest
from export_models import code_embedding
from export_models import ids_input
from export_models import random_ids

from keras_compembed.export.export_litert import export_litert
from keras_compembed.export.interpreter import LiteRTModel

L = keras.layers


def check(path, *layers, mask_zero=False, length=None):
    """Exports a model; holds the file to it, on ids with zeros in them."""
    model = keras.Sequential(
        [ids_input(length), code_embedding(mask_zero=mask_zero), *layers]
    )
    calls = [layer.call for layer in layers]
    export = export_litert(model, path, verbose=0)
    ids = random_ids(4, length or 9, high=3)
    ids[:, -2:] = 0
    # Gates and sums of 9 steps in float32.
    np.testing.assert_allclose(
        LiteRTModel(path)(ids), model(ids), rtol=0, atol=1e-5
    )
    assert calls == [layer.call for layer in layers]
    assert not any("inner_loop" in vars(layer) for layer in layers)
    return export


def test_stacked_lstm_and_gru_with_masks(tmp_path):
    check(
        tmp_path / "model.tflite",
        L.LSTM(4, return_sequences=True, go_backwards=True),
        L.GRU(3, return_sequences=True),
        L.SimpleRNN(2),
        mask_zero=True,
    )


def test_bidirectional_and_time_distributed(tmp_path):
    check(
        tmp_path / "model.tflite",
        L.Bidirectional(L.LSTM(4, return_sequences=True)),
        L.TimeDistributed(L.Dense(3)),
        mask_zero=True,
    )


def test_zero_output_for_mask(tmp_path):
    check(
        tmp_path / "model.tflite",
        L.LSTM(4, return_sequences=True, zero_output_for_mask=True),
        mask_zero=True,
    )


def test_file_does_not_grow_with_the_sequence(tmp_path):
    exports = [
        check(tmp_path / f"{length}.tflite", L.LSTM(4), length=length)
        for length in (3, 30)
    ]
    short, long = (export.file_bytes for export in exports)
    assert long < 1.1 * short


def test_custom_cell_with_nested_states(tmp_path):
    cells = [keras.layers.LSTMCell(3), keras.layers.GRUCell(2)]
    check(tmp_path / "model.tflite", L.RNN(cells, return_sequences=True))


def test_time_distributed_model(tmp_path):
    path = tmp_path / "model.tflite"
    pages = keras.Input((None, 5), dtype="int32")
    inner = keras.Sequential([code_embedding(), L.GlobalAveragePooling1D()])
    model = keras.Model(pages, L.TimeDistributed(inner)(pages))
    export_litert(model, path, verbose=0)
    ids = random_ids(2, 4, 5)
    np.testing.assert_allclose(
        LiteRTModel(path)(ids), model(ids), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("steps", [3])
def test_states_are_kept_from_call_to_call_and_untouched(tmp_path, steps):
    path = tmp_path / "model.tflite"
    layer = L.LSTM(4, stateful=True)
    model = keras.Sequential(
        [
            keras.Input(batch_shape=(2, 6), dtype="int32"),
            code_embedding(),
            layer,
        ]
    )
    model(random_ids(2, 6))
    before = [state.numpy() for state in layer.states]
    export_litert(model, path, verbose=0)
    for state, value in zip(layer.states, before, strict=True):
        np.testing.assert_array_equal(state.numpy(), value)
    litert_model = LiteRTModel(path)
    for _ in range(steps):
        ids = random_ids(2, 6)
        np.testing.assert_allclose(
            litert_model(ids), model(ids), rtol=0, atol=1e-6
        )
