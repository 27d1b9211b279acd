"""The benchmark of classes in equal processor time, in its quick mode."""

import itertools
import time
import types

import keras
import numpy as np
import pytest
from benchmark_files import figures
from benchmark_files import load

from benchmarks import tables as pages
from benchmarks.classes import methods
from benchmarks.classes import tasks
from benchmarks.common.arguments import parse
from benchmarks.common.benchmark import fields
from benchmarks.common.record import Record
from benchmarks.common.timing import TimedTraining

equal_time = load("classes.equal_time")
WORDS, LABELS, VISITS, LINKS = tasks.QUICK


@pytest.mark.slow
def test_equal_time(tmp_path, monkeypatch, capsys):
    """What is left, then rows with one seed, then the best with another."""
    monkeypatch.setattr(equal_time, "BEST", 1)
    arguments = ["--quick", "--output", str(tmp_path / "record.json")]
    words = [
        *(*arguments, "--tasks", WORDS.name, "--seeds", "0,1"),
        *("--methods", "NCE,CANE 1/4 frequent"),
    ]
    assert not equal_time.main([*words, "--minutes", "0"])
    assert "made-up words; NCE; 8 (0)" in capsys.readouterr().out
    rows = equal_time.main(words)
    assert "Left" not in capsys.readouterr().out
    for row in rows:
        first, second = (run["figures"] for run in row["runs"])
        # Both rates are tried, and then that which was better.
        assert len(first["tried"]) == 2
        assert first["valid"]["perplexity"] == min(first["tried"].values())
        assert list(second["tried"]) == [f"{first['rate']:g}"]
        for found in (first, second):
            assert found["seconds"] >= WORDS.seconds
            assert 1 < found["test"]["perplexity"] < 31
    # Places have no tree.
    arguments += ["--methods", "full softmax,CANE beam of 10 with own noises"]
    names = ",".join(task.name for task in (LABELS, VISITS, LINKS))
    arguments += ["--tasks", names]
    labels, visits, answers, beam = equal_time.main(arguments)
    assert beam["row"]["method"]["selector"] == "beam"
    for row in (labels, beam):
        assert 0.3 < figures(row)["test"]["accuracy"] < 0.7
    assert 0.3 < figures(visits)["test"]["ndcg"] < 0.8
    # Of 100, one at random has 0.05.
    assert 0.02 < figures(answers)["test"]["mrr"] < 0.9
    printed = capsys.readouterr().out
    assert "| made-up visits | full softmax |" in printed


class Seconds:
    """A clock that other work does not slow."""

    def __init__(self):
        self.time = 100.0

    def __call__(self):
        return self.time


def test_time_of_steps():
    """The first step and evaluation count no time; the rate falls by it."""
    now, rates = Seconds(), []
    optimizer = types.SimpleNamespace(learning_rate=None)
    model = types.SimpleNamespace(optimizer=optimizer, stop_training=False)

    def evaluate():
        now.time += 1000
        return {"valid": len(rates)}

    clock = TimedTraining(0.5, 10.0, (0.25, 0.5), evaluate, now=now)
    clock.set_model(model)
    while not model.stop_training:
        clock.on_train_batch_begin(0)
        rates.append(optimizer.learning_rate)
        now.time += 1 if rates[1:] else 77
        clock.on_train_batch_end(0)
        now.time += 5
    assert clock.seconds == 10 and clock.steps == 11
    assert clock.curve == [
        {"seconds": 3.0, "steps": 4, "valid": 4},
        {"seconds": 5.0, "steps": 6, "valid": 6},
    ]
    # No time has passed before the first two; then a cosine, a tenth a step.
    shares = np.arange(1, 10) / 10
    expected = 0.5 * (0.5 + 0.5 * np.cos(np.pi * shares))
    assert rates[:2] == [0.01, 0.01]
    np.testing.assert_allclose(rates[2:], expected, rtol=1e-12)


def test_all_rates_start_alike(monkeypatch):
    """A rate that is tried again, after another, comes to the same."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "process_time", lambda: next(ticks) / 100)
    (row,) = equal_time.rows_of(WORDS, "sampled softmax")
    task = WORDS.load(None)
    training = equal_time.Training(row, task, 0, (), False)
    weights = []
    for rate in (0.03, 0.01, 0.03):
        training.score_of(rate)
        weights.append(training.model.get_weights())
    first, other, again = weights
    assert not np.array_equal(first[0], other[0])
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, two)


def test_rows():
    args = parse(equal_time.EqualTime, "classes.equal_time", [])
    rows = equal_time.EqualTime(args, None).rows()
    assert len({row.name for row in rows}) == len(rows)
    # Flags have commas between names.
    assert not any("," in name for name in methods.METHODS)
    assert {task.name for task in tasks.TASKS} == set(pages.EQUAL_TIME_TASKS)
    for task in tasks.TASKS:
        metric, *_, sign = pages.EQUAL_TIME_TASKS[task.name]
        assert (metric, sign) == (task.metric, task.sign)
    by_task = {
        task.name: [row for row in rows if row.task == task]
        for task in tasks.TASKS
    }
    for task in tasks.TASKS:
        found = by_task[task.name]
        # The most telling first.
        assert [(row.method.loss, row.samples) for row in found[:3]] == [
            ("sampled", 1000),
            ("cane", 1000),
            ("full", 0),
        ]
        assert {row.samples for row in found} >= set(task.samples)
    # Titles are fewer than 4,000, places have no tree and no word before.
    assert max(row.samples for row in by_task["job_titles"]) == 1000
    selectors = {row.method.selector for row in by_task["gowalla"]}
    assert selectors == {*("auto", "frequent", "frequent and near", "nearest")}


@pytest.mark.parametrize("name", methods.METHODS)
def test_layer_scores_as_many_as_are_sampled(name):
    method = methods.METHODS[name]
    task = types.SimpleNamespace(
        # Of more than a million labels, the default scores fewer.
        counts=np.arange(5000)[::-1] // 20,
        settings=types.SimpleNamespace(batch_size=4, steps=20),
        followers=lambda number: methods.kc.candidates.NGram(
            np.arange(2 * number).reshape(2, number)
        ),
    )
    for samples in method.samples or (40, 200, 1000, 4000):
        head = methods.make_head(
            method,
            samples,
            task,
            lambda: methods.kc.trees.ClassTree.random(5000, seed=0),
            seed=0,
        )
        number = head.num_candidates + head.estimation.num_noises
        assert number == (samples or 2)
        loss = methods.make_loss(method, samples, task)
        assert loss.ignore_class == tasks.IGNORED


def test_best_rows(tmp_path):
    """The full softmax and the best of each side by validation."""
    args = parse(
        equal_time.EqualTime,
        "classes.equal_time",
        ["--tasks", "ptb", "--seeds", "3,4"],
    )
    record = Record("classes.equal_time", tmp_path / "record.json")
    benchmark = equal_time.EqualTime(args, record)
    rows = benchmark.rows()
    for place, row in enumerate(rows):
        valid = {"perplexity": 100.0 + place}
        record.add(row.name, fields(row), {}, 3, {"valid": valid, "rate": 1})
    best = benchmark.best(rows, 3)
    assert [row.method.loss for row in best] == [
        *("full", *["sampled", "nce", "blackout"], *["cane"] * 3)
    ]
    assert [row.samples for row in best] == [0, *[1000] * 6]
    assert benchmark.rates(rows[0], 3) == args.rates
    assert benchmark.rates(rows[0], 4) == (1,)
    assert list(benchmark.jobs(rows))[len(rows) :] == [(4, row) for row in best]


def test_places_of_users():
    task = VISITS.load(None)
    inputs, labels = task.epoch(np.random.default_rng(0))
    assert inputs.shape == labels.shape and inputs.shape[1] == VISITS.steps
    # What comes next is what is read next, and pads are at the end.
    np.testing.assert_array_equal(inputs[:, 1:], labels[:, :-1] + 1)
    assert (labels[:, 0] >= 0).all()
    pairs = np.array([[0, 7], [0, 5], [2, 3], [2, 1], [2, 9]])
    rows = task.sequences(pairs, 4, np.random.default_rng(0))
    assert sorted(rows[0]) == [-1, -1, 5, 7] and set(rows[1]) == {-1}
    assert set(rows[2][:3]) == {1, 3, 9} and rows[2][3] == -1
    # Of more places than there is room for, any.
    found = {
        tuple(sorted(task.sequences(pairs, 2, np.random.default_rng(s))[2]))
        for s in range(30)
    }
    assert found == {(1, 3), (1, 9), (3, 9)}


def test_figures_of_places():
    """Features that point to one place rank it first."""
    task = VISITS.load(None)
    number = task.data.num_items
    ids = keras.Input((None,), dtype="int32")
    # Of each place, the one after.
    table = np.eye(number + 1, number)
    features = keras.layers.Embedding(
        number + 1,
        number,
        embeddings_initializer=lambda shape, dtype: np.float32(table),
    )(ids)
    head = methods.kc.CANESoftmax(
        number,
        methods.kc.candidates.FrequentClasses(np.ones(number)),
        kernel_initializer="identity",
    )
    model = keras.Model(ids, head(features))
    width = dict(vars(VISITS), width=number)
    task.settings = types.SimpleNamespace(**width)
    # Users who were at one place, and then at the one after.
    places = np.arange(20)
    users = np.arange(20)
    task.data = types.SimpleNamespace(
        num_users=20,
        num_items=number,
        train=np.stack([users, places], 1),
        valid=np.stack([users, (places + 1) % number], 1),
    )
    task.valid_users = users
    assert task.figures(model, "valid") == {"ndcg": 1.0, "recall": 1.0}


def test_figures_of_labels():
    task = LABELS.load(None)
    inputs, features, _ = task.features()
    head = methods.make_head(
        methods.METHODS["full softmax"], 0, task, None, seed=0
    )
    model = keras.Model(inputs, head(features))
    metrics = [methods.kc.ClassAccuracy(), methods.kc.ClassAccuracy(k=5)]
    model.compile(loss=methods.kc.CANELoss(), metrics=metrics)
    expected = model.evaluate(*task.data.test, verbose=0, return_dict=True)
    found = task.figures(model, "test")
    assert found["accuracy"] == pytest.approx(expected["accuracy"])
    assert found["top_5"] == pytest.approx(expected["top_5_accuracy"])


def test_figures_of_links():
    """Ranks among all that are no other answer, by plain loops."""
    task = LINKS.load(None)
    asked, features, _ = task.features()
    head = methods.make_head(
        methods.METHODS["full softmax"], 0, task, None, seed=0
    )
    model = keras.Model(asked, head(features))
    vectors, biases = tasks.class_table(head)
    # One table, for questions and for answers.
    np.testing.assert_array_equal(
        vectors, task.class_embedding.embeddings.numpy()
    )
    data = task.data
    everything = np.concatenate([data.train, data.valid, data.test])
    ranks = []
    for row, scores in zip(
        data.test,
        model.predict(data.test[:, :2], verbose=0) @ vectors.T + biases,
        strict=True,
    ):
        alike = (everything[:, :2] == row[:2]).all(axis=1)
        others = set(range(data.num_entities)) - set(everything[alike, 2])
        ranks.append(1 + sum(scores[k] >= scores[row[2]] for k in others))
    found = task.figures(model, "test")
    assert found["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)))
    assert found["hits_10"] == np.mean(np.array(ranks) <= 10)


def test_table(monkeypatch):
    """The best number of each method by validation, the best method first."""

    def row(name, samples, *runs):
        figures = [
            {
                "valid": {"perplexity": valid},
                "test": {"perplexity": test},
                "rate": 0.01,
                "steps": 1000,
            }
            for valid, test in runs
        ]
        return {
            "name": f"ptb; {name}; {samples}",
            "row": {"task": {"name": "ptb"}, "samples": samples},
            "runs": [{"figures": found} for found in figures],
        }

    rows = [
        row("sampled softmax", 1000, (120, 130)),
        row("sampled softmax", 40, (121, 119)),
        row("full softmax", 0, (140, 139)),
        row("CANE", 1000, (110, 111), (115, 113)),
    ]
    monkeypatch.setattr(pages, "read", lambda path: rows)
    assert pages.equal_time("ptb").splitlines()[2:] == [
        "| CANE |  |  | 112.0 ± 1.4 | 0.01 | 1,000 | 2 |",
        "| sampled softmax |  | 119.0 | **130.0** | 0.01 | 1,000 | 1 |",
        "| full softmax | 139.0 |  |  | 0.01 | 1,000 | 1 |",
    ]
