"""Runs LiteRT files."""

import importlib
import os
import warnings

import numpy as np

from keras_compembed.utils.validation import check_positive_int


def _interpreter(**kwargs):
    try:
        module = importlib.import_module("ai_edge_litert.interpreter")
    except ImportError:
        import tensorflow as tf

        with warnings.catch_warnings():
            # It works, and asks for the package that is not there.
            warnings.simplefilter("ignore")
            return tf.lite.Interpreter(**kwargs)
    return module.Interpreter(**kwargs)


class LiteRTModel:
    """A LiteRT file as a function on arrays.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> export = kc.export.export_litert(model, "dense.tflite", verbose=0)
    >>> LiteRTModel("dense.tflite").predict(np.ones((100, 4))).shape
    (100, 2)

    Args:
        path: String or path-like, the `.tflite` file.
        num_threads: Integer. Defaults to `1`.

    Attributes:
        input_names: List of strings.
        output_names: List of strings.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the runtime cannot read it.
    """

    def __init__(self, path, num_threads=1):
        path = os.fspath(path)
        if not os.path.isfile(path):
            raise FileNotFoundError(f"There is no LiteRT file at {path!r}.")
        self._interpreter = _interpreter(
            model_path=path, num_threads=num_threads
        )
        signatures = self._interpreter.get_signature_list()
        if not signatures:
            raise ValueError(
                f"The LiteRT file must have a signature. Received: {path!r}."
            )
        name = next(iter(signatures))
        self._run = self._interpreter.get_signature_runner(name)
        self._inputs = self._run.get_input_details()
        self.input_names = list(signatures[name]["inputs"])
        self.output_names = list(signatures[name]["outputs"])

    def __call__(self, inputs):
        """Runs the model once, on inputs of any size that its shapes allow.

        Args:
            inputs: Array if the model has one input, else dict from input
                names to arrays. Each is cast to the input's dtype.

        Returns:
            Array if the model has one output, else dict of arrays.
        """
        inputs = self._named(inputs)
        outputs = self._run(**inputs)
        if len(self.output_names) == 1:
            return outputs[self.output_names[0]]
        return {name: outputs[name] for name in self.output_names}

    def predict(self, inputs, batch_size=32):
        """Runs the model over many rows, `batch_size` at a time.

        Args:
            inputs: As for a call; the first axis is cut into batches.
            batch_size: Integer. Defaults to `32`.

        Returns:
            Same as a call, for all rows.
        """
        inputs = self._named(inputs)
        batch_size = check_positive_int("batch_size", batch_size)
        rows = {len(array) for array in inputs.values()}
        if len(rows) != 1 or 0 in rows:
            raise ValueError(
                "`inputs` must have rows, as many in each array. "
                f"Received: arrays of {sorted(rows)} rows."
            )
        (rows,) = rows
        parts = [
            self._run(
                **{
                    name: array[start : start + batch_size]
                    for name, array in inputs.items()
                }
            )
            for start in range(0, rows, batch_size)
        ]
        outputs = {
            name: np.concatenate([part[name] for part in parts])
            for name in self.output_names
        }
        if len(outputs) == 1:
            return outputs[self.output_names[0]]
        return outputs

    def _named(self, inputs):
        if not isinstance(inputs, dict):
            if len(self.input_names) != 1:
                raise ValueError(
                    "`inputs` must be a dict with the keys "
                    f"{self.input_names}. Received: one array."
                )
            inputs = {self.input_names[0]: inputs}
        if set(inputs) != set(self.input_names):
            raise ValueError(
                f"`inputs` must have the keys {self.input_names}. "
                f"Received: the keys {list(inputs)}."
            )
        return {
            name: np.asarray(array, dtype=self._inputs[name]["dtype"])
            for name, array in inputs.items()
        }
