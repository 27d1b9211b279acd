"""Ctrl-C at every phase of every learner."""

import functools

import keras
import numpy as np
import pytest
from small_learners import make_learner

import keras_compembed as kc
from keras_compembed.compositions.linear_composition import LinearComposition
from keras_compembed.learners import coordinate_search as search
from keras_compembed.learners import gradient_code_learner
from keras_compembed.learners import quantizer_run
from keras_compembed.learners import refinement
from keras_compembed.learners.straight_through import StraightThroughEncoder
from keras_compembed.learners.training import KeepBest

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(12, 8)) + 2
TABLE = CENTRES[RNG.integers(12, size=96)] + 0.1 * RNG.normal(size=(96, 8))
TABLE = TABLE.astype("float32")


class Interruptions:
    """Raises KeyboardInterrupt at chosen ones of the events it counts.

    Before and after each call of what `watch` is given.
    """

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch
        self.start()

    def start(self, *places):
        self.places, self.count = places, 0

    def watch(self, owner, *names):
        for name in names:
            function = getattr(owner, name)
            self.monkeypatch.setattr(owner, name, self.counted(function))

    def counted(self, function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            self.event()
            result = function(*args, **kwargs)
            self.event()
            return result

        return call

    def event(self):
        self.count += 1
        if self.count in self.places:
            raise KeyboardInterrupt

    def runs(self, run, times=1):
        """Runs with interrupts at every place, until there is none there.

        Yields what `run` returns, None if the interrupt came through.
        """
        place = 0
        while True:
            place += 1
            self.start(*range(place, place + times))
            try:
                result = run()
            except KeyboardInterrupt:
                result = None
            done = self.count < place
            self.start()
            if done:
                return
            yield result


@pytest.fixture
def interruptions(monkeypatch):
    return Interruptions(monkeypatch)


def loss_of(learner, codes=None):
    codes = learner.codes if codes is None else codes
    rows = learner.decode(codes)
    return np.square(rows - TABLE).sum(axis=1).mean(dtype="float64")


@pytest.fixture
def shown(monkeypatch):
    """Losses that the progress bar was told."""
    losses = []

    def update(self, current, values=None, finalize=None):
        losses.extend(value for name, value in values or () if name == "loss")

    monkeypatch.setattr(keras.utils.Progbar, "update", update)
    return losses


@pytest.mark.parametrize(("warm", "times"), [(False, 1), (True, 1), (True, 2)])
def test_additive_quantizer(warm, times, interruptions, shown, monkeypatch):
    monkeypatch.setattr(quantizer_run, "_WARM_ROWS", 1 if warm else 1e9)
    monkeypatch.setattr(quantizer_run, "_WARM_STEPS", 8)
    monkeypatch.setattr(quantizer_run, "_WARM_ITERATIONS", 2)
    monkeypatch.setattr(quantizer_run, "_ITERATIONS", 2)
    monkeypatch.setattr(quantizer_run, "_ROUND", 4)
    monkeypatch.setattr(search, "_CHUNK_ROWS", 50)
    interruptions.watch(
        search,
        "mean_row",
        "covariance",
        "random_codes",
        "sums_by_subcode",
        "least_squares_step",
    )
    interruptions.watch(search.Sweep, "run")
    interruptions.watch(StraightThroughEncoder, "codes", "_adam")
    interruptions.watch(keras.utils.Progbar, "update")
    learners = []

    def train():
        shown.clear()
        learners.append(kc.learners.AdditiveQuantizer(4, 6, seed=0, verbose=0))
        return learners[-1].train(TABLE)

    stopped = kept = 0
    for learner in interruptions.runs(train, times):
        if learner is None:
            # Nothing was there to keep, or Ctrl-C came again.
            stopped += 1
            learner = learners[-1]
            assert learner.codes is None and learner.codebooks is None
            assert learner.history["loss"] == []
            assert not shown or times == 2
            continue
        kept += 1
        loss = loss_of(learner)
        assert learner.history["loss"][-1] == pytest.approx(loss, rel=1e-5)
        assert loss <= min(shown, default=np.inf) * (1 + 1e-5)
    assert stopped >= 4
    assert kept > 30
    # Twice before anything was kept.
    train()
    interruptions.start(1)
    learner, codes = learners[-1], learners[-1].codes
    with pytest.raises(KeyboardInterrupt):
        learner.train(-TABLE)
    assert learner.codes is codes
    before = learner.history["loss"][-1]
    assert loss_of(learner) == pytest.approx(before, rel=1e-5)


def test_random_codes(interruptions):
    interruptions.watch(
        search, "mean_row", "random_codes", "least_squares_step"
    )
    interruptions.watch(search, "subtract_codewords")
    learner = kc.learners.RandomCodeLearner(4, 6, seed=0).train(TABLE)
    loss = learner.history["loss"][-1]
    runs = 0
    for result in interruptions.runs(lambda: learner.train(-3 * TABLE)):
        runs += 1
        assert result is None
        assert loss_of(learner) == pytest.approx(loss, rel=1e-5)
    assert runs == 8
    assert learner.train(TABLE).history["loss"][-1] == pytest.approx(
        loss_of(learner), rel=1e-5
    )


class Watched(keras.callbacks.Callback):
    """Counts what goes on in `fit`, and keeps what was shown."""

    def __init__(self, interruptions):
        super().__init__()
        self.losses = []
        self.event = interruptions.event

    def on_train_begin(self, logs=None):
        self.event()

    def on_train_batch_end(self, batch, logs=None):
        self.event()

    def on_test_begin(self, logs=None):
        self.event()

    def on_test_end(self, logs=None):
        self.event()

    def on_epoch_end(self, epoch, logs=None):
        self.losses.append(logs["val_loss"])
        self.event()

    def on_train_end(self, logs=None):
        self.event()


def in_order(num_rows, weight, batch_size, seed):
    """Stands in for `drawn_places`: all rows are validated."""
    while True:
        yield np.arange(batch_size) % num_rows


def small_learner(cls, composition, **kwargs):
    return make_learner(
        cls,
        num_codebooks=4,
        codebook_size=6,
        composition=composition,
        learning_rate=0.03,
        batch_size=96,
        iterations=1,
        validation_interval=1,
        validation_rows=96,
        seed=0,
        verbose=0,
        **kwargs,
    )


GRADIENT_LEARNERS = [
    (kc.learners.KDCodeLearner, "linear", {}),
    (kc.learners.KDCodeLearner, "concat", {}),
    (
        kc.learners.KDCodeLearner,
        kc.compositions.LSTMComposition(code_dim=3),
        {},
    ),
    (kc.learners.GumbelCodeLearner, "sum", {"refine": True}),
]


@pytest.fixture
def shortened(monkeypatch):
    monkeypatch.setattr(gradient_code_learner, "drawn_places", in_order)
    monkeypatch.setattr(refinement, "_SWEEPS", 2)
    monkeypatch.setattr(refinement, "_SWEEPS_OF_PARTS", 2)


def check_loss(learner, *shown):
    """The codes kept are as good as the best that was shown."""
    shown += tuple(learner.history.get("val_loss", [])[-1:])
    shown += tuple(learner.history.get("refined_loss", [])[-1:])
    # Least squares has a ridge of 0.01 against some 16 rows a codeword.
    assert loss_of(learner) <= min(shown, default=np.inf) * (1 + 1e-3)


def test_fit_of_gradient_learners(interruptions, shortened):
    # All of them share it.
    cls, composition, _ = GRADIENT_LEARNERS[0]
    interruptions.watch(cls, "begin", "_argmax_codes")
    interruptions.watch(KeepBest, "restore", "on_epoch_end")
    seen = []

    def train():
        learner = small_learner(cls, composition)
        seen.append((learner, Watched(interruptions)))
        return learner.train(TABLE, callbacks=[seen[-1][1]])

    stopped = kept = 0
    for result in interruptions.runs(train):
        kept += 1
        learner, watched = seen[-1]
        if result is None:
            stopped += 1
            assert learner.codes is None
            learner.train(TABLE)
        check_loss(learner, *watched.losses[-1:])
    # It comes through where nothing was learned.
    assert stopped == 2
    assert kept >= 12


@pytest.mark.parametrize(
    "cls, composition, kwargs",
    GRADIENT_LEARNERS,
    ids=["linear", "concat", "lstm", "gumbel"],
)
def test_refinement_of_gradient_learners(
    cls, composition, kwargs, interruptions, shortened, monkeypatch
):
    learner = small_learner(cls, composition, **kwargs).train(TABLE)

    def fit(self, *args, **kwargs):
        self._codes = None
        self.history = keras.callbacks.History()
        self._fit_history.history = {}

    # The learner is the one fitted above, whose `fit` is interrupted in the
    # test before.
    monkeypatch.setattr(cls, "fit", fit)
    interruptions.watch(cls, "_argmax_codes", "assign_codebooks")
    interruptions.watch(KeepBest, "restore")
    interruptions.watch(LinearComposition, "set_weights")
    interruptions.watch(search, "least_squares_step")
    interruptions.watch(search.Sweep, "run")
    interruptions.watch(refinement, "_nearest_parts")
    kept = 0
    for result in interruptions.runs(lambda: learner.train(TABLE)):
        kept += 1
        assert result is not None
        check_loss(learner)
    assert kept >= (12 if composition == "linear" else 4)


def test_second_interrupt_gives_up(interruptions, monkeypatch):
    learner = small_learner(kc.learners.KDCodeLearner, "linear").train(TABLE)
    interruptions.watch(kc.learners.KDCodeLearner, "_argmax_codes")
    interruptions.start(1, 2)
    with pytest.raises(KeyboardInterrupt):
        learner.train(TABLE)
    # Weights have changed, so the codes of before are none of theirs.
    assert learner.codes is None
    interruptions.start()
    learner.train(TABLE)
    assert loss_of(learner) <= learner.history["refined_loss"][-1] * 1.001


def test_interrupt_while_weights_are_made(interruptions):
    learner = small_learner(kc.learners.KDCodeLearner, "linear")
    interruptions.watch(kc.learners.KDCodeLearner, "build_logits")
    interruptions.start(2)
    with pytest.raises(KeyboardInterrupt):
        learner.train(TABLE)
    with pytest.raises(ValueError, match="make a new one"):
        learner.train(TABLE)


def test_training_by_hand_forgets_codes():
    learner = small_learner(kc.learners.KDCodeLearner, "sum").train(TABLE)
    assert learner.codes is not None
    learner.fit(TABLE, TABLE, verbose=0)
    assert learner.codes is None


def test_layer_of_an_interrupted_learner(interruptions):
    interruptions.watch(search.Sweep, "run")
    interruptions.start(3)
    learner = kc.learners.AdditiveQuantizer(4, 6, seed=0, verbose=0)
    layer = kc.CodeEmbedding.from_table(TABLE, 4, 6, learner=learner)
    np.testing.assert_allclose(
        layer.embeddings, learner.decode(learner.codes), atol=1e-5
    )
    interruptions.watch(search, "mean_row")
    interruptions.start(1)
    with pytest.raises(KeyboardInterrupt):
        kc.CodeEmbedding.from_table(TABLE, 4, 6, verbose=0)
