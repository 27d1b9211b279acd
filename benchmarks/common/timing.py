"""Times of what takes turns, by the clock and of the processor."""

import math
import time

import keras
import numpy as np


def clocks():
    """Seconds by the clock, and of the processor's time of all threads."""
    return np.array([time.perf_counter(), time.process_time()])


def timed(function):
    """The same function, but it returns the `clocks` that a call took."""

    def run(*args):
        start = clocks()
        function(*args)
        return clocks() - start

    return run


def take_turns(runs, inputs):
    """Calls functions in turns, so that other work slows all of them alike."""
    times = {key: [] for key in runs}
    for value in inputs:
        for key, function in runs.items():
            times[key].append(function(value))
    return {key: np.array(rounds) for key, rounds in times.items()}


def summarize(times):
    """Dict of the median and the fastest round, and of the processor's time."""
    milliseconds = np.array(times) * 1e3
    wall, cpu = np.median(milliseconds, axis=0).round(3).tolist()
    return {
        "milliseconds": wall,
        "fastest": round(float(milliseconds[:, 0].min()), 3),
        "cpu_milliseconds": cpu,
    }


class StepClock(keras.callbacks.Callback):
    """Seconds of training steps, without the first, which is traced."""

    def __init__(self, now=time.perf_counter):
        super().__init__()
        self.now = now
        self.seconds, self.steps = 0.0, 0

    def on_train_batch_begin(self, batch, logs=None):
        self.start = self.now()

    def on_train_batch_end(self, batch, logs=None):
        if self.steps:
            self.seconds += self.now() - self.start
        self.steps += 1


class TimedTraining(StepClock):
    """Lowers the learning rate, and stops training after its time."""

    def __init__(
        self, learning_rate, limit, max_steps=None, now=time.perf_counter
    ):
        super().__init__(now)
        self.learning_rate = learning_rate
        self.limit, self.max_steps = limit, max_steps

    @property
    def share(self):
        if self.max_steps:
            return self.steps / self.max_steps
        return self.seconds / self.limit

    def on_train_batch_begin(self, batch, logs=None):
        warm = min(1.0, (self.share + 1e-4) / 0.02)
        fall = 0.5 + 0.5 * math.cos(math.pi * min(1.0, self.share))
        rate = self.learning_rate * max(0.02, warm * fall)
        self.model.optimizer.learning_rate = rate
        super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        if self.share >= 1:
            self.model.stop_training = True
