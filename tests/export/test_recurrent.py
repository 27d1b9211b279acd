import keras
import numpy as np
import pytest
from export_models import code_embedding
from export_models import error_of
from export_models import export
from export_models import random_ids
from export_models import towers

from keras_compembed.export import export_litert

L = keras.layers


def with_zeros(length=9):
    """Ids with zeros at the end, and one text of them alone."""
    ids = random_ids(4, length, high=3)
    ids[:, -2:] = ids[0] = 0
    return ids


@pytest.mark.parametrize(
    "layers",
    [
        [
            L.LSTM(4, return_sequences=True, go_backwards=True),
            L.GRU(3, return_sequences=True),
            L.SimpleRNN(2),
        ],
        [
            L.Bidirectional(L.LSTM(4, return_sequences=True)),
            L.TimeDistributed(L.Dense(3)),
        ],
        [L.LSTM(4, return_sequences=True, zero_output_for_mask=True)],
        [L.RNN([L.LSTMCell(3), L.GRUCell(2)], return_sequences=True)],
    ],
    ids=["stacked", "both ways", "zero output", "nested states"],
)
def test_layers_and_masks(layers, path):
    model = towers([code_embedding(mask_zero=True), *layers])
    calls = [layer.call for layer in layers]
    # Gates and sums of 9 steps in float32.
    export(model, path, with_zeros(), bound=1e-5)
    assert calls == [layer.call for layer in layers]


def test_file_does_not_grow_with_the_sequence(path):
    short, long = (
        export(
            towers([code_embedding(), L.LSTM(4)], length=length),
            path,
            with_zeros(length),
            bound=1e-5,
        ).file_bytes
        for length in (3, 30)
    )
    assert long < 1.1 * short


def test_states_are_kept_from_call_to_call_and_untouched(path):
    layer = L.LSTM(4, stateful=True)
    inputs = keras.Input(batch_shape=(2, 6), dtype="int32")
    model = keras.Sequential([inputs, code_embedding(), layer])
    model(random_ids(2, 6))
    before = [state.numpy() for state in layer.states]
    export_litert(model, path, verbose=0)
    for state, value in zip(layer.states, before, strict=True):
        np.testing.assert_array_equal(state.numpy(), value)
    assert error_of(path, model, *random_ids(3, 2, 6)) < 2e-6
