"""Cells and tables, and those of `docs/results.md`."""

import dataclasses

import pytest
from benchmark_files import load

from benchmarks import __main__ as command_line
from benchmarks import tables as pages
from benchmarks.common import tables
from benchmarks.common.arguments import parse
from benchmarks.common.benchmark import FOLDER
from benchmarks.common.record import Record


def row(*figures, **fields):
    runs = [
        {"seed": seed, "figures": found} for seed, found in enumerate(figures)
    ]
    return {"name": "a", "row": fields, "settings": {}, "runs": runs}


def test_cells():
    two = row({"test": {"loss": 0.5}}, {"test": {"loss": 0.7}}, size=1000)
    assert tables.figure("test.loss")(two) == "0.6 ± 0.1"
    percent = tables.figure("test.loss", "{:.0f}", 100, " %")
    assert percent(two) == "60 ± 14 %"
    assert percent(row({"test": {"loss": 0.5}})) == "50 %"
    # A seed may lack a figure; so may a row.
    assert percent(row({"test": {"loss": 0.5}}, {"test": None})) == "50 %"
    assert tables.figure("none", empty="-")(two) == "-"
    assert tables.mean(two, "test.loss") == pytest.approx(0.6)
    assert tables.mean(two, "none") is None
    assert tables.field("row.size", "{:,}")(two) == "1,000"
    assert tables.field("row.none", empty="?")(two) == "?"
    assert tables.seeds(two) == "2"
    assert tables.markdown(["a", "b"], [[1, ""]]) == (
        "| a | b |\n| --- | --- |\n| 1 |  |"
    )


def test_empty_columns_are_left_out():
    columns = {
        "row": tables.field("name"),
        "none": tables.figure("none"),
        "loss": tables.figure("loss"),
    }
    found = tables.of_columns(columns, [row({}), row({"loss": 0})])
    assert found == "| row | loss |\n| --- | --- |\n| a |  |\n| a | 0.0 |"


def test_short():
    numbers = (1002.3, 343.1, 36.71, 8.314, 0.29, 0.06)
    assert [pages.short(x) for x in numbers] == [
        *("1,002", "343", "36.7", "8.31", "0.29", "0.06")
    ]


def test_results_are_those_of_the_records():
    pages.main(["--check"])


def test_page_is_rewritten(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "TABLES", {"one": lambda: "| 1 |"})
    page = tmp_path / "page.md"
    text = "Before.\n\n<!-- table: one -->\n{}<!-- /table -->\n\nAfter.\n"
    page.write_text(text.format(""))
    with pytest.raises(SystemExit, match="page.md differs from the records"):
        pages.main(["--check", "--pages", str(page)])
    assert page.read_text() == text.format("")
    pages.main(["--pages", str(page)])
    assert page.read_text() == text.format("| 1 |\n")
    pages.main(["--check", "--pages", str(page)])
    page.write_text("No place.")
    with pytest.raises(ValueError, match="one place for each .* one"):
        pages.main(["--pages", str(page)])


def test_pick():
    rows = [row(size=1), row(size=2)]
    assert pages.pick(rows, "a", size=2) is rows[1]
    assert pages.pick(rows, "b") is None
    with pytest.raises(ValueError, match="Several rows are 'a'"):
        pages.pick(rows, "a")


@pytest.mark.parametrize("name", command_line.NAMES)
def test_records_are_what_benchmarks_go_on_from(name):
    """Rows and settings of committed records are named as in the scripts."""
    module = load(name)
    benchmark = module.main.args[0]
    fields = {field.name for field in dataclasses.fields(module.Row)}
    path = benchmark.path(parse(benchmark, name, []))
    paths = sorted(FOLDER.glob(f"{name.replace('.', '/')}*.json"))
    assert paths and (path in paths or path.parent == paths[0].parent)
    for path in paths:
        record = Record(name, path)
        assert record.rows
        for row in record.rows:
            assert set(row["row"]) | {"name"} == fields
            assert set(row["settings"]) == set(benchmark.settings)
            for run in row["runs"]:
                assert set(run) == {"seed", "date", "made_by", "figures"}
                assert record.made_by[run["made_by"]]["command"]


@pytest.mark.parametrize("name", command_line.NAMES)
def test_committed_rows_do_not_run_again(name, tmp_path):
    benchmark_class = load(name).main.args[0]
    flags = ["--data", str(tmp_path)]
    if name == "classes.language_model":
        flags += ["--seconds", "180"]
    args = parse(benchmark_class, name, flags)
    benchmark = benchmark_class(args, Record(name, args.output))
    assert any(benchmark.has(row, 0) for row in benchmark.rows())
