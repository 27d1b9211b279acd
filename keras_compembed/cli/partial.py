"""`compress --keep-partial`: what was learned until Ctrl-C."""

import keras

from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.utils.layer_names import named_layers


def compress_until_stopped(compress, model, make_learner, stops):
    """Compresses a model; after Ctrl-C, as far as it got."""
    learners = {}

    def settings_of(name):
        def make(num_codebooks, codebook_size):
            learner = make_learner(num_codebooks, codebook_size)
            learners.setdefault(name, []).append(_Stoppable(learner, stops))
            return learners[name][-1]

        return {"learner": make}

    names = named_layers(model, keras.layers.Embedding)
    try:
        with stops.raising_once():
            small = compress(
                learner=make_learner,
                layer_settings={name: settings_of(name) for name in names},
            )
    except KeyboardInterrupt:
        learned = _learned(learners)
        if not learned:
            raise
        small = compress(
            layers=list(learned),
            layer_settings={
                name: {"learner": _one_by_one(learned[name])}
                for name in learned
            },
            verbose=0,
        )
    return small, _what_was_done(learners) if stops.asked else ""


def _learned(learners):
    return {
        name: made
        for name, made in learners.items()
        if all(learner.is_trained for learner in made)
    }


def _one_by_one(made):
    made = iter(made)
    return lambda *shape: next(made)


def _what_was_done(learners):
    learned = _learned(learners)
    partial = [
        name
        for name, made in learned.items()
        if any(learner.is_partial for learner in made)
    ]
    left = [name for name in learners if name not in learned]
    lines = ["Stopped by Ctrl-C."]
    if partial:
        lines.append(f"Best codes found so far: {', '.join(partial)}")
    if left:
        lines.append(f"Still tables: {', '.join(left)}")
    return "\n".join(lines)


@CodeLearner.register
class _Stoppable:
    """A learner that trains once, and does not begin after Ctrl-C."""

    def __init__(self, learner, stops):
        self.is_trained = self.is_partial = False
        self._learner = learner
        self._stops = stops

    def __getattr__(self, name):
        return getattr(self._learner, name)

    def train(self, table, sample_weight=None):
        if not self.is_trained:
            if self._stops.asked:
                raise KeyboardInterrupt
            self._learner.train(table, sample_weight=sample_weight)
            self.is_partial = self._stops.asked
            self.is_trained = True
        return self
