"""Parts of the benchmarks of many classes, by references and made-up times."""

import types

import keras
import numpy as np
import pytest
from benchmark_files import figures
from benchmark_files import load

from benchmarks.classes import methods
from benchmarks.classes import tasks
from benchmarks.classes.tasks import features_of

head_to_head = load("classes.head_to_head")
WORDS, LABELS, VISITS, LINKS = tasks.QUICK


@pytest.mark.parametrize("name", methods.METHODS)
def test_layer_scores_as_many_as_are_sampled(name):
    method = methods.METHODS[name]
    task = types.SimpleNamespace(
        # Of more than a million labels, the default scores fewer.
        counts=np.arange(5000)[::-1] // 20,
        settings=types.SimpleNamespace(batch_size=4, steps=20),
    )
    for samples in (40, 4000) if method.samples is None else [method.samples]:
        head = methods.make_head(method, samples, task, seed=0)
        number = head.sampling.num_candidates + head.sampling.num_noises
        is_paper = method.selector == "subsets"
        assert number == (samples + is_paper or 2)
        loss = methods.make_loss(method, samples, task)
        assert loss.ignore_class == tasks.IGNORED


def full_softmax(task):
    inputs, features = task.features()
    method = methods.METHODS["full softmax"]
    head = methods.make_head(method, 0, task, seed=0)
    return keras.Model(inputs, head(features)), head


def test_figures_of_links():
    """Ranks among all that are no other answer, by plain loops."""
    task = LINKS.load(None)
    model, head = full_softmax(task)
    vectors, biases = tasks.class_table(head)
    # One table, for questions and for answers.
    table = task.class_embedding.embeddings.numpy()
    np.testing.assert_array_equal(vectors, table)
    data = task.data
    everything = np.concatenate([data.train, data.valid, data.test])
    scores = features_of(model, data.test[:, :2]) @ vectors.T + biases
    ranks = []
    for row, of_row in zip(data.test, scores, strict=True):
        alike = (everything[:, :2] == row[:2]).all(axis=1)
        others = set(range(data.num_entities)) - set(everything[alike, 2])
        ranks.append(1 + sum(of_row[k] >= of_row[row[2]] for k in others))
    found = task.figures(model, "test")
    assert found["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)))
    assert found["hits_10"] == np.mean(np.array(ranks) <= 10)


class Training:
    """In place of `Training`; a step of NCE takes twice the time."""

    made = []

    def __init__(self, row, task, seed, rates, jit_compile):
        self.row, self.seed, self.rates = row, seed, rates
        self.made.append(self)

    def fit(self, seed, clock, epochs, steps_per_epoch):
        # The first step is traced, and the first turn compiled.
        of_a_step = (
            1.0 if seed == 0 else 0.01 + 0.01 * self.row.method.is_baseline
        )
        clock.seconds = (steps_per_epoch - 1) * of_a_step

    def measure(self):
        found = {"rate": max(self.rates), "steps": self.steps}
        parts = dict.fromkeys(("valid", "test"), {"perplexity": 9.0})
        return found | parts


def test_steps_follow_time_and_rates_the_first_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(head_to_head, "Training", Training)
    monkeypatch.setattr(Training, "made", [])
    flags = ["--quick", "--output", str(tmp_path / "record.json")]
    timed = [*flags, "--turns", "3", "--rates", "0.01,0.03"]
    cane, nce = head_to_head.main([*timed, "--seeds", "0"])
    assert figures(cane)["steps"] == 30 and figures(nce)["steps"] == 15
    assert figures(nce)["relative_time"] == 2
    assert {each.rates for each in Training.made} == {(0.01, 0.03)}
    # What is in the record is not measured again, and other seeds take its
    # rate; the row whose time all have is timed with them.
    Training.made.clear()
    head_to_head.main([*timed, "--seeds", "0,1", "--methods", "NCE"])
    assert [each.row.method.is_baseline for each in Training.made] == [
        False,
        True,
    ]
    assert Training.made[1].seed == 1 and Training.made[1].rates == (0.03,)
    # A bound makes all steps.
    flags[-1] = str(tmp_path / "bounds.json")
    flags += ["--methods", "CANE 1/4 frequent", "--bounds", "NCE"]
    _, nce = head_to_head.main(flags)
    assert figures(nce)["steps"] == 30 and figures(nce)["relative_time"] == 2
