"""Runs LiteRT files."""

import functools
import importlib
import os
import threading
import warnings

import numpy as np

from keras_compembed.export.inspect_litert import MEDIAPIPE_TOKENIZER
from keras_compembed.export.inspect_litert import has_tf_text
from keras_compembed.export.inspect_litert import inspect_litert
from keras_compembed.utils.extras import import_extra
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_text
from keras_compembed.utils.validation import require

_TENSORFLOW = "tensorflow.lite.python.interpreter"


def _interpreter(module, file, num_threads):
    require(
        MEDIAPIPE_TOKENIZER not in file.ops,
        "The LiteRT interpreter has no op for the tokenizer of files for "
        "MediaPipe. Run the file with "
        "`keras_compembed.export.MediaPipeModel`, or export with "
        "Target(runtime='tf-text').",
        path=file.path,
    )
    try:
        module = importlib.import_module(module)
    except ImportError:
        module = importlib.import_module(_TENSORFLOW)
    make = module.Interpreter
    if has_tf_text(file.ops):
        registrar = import_extra(
            "tensorflow_text.core.pybinds.tflite_registrar", "text"
        )
        make = functools.partial(
            module.InterpreterWithCustomOps,
            custom_op_registerers=registrar.SELECT_TFTEXT_OPS,
        )
    with warnings.catch_warnings():
        # TensorFlow's interpreter works, but asks to install another one.
        warnings.simplefilter("ignore")
        return make(model_path=file.path, num_threads=num_threads)


class LiteRTModel:
    """Runs a LiteRT file as a function on arrays.

    Call it with an array, with a list in the order of `input_names`, or with a
    dict by name. Arrays may be NumPy arrays, tensors or lists; they hold
    strings if the file has a tokenizer of tensorflow-text. Arrays that do not
    fit raise an error: the runtime itself accepts any shape and returns
    garbage. Several threads may share an object; calls run one at a time.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> export = kc.export_litert(model, "dense.tflite", verbose=0)
    >>> LiteRTModel("dense.tflite").predict(np.ones((100, 4))).shape
    (100, 2)

    Args:
        path: String or path-like, the `.tflite` file.
        num_threads: Integer, threads of the interpreter. Defaults to `1`.
        signature: Optional string, the name of the signature to run. Defaults
            to `None`, the only one.

    Attributes:
        input_names: List of strings, in the order of the model's inputs.
        output_names: List of strings, in the order of the model's outputs.

    Raises:
        ValueError: If the file is damaged or has no such signature.
    """

    _module = "ai_edge_litert.interpreter"

    def __init__(
        self,
        path: str | os.PathLike,
        num_threads: int = 1,
        signature: str | None = None,
    ):
        num_threads = check_positive_int("num_threads", num_threads)
        file = inspect_litert(path)
        found = {each.name: each for each in file.signatures}
        require(
            None not in found,
            "The file must have a signature.",
            path=file.path,
        )
        if signature is None and len(found) == 1:
            (signature,) = found
        check_choice("signature", signature, found)
        interpreter = _interpreter(self._module, file, num_threads)
        self._runner = interpreter.get_signature_runner(signature)
        self._lock = threading.Lock()
        self._complaints = ""
        self._inputs = {
            tensor.name: _Input(tensor) for tensor in found[signature].inputs
        }
        self.input_names = list(self._inputs)
        self.output_names = [each.name for each in found[signature].outputs]

    def __call__(self, inputs: object) -> np.ndarray | dict:
        """Runs the model once, on inputs of any size that the file allows."""
        arrays = self._fit(inputs)
        for name, array in arrays.items():
            self._inputs[name].check_batch(array)
        return self._answer(self._run(arrays))

    def predict(
        self, inputs: object, batch_size: int = 32
    ) -> np.ndarray | dict:
        """Runs the model on many examples, `batch_size` at a time.

        Args:
            inputs: Same as for a call; the first axis is cut into batches.
            batch_size: Integer. If the file has a fixed batch size, that is
                used instead, and the last batch is padded; outputs of padding
                are dropped. Defaults to `32`.

        Returns:
            Same as for a call, with all examples.
        """
        batch_size = check_positive_int("batch_size", batch_size)
        arrays = self._fit(inputs)
        shapes = {name: array.shape for name, array in arrays.items()}
        rows = {shape[:1] for shape in shapes.values()}
        require(
            len(rows) == 1 and () not in rows,
            "`inputs` must have examples, as many in each array.",
            shapes=shapes,
        )
        ((rows,),) = rows
        fixed = {each.batch for each in self._inputs.values()} - {None}
        require(
            len(fixed) < 2,
            "Inputs of the file must have one batch size for `predict`; call "
            "the model instead.",
            batches=sorted(fixed),
        )
        batch_size = next(iter(fixed), batch_size)
        parts = []
        for start in range(0, rows, batch_size):
            places = np.arange(start, min(start + batch_size, rows))
            number = len(places)
            if fixed:
                places = np.pad(places, (0, batch_size - number), "edge")
            outputs = self._run({x: y[places] for x, y in arrays.items()})
            for name, array in outputs.items():
                require(
                    array.shape[:1] == places.shape,
                    "`predict` needs one row of outputs for each example, and "
                    f"{name!r} has another number; call the model instead.",
                    rows=len(places),
                    shape=array.shape,
                )
            parts.append([array[:number] for array in outputs.values()])
        joined = map(np.concatenate, zip(*parts, strict=True))
        return self._answer(dict(zip(self.output_names, joined, strict=True)))

    def _fit(self, inputs):
        names = self.input_names
        if not isinstance(inputs, dict):
            if not isinstance(inputs, (list, tuple)) or (
                len(names) == 1
                and not any(len(getattr(x, "shape", ())) for x in inputs)
            ):
                inputs = [inputs]
            require(
                len(inputs) == len(names),
                f"`inputs` must have an array for each of {names}, as a list "
                "in this order or as a dict.",
                number=len(inputs),
            )
            inputs = dict(zip(names, inputs, strict=True))
        require(
            set(names) <= set(inputs),
            f"`inputs` must have the keys {names}.",
            keys=list(inputs),
        )
        return {name: self._inputs[name].fit(inputs[name]) for name in names}

    def _run(self, arrays):
        """Outputs by name, as copies of the runtime's memory."""
        with self._lock:
            try:
                outputs = self._runner(**arrays)
            except RuntimeError as error:
                # The runtime appends a message to all earlier ones.
                text = str(error)
                complaint = text.removeprefix(self._complaints)
                self._complaints = text
                shapes = {name: array.shape for name, array in arrays.items()}
                raise RuntimeError(
                    "The runtime must accept the inputs. Received: arrays of "
                    f"shapes {shapes}. The runtime says: {complaint}"
                ) from error
        return {name: outputs[name] for name in self.output_names}

    def _answer(self, outputs):
        return outputs if len(outputs) != 1 else next(iter(outputs.values()))


class TensorFlowModel(LiteRTModel):
    """Runs a LiteRT file in TensorFlow's own interpreter."""

    _module = _TENSORFLOW


class _Input:
    """An input of a file; converts values to arrays that fit."""

    def __init__(self, tensor):
        self.name, self.shape = tensor.name, tensor.shape
        # Size of the first axis; None if it is open or missing.
        self.batch = self.shape[0] if self.shape else None
        self._dtype = tensor.dtype

    def fit(self, values):
        """`values` as an array of the input's rank, dtype and inner sizes."""
        kind = type(values).__name__
        try:
            array = np.asarray(values)
        except (TypeError, ValueError) as error:
            raise self._error("be", "an array", f"{kind} ({error})") from error
        if self._dtype == "string":
            array = self._to_texts(array)
        elif self._dtype in _NUMBERS:
            array = self._to_numbers(array, kind)
        # Adds or drops a last axis of size 1, as Keras does.
        rank = len(self.shape)
        if array.ndim == rank + 1 and array.shape[-1] == 1:
            array = array[..., 0]
        elif rank and array.ndim == rank - 1 and self.shape[-1] == 1:
            array = array[..., None]
        # Except the first axis, which `predict` cuts.
        sizes = zip(array.shape[1:], self.shape[1:], strict=False)
        if array.ndim != rank or any(x not in (None, y) for y, x in sizes):
            raise self._misfit(array)
        if 0 in array.shape:
            raise self._error("have", "no empty axis", f"shape {array.shape}")
        return array

    def check_batch(self, array):
        if self.batch not in (None, len(array) if array.ndim else None):
            raise self._misfit(array)

    def _misfit(self, array):
        wanted = f"shape {self.shape}"
        return self._error("have", wanted, f"shape {array.shape}")

    def _error(self, verb, wanted, received):
        return ValueError(
            f"The input {self.name!r} must {verb} {wanted}. Received: "
            f"{received}."
        )

    def _to_texts(self, array):
        """The bytes of strings; bytes stay as they are."""
        if array.dtype.kind not in "OSU":
            received = f"numbers of dtype {array.dtype}"
            raise self._error("hold", "strings", received)
        texts = np.empty(array.size, object)
        for place, text in enumerate(array.flat):
            if not isinstance(text, (str, bytes)):
                raise self._error("hold", "strings", type(text).__name__)
            if isinstance(text, str):
                check_text(self.name, text)
                text = text.encode()
            texts[place] = bytes(text)
        return texts.reshape(array.shape)

    def _to_numbers(self, array, kind):
        """Numbers in the dtype of the input, which must hold them."""
        if array.dtype.name == "bfloat16":
            array = array.astype("float32")
        if array.dtype.kind not in "fiub":
            received = f"{kind} of dtype {array.dtype}"
            raise self._error("hold", f"numbers ({self._dtype})", received)
        dtype = np.dtype(self._dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            cast = array.astype(dtype)
            if dtype.kind != "f":
                kept = cast == array
                if array.dtype.kind == "f" and dtype.kind in "iu":
                    # The largest int64 is no float, but one more is.
                    limit = np.float64(np.iinfo(dtype).max) + 1
                    kept &= array.astype("float64") < limit
            elif array.dtype.kind == "f":
                kept = np.isfinite(cast) | ~np.isfinite(array)
            else:
                # Numbers may be ids, which rounding would change.
                kept = cast.astype(array.dtype) == array
        if not kept.all():
            received = f"{array[~kept].flat[0]}, of dtype {array.dtype}"
            raise self._error("hold", f"numbers that {dtype} holds", received)
        return cast


_NUMBERS = {"bool", "float16", "float32", "float64"} | {
    f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)
}
