import json

import numpy as np
import pytest
from benchmark_files import load


@pytest.fixture(scope="module")
def benchmark():
    return load("synthetic_clusters")


def test_quick_run(benchmark, tmp_path, capsys):
    output, picture = tmp_path / "results.json", tmp_path / "clusters.png"
    report = benchmark.main(
        ["--quick", "--output", str(output), "--picture", str(picture)]
    )
    assert json.loads(output.read_text()) == report
    assert [curve["method"] for curve in report["curves"]] == list(
        benchmark.METHODS
    )
    for curve in report["curves"]:
        assert curve["step"] == [20, 40, 60]
        assert min(curve["loss"]) > report["loss_of_true_clusters"] > 0
        assert 0 < min(curve["nmi"]) <= max(curve["nmi"]) <= 1
    straight = report["curves"][0]
    assert straight["loss"][-1] < straight["loss"][0]
    assert picture.read_bytes().startswith(b"\x89PNG")
    table = capsys.readouterr().out
    assert "| straight-through, constant temperature | " in table


def test_mutual_information(benchmark):
    labels = np.array([0, 0, 1, 1, 2, 2])
    assert benchmark.mutual_information(labels, 2 - labels) == pytest.approx(1)
    same = np.zeros(6, int)
    assert benchmark.mutual_information(labels, same) == pytest.approx(0)
    # The halves follow from the labels.
    halves = np.array([0, 0, 0, 0, 1, 1])
    entropy = np.log(3) - 2 / 3 * np.log(2)
    assert benchmark.mutual_information(labels, halves) == pytest.approx(
        2 * entropy / (np.log(3) + entropy)
    )


def test_loss_of_clusters(benchmark):
    table = np.array([[0.0], [2.0], [5.0], [5.0]])
    clusters = np.array([0, 0, 1, 1])
    assert benchmark.loss_of_clusters(table, clusters) == 0.5
