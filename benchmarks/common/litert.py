"""LiteRT files on one thread."""

import os
import time
import warnings

import numpy as np


class File:
    """A file with the shapes of its inputs set once, which `run` times."""

    def __init__(self, file, shapes=None):
        content = file if isinstance(file, bytes) else None
        path = None if content is not None else os.fspath(file)
        self._interpreter = _interpreter(
            model_path=path, model_content=content, num_threads=1
        )
        self._inputs, self._outputs = _places(self._interpreter)
        for name, shape in (shapes or {}).items():
            self._interpreter.resize_tensor_input(self._place(name), shape)
        self._interpreter.allocate_tensors()

    def _place(self, name):
        if name is None:
            (place,) = self._inputs.values()
            return place
        return self._inputs[name]

    def run(self, inputs):
        """Seconds of one run; `inputs` is an array, or a dict of arrays."""
        if not isinstance(inputs, dict):
            inputs = {None: inputs}
        for name, array in inputs.items():
            self._interpreter.set_tensor(self._place(name), array)
        start = time.perf_counter()
        self._interpreter.invoke()
        return time.perf_counter() - start

    def outputs(self):
        """Dict of the arrays that the last run gave."""
        return {
            name: self._interpreter.get_tensor(place)
            for name, place in self._outputs.items()
        }


def _interpreter(**kwargs):
    # Not through keras_compembed, which needs TensorFlow.
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        from tensorflow.lite.python.interpreter import Interpreter
    with warnings.catch_warnings():
        # That of TensorFlow works, and asks for the other.
        warnings.simplefilter("ignore")
        return Interpreter(**kwargs)


def _places(interpreter):
    """Dicts from names to places, of inputs and of outputs."""
    runner = interpreter.get_signature_runner()
    return tuple(
        {name: found["index"] for name, found in details.items()}
        for details in (
            runner.get_input_details(),
            runner.get_output_details(),
        )
    )


def in_turns(run, other, inputs, seconds, least=9):
    """Calls two functions in turns, so that other work slows both alike."""
    start, times = time.perf_counter(), []
    for value in inputs:
        if len(times) % 2:
            times.append((run(value), other(value)))
        else:
            # What runs first finds colder caches.
            times.append((other(value), run(value))[::-1])
        if len(times) > least and time.perf_counter() - start > seconds:
            break
    return np.median(np.array(times[1:]), axis=0).tolist()
