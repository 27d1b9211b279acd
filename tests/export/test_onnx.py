"""ONNX files that Keras writes of models with layers of this package."""

import numpy as np
import pytest
from layer_cases import CASES

NAMES = "codes", "rounded-narrow", "anchors-dense"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:In the future `np:FutureWarning")
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in NAMES], ids=str
)
def test_onnx(case, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, _ = case.build(run_eagerly=True)
    case.train(model)
    inputs, _ = case.task.examples()
    # Keras exports no model that was never called.
    model(inputs[:1])
    path = tmp_path / "model.onnx"
    model.export(path, format="onnx", opset_version=15, verbose=False)
    session = onnxruntime.InferenceSession(path)
    (tensor,) = session.get_inputs()
    for rows in (3, 1):
        (outputs,) = session.run(None, {tensor.name: inputs[:rows]})
        np.testing.assert_allclose(
            outputs, model(inputs[:rows]), rtol=1e-5, atol=1e-6
        )
