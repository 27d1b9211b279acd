"""The benchmark of classes in as many steps as fit into the same time."""

import pytest
from benchmark_files import figures
from benchmark_files import load

from benchmarks.classes import tasks
from benchmarks.common.arguments import parse

equal_time = load("classes.equal_time")
head_to_head = load("classes.head_to_head")
WORDS = tasks.QUICK[0]


@pytest.mark.slow
def test_head_to_head(tmp_path, capsys):
    rows = head_to_head.main(
        ["--quick", "--output", str(tmp_path / "record.json")]
    )
    reference, other = map(figures, rows)
    assert reference["steps"] == 30 and reference["relative_time"] == 1
    assert other["steps"] == round(30 / other["relative_time"])
    for found in (reference, other):
        assert 1 < found["test"]["perplexity"] < 31
    assert "| made-up words | NCE |" in capsys.readouterr().out


class Training:
    """In place of `equal_time.Training`; a step of NCE takes twice the time."""

    made = []

    def __init__(self, row, task, seed, rates, jit_compile):
        self.row, self.seed, self.rates = row, seed, rates
        self.turns = []
        self.made.append(self)

    def fit(self, seed, clock, epochs, steps_per_epoch):
        self.turns.append(seed)
        # The first step is traced, and the first turn compiled.
        of_a_step = 1.0 if seed == 0 else 0.01 + 0.01 * self.row.method.is_rival
        clock.seconds = (steps_per_epoch - 1) * of_a_step

    def measure(self):
        return {
            "rate": max(self.rates),
            "valid": {"perplexity": 9.0},
            "test": {"perplexity": 9.0},
            "steps": self.max_steps,
        }


def test_steps_follow_time_and_rates_the_first_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(equal_time, "Training", Training)
    monkeypatch.setattr(Training, "made", [])
    arguments = [
        *("--quick", "--output", str(tmp_path / "record.json")),
        *("--turns", "3", "--rates", "0.01,0.03"),
    ]
    cane, nce = head_to_head.main([*arguments, "--seeds", "0"])
    assert figures(cane)["steps"] == 30 and figures(nce)["steps"] == 15
    assert figures(nce)["relative_time"] == 2
    assert {each.rates for each in Training.made} == {(0.01, 0.03)}
    assert all(each.turns == [0, 1, 2, 3] for each in Training.made)
    # What is in the record is not measured again, and other seeds take its
    # rate; the row whose time all have is timed with them.
    Training.made.clear()
    head_to_head.main([*arguments, "--seeds", "0,1", "--methods", "NCE"])
    assert [each.row.method.is_rival for each in Training.made] == [False, True]
    assert Training.made[1].seed == 1 and Training.made[1].rates == (0.03,)


def test_bounds_make_all_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(equal_time, "Training", Training)
    arguments = ["--quick", "--output", str(tmp_path / "record.json")]
    arguments += ["--methods", "CANE 1/4 frequent", "--bounds", "NCE"]
    _, nce = head_to_head.main(arguments)
    assert figures(nce)["steps"] == 30
    assert figures(nce)["relative_time"] == 2


def test_rows_are_those_that_were_chosen():
    args = parse(head_to_head.HeadToHead, "classes.head_to_head", [])
    benchmark = head_to_head.HeadToHead(args, None)
    rows = benchmark.rows()
    assert len({row.name for row in rows}) == len(rows)
    assert {row.task.name for row in rows} == set(args.tasks)
    for row in rows:
        (rate,) = benchmark.rates(row, 0)
        assert 0 < rate < 1
        others = [
            other
            for other in equal_time.rows_of(row.task, row.name.split("; ")[1])
            if other.name in benchmark.known
        ]
        assert benchmark.score(row) == max(map(benchmark.score, others))
        assert benchmark.steps(row) > 500


def test_numbers_of_samples_that_are_given():
    given = ["--samples", "200,4000", "--tasks", "ptb", "--methods"]
    for method, samples in (
        ("sampled softmax", [4000, 200]),
        ("CANE by default", [1000]),
    ):
        args = parse(
            head_to_head.HeadToHead, "classes.head_to_head", [*given, method]
        )
        rows = head_to_head.HeadToHead(args, None).rows()
        assert [row.samples for row in rows] == samples
