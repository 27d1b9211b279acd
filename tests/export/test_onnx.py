"""ONNX files that Keras writes of models with layers of this package."""

import keras
import numpy as np
import pytest
from layer_cases import CASES
from layer_cases import Pooled

STARTS = "codes", "rounded", "anchors", "reversible"
EXPORTED = [case for case in CASES if case.name.startswith(STARTS)]
OPSETS = 13, 15, 18


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:In the future `np:FutureWarning")
@pytest.mark.parametrize(
    ("case", "opset"),
    [(case, OPSETS[place % 3]) for place, case in enumerate(EXPORTED)],
    ids=str,
)
def test_onnx(case, opset, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, layer = case.build(run_eagerly=True)
    case.train(model)
    inputs, _ = case.task.examples()
    if isinstance(case.task, Pooled):
        ids = keras.Input((None,), dtype="int32")
        model = keras.Model(ids, layer(ids))
    # Keras exports no model that was never called.
    model(inputs[:1])
    path = tmp_path / "model.onnx"
    model.export(path, format="onnx", opset_version=opset, verbose=False)
    session = onnxruntime.InferenceSession(path)
    (tensor,) = session.get_inputs()
    for rows in (3, 1):
        (outputs,) = session.run(None, {tensor.name: inputs[:rows]})
        np.testing.assert_allclose(
            outputs, model(inputs[:rows]), rtol=1e-5, atol=1e-6
        )
