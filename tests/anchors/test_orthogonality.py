import keras
import numpy as np
import pytest

from keras_compembed.anchors.orthogonality import Orthogonality


def test_loss():
    anchors = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    expected = sum(
        abs(anchors[i] @ anchors[j])
        for i in range(5)
        for j in range(5)
        if i != j
    )
    loss = Orthogonality(0.1)(anchors)
    np.testing.assert_allclose(loss, 0.1 * expected, rtol=1e-5)
    assert float(Orthogonality(1.0)(np.eye(3, dtype="float32"))) == 0


def test_config():
    config = keras.regularizers.serialize(Orthogonality(0.1))
    assert keras.regularizers.deserialize(config).weight == 0.1


def test_bad_weight():
    with pytest.raises(ValueError, match="`weight` must be a number"):
        Orthogonality(-1)
