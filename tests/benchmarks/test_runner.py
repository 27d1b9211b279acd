"""The runner: flags, seeds, rows, records it keeps, and tables it prints."""

import dataclasses
import json
import pathlib
import re

import pytest
from benchmark_files import load

from benchmarks import __main__ as command_line
from benchmarks import tables as pages
from benchmarks.common import arguments
from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import FOLDER
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.common.record import Record
from benchmarks.common.record import dumps


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    size: int
    parts: tuple = ()


class Toy(Benchmark):
    """Squares of sizes; what was measured is written down."""

    settings = {
        "epochs": 3,
        "widths": (1, 2),
        "limit": Flag(None, "of nothing", int),
    }
    choices = {"sizes": (2, 3), "cache": pathlib.Path("nowhere")}
    quick = {"epochs": 1, "sizes": (1,)}
    measured = []
    finished = []
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
    monkeypatch.setattr(Toy, "finished", [])
    return Toy


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "record.json"


@pytest.fixture
def output(path):
    return ["--output", str(path)]


def read(path):
    return json.loads(path.read_text())


def squares(rows):
    return [
        [found["figures"]["square"] for found in row["runs"]] for row in rows
    ]


def test_rows_and_seeds(toy, path, output, capsys):
    folders = ["--data", "somewhere", "--cache", "elsewhere"]
    asked = ["--rows", "size 2|3", "--seeds", "0,4"]
    rows = run(toy, [*output, *folders, *asked])
    # All rows of a seed come before the next seed.
    assert toy.measured == [(2, 0), (3, 0), (2, 4), (3, 4)]
    assert squares(rows) == [[4, 8], [9, 13]]
    assert toy.finished == [["size 2", "size 3"]]
    content = read(path)
    assert content["rows"] == rows
    (maker,) = content["made_by"]
    # Without folders.
    assert maker["command"] == (
        "python -m benchmarks benchmarks.test_runner --seeds 0,4 "
        "--rows 'size 2|3'"
    )
    assert maker["cores"] > 0 and maker["versions"]["keras"]
    row = rows[0]
    assert row["name"] == "size 2" and row["row"] == {"size": 2, "parts": []}
    assert row["settings"] == {"epochs": 3, "widths": [1, 2], "limit": None}
    assert row["runs"][0]["figures"] == {"square": 4, "seen": [1, 2]}
    printed = capsys.readouterr().out
    # Mean and standard deviation.
    assert "|  | size | square | seeds |\n" in printed
    assert "| size 2 | 2 | 6 ± 2.828 | 2 |" in printed


def test_goes_on_where_it_stopped(toy, path, output, monkeypatch, capsys):
    flags = [*output, "--seeds", "0,1"]
    monkeypatch.setattr(toy, "fail_at", (3, 1))
    with pytest.raises(KeyboardInterrupt):
        run(toy, flags)
    assert squares(read(path)["rows"]) == [[4, 5], [9]]
    monkeypatch.setattr(toy, "fail_at", None)
    toy.measured.clear()
    assert squares(run(toy, flags)) == [[4, 5], [9, 10]]
    assert toy.measured == [(3, 1)]
    # More seeds and rows come to what stands there.
    run(toy, [*flags, "--seeds", "2", "--sizes", "2,5"])
    assert squares(read(path)["rows"]) == [[4, 5, 6], [9, 10], [27]]
    assert "| size 2 | 2 | 5 ± 1 | 3 |" in capsys.readouterr().out
    # Other settings are other rows, printed alone beside what is kept.
    rows = run(toy, [*output, "--epochs", "9"])
    assert [row["settings"]["epochs"] for row in rows] == [9, 9]
    assert len(read(path)["rows"]) == 5
    assert capsys.readouterr().out.count("| size 2 |") == 1


def test_quick_rows_and_rows_by_name(toy, path, output, tmp_path, monkeypatch):
    (row,) = run(toy, [*output, "--rows", "3$"])
    assert row["name"] == "size 3" and toy.measured == [(3, 0)]
    with pytest.raises(SystemExit, match="No row is asked for.*'nothing'"):
        run(toy, [*output, "--rows", "nothing"])
    # Flags win.
    (row,) = run(toy, ["--epochs=7", "--quick", *output])
    assert row["settings"]["epochs"] == 7
    assert read(path)["made_by"][-1]["command"].endswith("--quick --epochs 7")
    # Nothing is kept that was not asked for.
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    (row,) = run(toy, ["--quick"])
    assert row["name"] == "size 1" and row["settings"]["epochs"] == 1
    assert not list(pathlib.Path().iterdir()) and not toy.path(None).exists()


def parse(*flags):
    return arguments.parse(Toy, "toy", list(flags))


def test_flags(capsys, monkeypatch):
    args = parse("--widths", "3", "--limit", "8", "--sizes", "")
    assert args.widths == (3,) and args.limit == 8
    assert args.sizes == () and args.seeds == (0,)
    assert args.cache == pathlib.Path("nowhere")
    for flags, message in (
        (["--rows", "("], "argument --rows: missing ), unterminated"),
        (["--seeds", ""], "--seeds must be numbers"),
    ):
        with pytest.raises(SystemExit):
            parse(*flags)
        assert message in capsys.readouterr().err
    named = Toy(parse("--data", "other"), None)
    assert named.folder == pathlib.Path("other")
    monkeypatch.setenv("COMPEMBED_DATA", "")
    with pytest.raises(SystemExit, match="data folder: --data, or"):
        _ = Toy(parse(), None).folder


def test_names(capsys):
    folder = pathlib.Path(command_line.__file__).parent
    found = {
        f"{path.parent.name}.{path.stem}"
        for path in folder.glob("*/*.py")
        if "(Benchmark):" in path.read_text() and path.parent.name != "common"
    }
    assert found == set(command_line.NAMES)
    # Each runs in its quick mode.
    files = pathlib.Path(__file__).parent.glob("test_*_runs.py")
    runs = "".join(path.read_text("utf-8") for path in files)
    assert [name for name in found if f'"{name}"' not in runs] == []
    command_line.main([])
    printed = capsys.readouterr().out
    for name in command_line.NAMES:
        assert re.search(rf"^{re.escape(name)} +\S.*[.?&]", printed, re.M)
    assert re.search(r"^tables +Prints the tables", printed, re.M)
    with pytest.raises(SystemExit, match="no such name. Received: codes.no"):
        command_line.main(["codes.no"])


def add(record, name="a", seed=0, **figures):
    record.add(name, {"size": 1}, {"epochs": 2}, seed, figures)


def test_record_is_read_again(path):
    record = Record("codes.toy", path, "a command")
    add(record, loss=1.5, by_epoch=({"loss": 1},))
    add(record, "b", loss=None)
    again = Record("codes.toy", path, "another command")
    assert again.rows == record.rows and again.made_by == record.made_by
    add(again, "c", loss=0)
    commands = [maker["command"] for maker in again.made_by]
    assert commands == ["a command", "another command"]
    assert again.rows[-1]["runs"][0]["made_by"] == 1
    # Of whatever benchmark.
    assert Record(None, path).rows == again.rows
    with pytest.raises(ValueError, match="Received: benchmark='codes.toy'"):
        Record("codes.other", path)
    value = {"a": [{"b": 1, "c": [1.5, None]}], "d": ["[x", "y]", "{\n", "é"]}
    text = dumps(value)
    assert json.loads(text) == value
    # Innermost lists and objects take a line each.
    assert '"c": [ 1.5, null ]' in text and "é" in text


def row(*figures, **fields):
    runs = [
        {"seed": seed, "figures": found} for seed, found in enumerate(figures)
    ]
    return {"name": "a", "row": fields, "settings": {}, "runs": runs}


def test_cells_and_tables():
    two = row({"test": {"loss": 0.5}}, {"test": {"loss": 0.7}}, size=1000)
    assert tables.figure("test.loss")(two) == "0.6 ± 0.1"
    percent = tables.figure("test.loss", "{:.0f}", 100, " %")
    assert percent(two) == "60 ± 14 %"
    # A seed may lack a figure; so may a row.
    assert percent(row({"test": {"loss": 0.5}}, {"test": None})) == "50 %"
    assert tables.figure("none", empty="-")(two) == "-"
    assert tables.mean(two, "none") is None
    assert tables.field("row.size", "{:,}")(two) == "1,000"
    assert tables.of_rows([two, row({"loss": 2})]) == (
        "|  | size | test.loss | seeds | loss |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| a | 1,000 | 0.6 ± 0.1414 | 2 |  |\n| a |  |  | 1 | 2 |"
    )


def test_pages_are_those_of_the_records(tmp_path, monkeypatch):
    pages.main(["--check"])
    monkeypatch.setattr(pages, "TABLES", {"one": lambda: "| 1 |"})
    page = tmp_path / "page.md"
    text = "Before.\n\n<!-- table: one -->\n{}<!-- /table -->\n\nAfter.\n"
    page.write_text(text.format(""))
    with pytest.raises(SystemExit, match="page.md differs from the records"):
        pages.main(["--check", "--pages", str(page)])
    assert page.read_text() == text.format("")
    pages.main(["--write", "--pages", str(page)])
    assert page.read_text() == text.format("| 1 |\n")
    pages.main(["--check", "--pages", str(page)])
    page.write_text("No place.")
    with pytest.raises(ValueError, match="one place for each .* one"):
        pages.main(["--write", "--pages", str(page)])


def test_records_are_printed(capsys):
    pages.main(["codes.clusters"])
    printed = capsys.readouterr().out
    assert printed.startswith("## codes.clusters\n\n|  | ")
    assert "| straight-through, constant temperature | " in printed
    with pytest.raises(SystemExit):
        pages.main(["codes.none"])


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
        record = Record(name, path)
        assert record.rows
        for found in record.rows:
            assert set(found["row"]) | {"name"} == fields
            assert set(found["settings"]) == set(benchmark_class.settings)
            for each in found["runs"]:
                assert set(each) == {"seed", "date", "made_by", "figures"}
                assert record.made_by[each["made_by"]]["command"]
