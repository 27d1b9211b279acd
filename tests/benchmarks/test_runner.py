"""The runner: flags, seeds, rows, what it keeps, and what it prints."""

import dataclasses
import json
import pathlib
import re

import pytest

from benchmarks import __main__ as command_line
from benchmarks.common import arguments
from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.record import Record


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    size: int
    parts: tuple = ()


class Toy(Benchmark):
    """Squares of sizes; what was measured is written down."""

    settings = {
        "epochs": 3,
        "rate": 0.5,
        "widths": (1, 2),
        "kind": Flag("plain", choices=("plain", "fancy")),
        "limit": Flag(None, "of nothing", int),
    }
    choices = {"sizes": (2, 3), "cache": pathlib.Path("nowhere")}
    quick = {"epochs": 1, "sizes": (1,)}
    columns = {
        "row": tables.field("name"),
        "square": tables.figure("square", "{:.1f}"),
        "seeds": tables.seeds,
    }
    measured = []
    fail_at = None

    def rows(self):
        return [Row(f"size {size}", size) for size in self.args.sizes]

    def measure(self, row, seed):
        if (row.size, seed) == self.fail_at:
            raise KeyboardInterrupt
        self.measured.append((row.size, seed))
        return {"square": row.size**2 + seed, "seen": (1, 2)}

    def finish(self, rows):
        self.finished.append([row["name"] for row in rows])


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr(Toy, "measured", [])
    monkeypatch.setattr(Toy, "finished", [], raising=False)
    return Toy


@pytest.fixture
def output(tmp_path):
    return tmp_path / "folder" / "record.json"


def read(output):
    return json.loads(output.read_text())


def squares(rows):
    return [
        [found["figures"]["square"] for found in row["runs"]] for row in rows
    ]


def test_rows_and_seeds(toy, output, capsys):
    rows = run(toy, ["--output", str(output), "--seeds", "0,4"])
    # All rows of a seed come before the next seed.
    assert toy.measured == [(2, 0), (3, 0), (2, 4), (3, 4)]
    assert squares(rows) == [[4, 8], [9, 13]]
    assert toy.finished == [["size 2", "size 3"]]
    content = read(output)
    assert content["rows"] == rows
    assert content["format"] == 1
    assert content["benchmark"] == toy.called() == "benchmarks.test_runner"
    (maker,) = content["made_by"]
    assert maker["command"] == (
        "python -m benchmarks benchmarks.test_runner --seeds 0,4"
    )
    assert maker["cores"] > 0 and maker["versions"]["keras"]
    assert set(maker) == {
        *("command", "python", "versions", "cores", "machine", "processor")
    }
    row = rows[0]
    assert row["name"] == "size 2" and row["row"] == {"size": 2, "parts": []}
    assert row["settings"] == {
        "epochs": 3,
        "rate": 0.5,
        "widths": [1, 2],
        "kind": "plain",
        "limit": None,
    }
    first = row["runs"][0]
    assert first["seed"] == 0 and first["made_by"] == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", first["date"])
    assert first["figures"] == {"square": 4, "seen": [1, 2]}
    printed = capsys.readouterr().out
    # Mean and standard deviation.
    assert "| row | square | seeds |\n| --- | --- | --- |\n" in printed
    assert "| size 2 | 6.0 ± 2.8 | 2 |" in printed
    assert "size 3\n  square 13\n" in printed


def test_goes_on_where_it_stopped(toy, output, monkeypatch, capsys):
    flags = ["--output", str(output), "--seeds", "0,1"]
    monkeypatch.setattr(toy, "fail_at", (3, 1))
    with pytest.raises(KeyboardInterrupt):
        run(toy, flags)
    assert squares(read(output)["rows"]) == [[4, 5], [9]]
    monkeypatch.setattr(toy, "fail_at", None)
    toy.measured.clear()
    assert squares(run(toy, flags)) == [[4, 5], [9, 10]]
    assert toy.measured == [(3, 1)]
    # Nothing of it runs again.
    before = output.read_bytes()
    run(toy, flags)
    assert toy.measured == [(3, 1)] and output.read_bytes() == before
    # More seeds and rows come to what stands there.
    run(toy, [*flags, "--seeds", "2", "--sizes", "2,5"])
    assert toy.measured == [(3, 1), (2, 2), (5, 2)]
    assert squares(read(output)["rows"]) == [[4, 5, 6], [9, 10], [27]]
    assert len(read(output)["made_by"]) == 2
    assert "| size 2 | 5.0 ± 1.0 | 3 |" in capsys.readouterr().out


def test_other_settings_are_other_rows(toy, output, capsys):
    run(toy, ["--output", str(output)])
    capsys.readouterr()
    rows = run(toy, ["--output", str(output), "--epochs", "9"])
    assert toy.measured == 2 * [(2, 0), (3, 0)]
    assert [row["settings"]["epochs"] for row in rows] == [9, 9]
    # What stood there is kept, and not printed.
    assert len(read(output)["rows"]) == 4
    assert capsys.readouterr().out.count("| size 2 |") == 1


def test_rows_by_name(toy, output):
    (row,) = run(toy, ["--output", str(output), "--rows", "3$"])
    assert row["name"] == "size 3" and toy.measured == [(3, 0)]
    with pytest.raises(SystemExit, match="No row is asked for.*'nothing'"):
        run(toy, ["--output", str(output), "--rows", "nothing"])


def test_quick(toy, output, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = toy.path(None)
    (row,) = run(toy, ["--quick"])
    assert row["name"] == "size 1" and row["settings"]["epochs"] == 1
    # Nothing is kept that was not asked for.
    assert list(tmp_path.iterdir()) == [] and not path.exists()
    # Flags win.
    (row,) = run(toy, ["--epochs=7", "--quick", "--output", str(output)])
    assert row["settings"]["epochs"] == 7
    assert read(output)["made_by"][0]["command"].endswith("--quick --epochs 7")


def test_command_has_no_folders(toy, output):
    run(
        toy,
        [
            *("--output", str(output), "--data", "somewhere"),
            *("--cache", "elsewhere", "--widths", "4,5", "--rows", "size 2|3"),
        ],
    )
    assert read(output)["made_by"][0]["command"] == (
        "python -m benchmarks benchmarks.test_runner --rows 'size 2|3' "
        "--widths 4,5"
    )


class Turns(Toy):
    """Rows of a kind are measured together."""

    groups = []

    def rows(self):
        return [Row(name, len(name) % 2) for name in ("a", "b", "cc", "dd")]

    def together(self, row):
        return row.size

    def measure_together(self, rows, seed):
        self.groups.append([row.name for row in rows])
        for row in rows:
            if row.name == self.fail_at:
                raise KeyboardInterrupt
            yield {"square": 1}


def test_rows_measured_together(toy, output, monkeypatch):
    monkeypatch.setattr(Turns, "groups", [])
    monkeypatch.setattr(Turns, "fail_at", "dd")
    with pytest.raises(KeyboardInterrupt):
        run(Turns, ["--output", str(output)])
    # Each is kept as soon as it is there.
    assert [row["name"] for row in read(output)["rows"]] == ["a", "b", "cc"]
    monkeypatch.setattr(Turns, "fail_at", None)
    run(Turns, ["--output", str(output)])
    assert Turns.groups == [["a", "b"], ["cc", "dd"], ["dd"]]


def test_figures_must_be_as_many_as_rows(toy, monkeypatch):
    monkeypatch.setattr(Turns, "measure_together", lambda *args: iter([{}]))
    with pytest.raises(ValueError, match="shorter"):
        run(Turns, ["--quick"])


def test_figures_of_a_row(toy, output):
    record = Record(toy.called(), output)
    args = arguments.parse(toy, "toy", ["--output", str(output)])
    benchmark = toy(args, record)
    row = Row("size 2", 2)
    assert benchmark.figures_of(row, 0) is None
    run(toy, ["--output", str(output)])
    benchmark = toy(args, Record(toy.called(), output))
    assert benchmark.figures_of(row, 0)["square"] == 4
    assert benchmark.has(row, 0) and not benchmark.has(row, 1)


def test_flags(toy, capsys):
    def parse(*flags):
        return arguments.parse(toy, "toy", list(flags))

    args = parse("--widths", "3", "--rate", "2", "--limit", "8", "--sizes", "")
    assert args.widths == (3,) and args.rate == 2.0 and args.limit == 8
    assert args.sizes == () and args.seeds == (0,)
    assert args.cache == pathlib.Path("nowhere")
    assert args.output == toy.path(args) and args.output.suffix == ".json"
    for flags, message in (
        (["--kind", "other"], "invalid choice"),
        (["--rows", "("], "argument --rows: missing ), unterminated"),
        (["--seeds", ""], "--seeds must be numbers"),
        (["--seeds", "a"], "--seeds"),
        (["--epochs", "many"], "--epochs"),
        (["--unknown"], "unrecognized"),
    ):
        with pytest.raises(SystemExit):
            parse(*flags)
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse("--help")
    printed = capsys.readouterr().out
    assert "The runner: flags, seeds" in printed
    assert "of nothing; default: None" in printed
    assert "--widths" in printed and "default: 1,2" in printed


def test_data_folder(toy, monkeypatch):
    def folder(*flags):
        return toy(arguments.parse(toy, "toy", list(flags)), None).folder

    monkeypatch.setenv("COMPEMBED_DATA", "some/where")
    assert folder() == pathlib.Path("some/where")
    assert folder("--data", "other") == pathlib.Path("other")
    monkeypatch.setenv("COMPEMBED_DATA", "")
    for flags in ([], ["--data", ""]):
        with pytest.raises(SystemExit, match="data folder: --data, or"):
            folder(*flags)


def test_names(capsys):
    command_line.main([])
    printed = capsys.readouterr().out
    for name in command_line.NAMES:
        assert re.search(rf"^{re.escape(name)} +\S.*[.?&]", printed, re.M)
    assert re.search(r"^tables +Prints the tables", printed, re.M)
    with pytest.raises(SystemExit, match="no such name. Received: codes.no"):
        command_line.main(["codes.no"])


def test_all_benchmarks_are_named():
    folder = pathlib.Path(command_line.__file__).parent
    found = {
        f"{path.parent.name}.{path.stem}"
        for path in folder.glob("*/*.py")
        if "(Benchmark):" in path.read_text() and path.parent.name != "common"
    }
    assert found == set(command_line.NAMES)
