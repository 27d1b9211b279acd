import json

import keras
import numpy as np
import pytest

from examples import custom_training_step

# They share a training.
pytestmark = pytest.mark.slow


def weights(folder):
    return [
        keras.saving.load_model(folder / f"{name}.keras").get_weights()
        for name in ("codes", "anchors")
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    return folder, custom_training_step.main(
        ["--quick", "--output", str(folder)]
    )


def test_quick(trained):
    folder, rows = trained
    assert [row["name"] for row in rows] == ["codes", "anchors"]
    for row in rows:
        # 0.05 by chance; 0.55 to 0.93 by the seed, with codes.
        assert row["accuracy"] > 0.5
        assert row["word_bytes"] < row["table_bytes"]
    assert json.loads((folder / "results.json").read_text()) == rows


def check_same(trained, folder, atol):
    for own, other in zip(weights(trained[0]), weights(folder), strict=True):
        for a, b in zip(own, other, strict=True):
            np.testing.assert_allclose(a, b, atol=atol)


def test_fit_learns_the_same(trained, tmp_path):
    arguments = ["--quick", "--fit", "--output", str(tmp_path)]
    custom_training_step.main(arguments)
    check_same(trained, tmp_path, atol=1e-5)


def test_two_devices(trained, tmp_path, monkeypatch, strategy):
    monkeypatch.setattr(
        custom_training_step, "mirrored_strategy", {2: strategy}.get
    )
    arguments = ["--quick", "--devices", "2", "--output", str(tmp_path)]
    rows = custom_training_step.main(arguments)
    for row, own in zip(rows, trained[1], strict=True):
        # Sums in another order, over 150 steps of Adam.
        assert row["accuracy"] == pytest.approx(own["accuracy"], abs=0.03)


def test_bad_flags(capsys):
    with pytest.raises(SystemExit):
        custom_training_step.main(["--quick", "--devices", "3"])
    assert "--batch-size must be a multiple of --devices" in (
        capsys.readouterr().err
    )
