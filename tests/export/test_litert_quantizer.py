"""Files whose activations litert-quantizer makes integers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import ROWS
from export_models import code_embedding
from export_models import error_of
from export_models import ids_input
from export_models import read_tensors
from export_models import write

pytestmark = pytest.mark.slow
LENGTH = 32
# Integers, scales, their products, means, weights and outputs are each off by
# half of 1/255 of their range, which is at most twice their largest number.
BOUND = 6 / 255


def samples():
    """Four texts, in which each id is at least once."""
    ids = np.resize(np.arange(ROWS, dtype="int32"), 4 * LENGTH)
    return np.random.default_rng(6).permutation(ids).reshape(4, 1, LENGTH)


def quantize(source, target, batches):
    quantizer = pytest.importorskip("litert_quantizer")
    utils = pytest.importorskip("litert_quantizer.utils.qsv_utils")
    recipe = quantizer.recipe.static_wi8_ai8()
    quantizer = quantizer.Quantizer(str(source), recipe)
    for place in ("INPUT", "OUTPUT"):
        quantizer.update_quantization_recipe(
            ".*", place, algorithm_key="no_quantize"
        )
    ranges = {}
    for batch in batches:
        found = quantizer.calibrate({"serving_default": [{"ids": batch}]})
        for name, each in found.items():
            ranges[name] = utils.min_max_update(ranges.get(name, {}), each)
    result = quantizer.quantize(ranges, enable_progress_report=False)
    result.export_model(target)


def test_integers_throughout(path, tmp_path):
    model = keras.Sequential(
        [
            ids_input(LENGTH, name="ids"),
            code_embedding(8, width=16),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(
                12, kernel_initializer=keras.initializers.GlorotUniform(0)
            ),
        ]
    )
    spec = tf.TensorSpec((1, LENGTH), "int32", "ids")
    write(model, path, input_signature=spec)
    small = tmp_path / "int8.tflite"
    quantize(path, small, samples())
    assert error_of(small, model, *samples()) < BOUND
    tensors = read_tensors(small)
    # The product of the head is one of integers, and tables are as before.
    assert any(
        kind == "INT8" and shape[:1] == (12,) for kind, shape, _ in tensors
    )
    (packed,) = (
        x for x in read_tensors(path) if x[:1] + x[1][:1] == ("UINT8", ROWS)
    )
    assert packed in tensors
