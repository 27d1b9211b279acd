import json

import pytest

pytest.importorskip("keras_tuner")

from examples import tune_text_classifier


@pytest.mark.slow
def test_quick(tmp_path, capsys):
    arguments = ["--quick", "--output", str(tmp_path / "tune")]
    result = tune_text_classifier.main(arguments)
    assert result["test_accuracy"] > 0.9
    front = json.loads((tmp_path / "tune/front.json").read_text())
    assert len(front["trials"]) == 4
    assert front["original_bytes"] == result["original_bytes"]
    sizes = [x["litert_bytes"] for x in front["trials"] if x["is_best"]]
    assert sizes[-1] == result["file_bytes"]
    assert (tmp_path / "tune/front.png").exists()
    assert "no smaller file is as good" in capsys.readouterr().out
    # Run again, it is done already.
    assert tune_text_classifier.main(arguments) == result
