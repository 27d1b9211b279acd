"""The runner: seeds, records that it goes on from, and pages of tables."""

import dataclasses
import json
import pathlib

import pytest
from benchmark_files import load

from benchmarks import __main__ as command_line
from benchmarks import tables as pages
from benchmarks.common import arguments
from benchmarks.common.benchmark import FOLDER
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.record import Record


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    size: int


class Toy(Benchmark):
    """Squares of sizes; what was measured is written down."""

    settings = {"epochs": 3}
    choices = {"sizes": (2, 3)}
    quick = {"epochs": 1, "sizes": (1,)}
    measured = []
    fail_at = None

    def rows(self):
        return [Row(f"size {size}", size) for size in self.args.sizes]

    def measure(self, row, seed):
        if (row.size, seed) == self.fail_at:
            raise KeyboardInterrupt
        self.measured.append((row.size, seed))
        return {"square": row.size**2 + seed}


def squares(rows):
    return [
        [found["figures"]["square"] for found in row["runs"]] for row in rows
    ]


def test_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Toy, "measured", [])
    path = tmp_path / "folder" / "record.json"
    flags = ["--output", str(path), "--seeds", "0,1"]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Toy, "fail_at", (3, 1))
        run(Toy, flags)
    # All rows of a seed come before the next seed.
    assert Toy.measured == [(2, 0), (3, 0), (2, 1)]
    assert squares(run(Toy, flags)) == [[4, 5], [9, 10]]
    assert Toy.measured[3:] == [(3, 1)]
    # More seeds and rows come to what stands there.
    run(Toy, [*flags, "--data", "x", "--seeds", "2", "--sizes", "2,5"])
    content = json.loads(path.read_text())
    assert squares(content["rows"]) == [[4, 5, 6], [9, 10], [27]]
    # Without folders.
    assert content["made_by"][-1]["command"] == (
        "python -m benchmarks benchmarks.test_runner --seeds 2 --sizes 2,5"
    )
    # Mean and standard deviation.
    assert "| size 2 | 2 | 5 ± 1 | 3 |" in capsys.readouterr().out
    # Other settings are other rows; flags win over the quick mode.
    (row,) = run(Toy, ["--epochs=7", "--quick", *flags])
    assert row["settings"]["epochs"] == 7 and row["name"] == "size 1"
    with pytest.raises(SystemExit, match="No row is asked for.*'nothing'"):
        run(Toy, ["--rows", "nothing"])


def test_names():
    folder = pathlib.Path(command_line.__file__).parent
    found = {
        f"{path.parent.name}.{path.stem}"
        for path in folder.glob("*/*.py")
        if "(Benchmark):" in path.read_text() and path.parent.name != "common"
    }
    assert found == set(command_line.NAMES)
    # Each runs in its quick mode.
    runs = pathlib.Path(__file__).with_name("test_quick_runs.py")
    text = runs.read_text("utf-8")
    assert [name for name in found if f'"{name}"' not in text] == []


def test_pages_are_those_of_the_records():
    pages.main(["--check"])


@pytest.mark.parametrize("name", command_line.NAMES)
def test_committed_rows_do_not_run_again(name, tmp_path):
    """Rows and settings of committed records are named as in the scripts."""
    module = load(name)
    benchmark_class = module.main.args[0]
    flags = ["--data", str(tmp_path)]
    args = arguments.parse(benchmark_class, name, flags)
    benchmark = benchmark_class(args, Record(name, args.output))
    assert any(benchmark.has(row, 0) for row in benchmark.rows())
    fields = {field.name for field in dataclasses.fields(module.Row)}
    for path in FOLDER.glob(f"{name.replace('.', '/')}*.json"):
        for found in Record(name, path).rows:
            assert set(found["row"]) | {"name"} == fields
            assert set(found["settings"]) == set(benchmark_class.settings)
