"""Ctrl-C at every phase of every learner."""

import functools
import threading

import numpy as np
import pytest
import threadpoolctl
from small_learners import interrupted
from small_learners import make_learner

from keras_compembed import learners
from keras_compembed.learners.additive_quantizer import FactorQuantizer

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(12, 8)) + 2


def make_table(rows):
    table = CENTRES[RNG.integers(12, size=rows)]
    return (table + 0.1 * RNG.normal(size=table.shape)).astype("float32")


TABLE = make_table(96)
# Learned from a warm start.
LONG = make_table(10_000)


def gradient_learner(cls, composition, refine=None):
    sizes = {"batch_size": 96, "validation_rows": 96}
    steps = {"iterations": 1, "validation_interval": 1, "learning_rate": 0.03}
    options = {"composition": composition, "refine": refine, "seed": 0}
    return make_learner(
        cls,
        num_codebooks=4,
        codebook_size=6,
        verbose=0,
        **sizes,
        **steps,
        **options,
    )


def quantizer(cls, num_codebooks=4, **kwargs):
    return cls(num_codebooks, 6, effort=0.05, seed=0, verbose=0, **kwargs)


ADDITIVE = functools.partial(quantizer, learners.AdditiveQuantizer)
# So few bits that it anneals.
ANNEALED = functools.partial(ADDITIVE, 3)
FACTORS = functools.partial(quantizer, FactorQuantizer, rank=3)
KD = functools.partial(gradient_learner, learners.KDCodeLearner)
GUMBEL = functools.partial(gradient_learner, learners.GumbelCodeLearner)
# Each with its table, and how many calls there are to one that is interrupted.
LEARNERS = {
    "additive": (ADDITIVE, TABLE, 6),
    "annealed": (ANNEALED, TABLE, 6),
    "warm": (ANNEALED, LONG, 290),
    "factors": (FACTORS, TABLE, 16),
    "linear": (functools.partial(KD, "linear"), TABLE, 23),
    "lstm": (functools.partial(KD, ("lstm", 3)), TABLE, 34),
    "gumbel": (functools.partial(GUMBEL, "sum", refine=True), TABLE, 22),
}


class Reads(np.ndarray):
    """A table that calls `Reads.event` before each time that it is read.

    In the main thread, the one that Ctrl-C interrupts.
    """

    def __getitem__(self, rows):
        if threading.current_thread() is threading.main_thread():
            Reads.event()
        return np.asarray(self)[rows]


def check_kept(learner, table):
    """Codes are as good as the losses say, and the best of them."""
    rows = learner.decode(learner.codes)
    loss = np.square(rows - table).sum(axis=1).mean(dtype="float64")
    refined = learner.history.get("refined_loss", [])
    if isinstance(learner, learners.AdditiveQuantizer):
        losses = learner.history["loss"]
        assert losses[-1] == pytest.approx(loss, rel=1e-4)
        assert losses[-1] <= min(losses) * (1 + 1e-5)
    elif refined:
        # Least squares has a ridge of 0.01 against some 16 rows a codeword.
        assert loss <= refined[-1] * (1 + 1e-3)
        assert (np.diff(refined) < 1e-3).all()
    elif learner.composition.is_linear is False:
        np.testing.assert_array_equal(learner.codes, learner.encode(table))


# Of one that comes as a generator is closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", LEARNERS)
def test_ctrl_c_anywhere(name):
    make, table, every = LEARNERS[name]
    place, came_through, kept = 1, False, False
    while True:
        learner = make()
        before = learner.codes
        result, was_interrupted = interrupted(
            lambda: learner.train(table),  # noqa: B023
            place,
        )
        if not was_interrupted:
            break
        place += every
        if result is not None:
            kept = True
            check_kept(learner, table)
            continue
        came_through = True
        if learner.codes is not before:
            # All had been kept by then.
            check_kept(learner, table)
            continue
        try:
            check_kept(learner.train(table), table)
        except ValueError as error:
            assert "make a new one" in str(error)
    assert came_through and kept


def test_what_was_learned_before_is_kept():
    learner = ADDITIVE().train(TABLE)
    codes, codebooks = learner.codes, learner.codebooks
    result, _ = interrupted(lambda: learner.train(-3 * TABLE), 5)
    assert result is None
    assert learner.codes is codes and learner.codebooks is codebooks
    check_kept(learner, TABLE)


@pytest.mark.parametrize("name", ["additive", "linear"])
def test_ctrl_c_twice(name, capsys):
    """What is under way is given up; nothing is left half done."""
    make, table, every = LEARNERS[name]
    outcomes = set()
    for place in range(1, 400, max(1, every // 4)):
        reads = 0

        def event():
            nonlocal reads
            reads += 1
            if reads in (place, place + 1):  # noqa: B023
                raise KeyboardInterrupt

        Reads.event = staticmethod(event)
        learner = make()
        try:
            learner.train(table.view(Reads))
            outcomes.add("kept")
            check_kept(learner, table)
        except KeyboardInterrupt:
            outcomes.add("came through")
            assert learner.codes is None
        if reads < place:
            break
    assert outcomes == {"kept", "came through"}
    assert "Interrupted" in capsys.readouterr().out
    Reads.event = staticmethod(lambda: None)
    check_kept(make().train(table.view(Reads)), table)


def test_searches_keep_to_one_thread():
    threads = []

    def event():
        pools = threadpoolctl.ThreadpoolController().select(user_api="blas")
        threads.append({pool["num_threads"] for pool in pools.info()})

    Reads.event = staticmethod(event)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        learner = ADDITIVE().train(TABLE.view(Reads))
        # Before the search, and in it.
        assert threads[0] == {2} and threads[-1] == {1}
        event()
        assert threads[-1] == {2}
    assert learner.codes is not None
