"""Times of what takes turns, by the clock and of the processor."""

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
    """Calls functions in turns, so that other work slows all of them alike.

    Args:
        runs: Dict of functions of one argument, see `timed`.
        inputs: Iterable, an argument for each round.

    Returns:
        Dict of arrays `(rounds, 2)`.
    """
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
    """Seconds of training steps, without the first, which is traced.

    Attributes:
        seconds: Float.
        steps: Integer.
    """

    def __init__(self):
        super().__init__()
        self.seconds, self.steps = 0.0, 0

    def on_train_batch_begin(self, batch, logs=None):
        self.start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        if self.steps:
            self.seconds += time.perf_counter() - self.start
        self.steps += 1
