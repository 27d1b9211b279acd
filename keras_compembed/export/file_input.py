"""An input of a LiteRT file, and arrays that fit it."""

import numpy as np

from keras_compembed.export.file_metadata import check_text


class FileInput:
    """Turns what a user gives into an array that the runtime may get."""

    def __init__(self, tensor):
        self.name = tensor.name
        self.shape = tensor.shape
        # Size of the first axis, or None if it is open or missing.
        self.batch = self.shape[0] if self.shape else None
        self._tensor = tensor

    def fit(self, values):
        """`values` as an array of the input's rank, dtype and inner sizes."""
        array = self._with_rank(self._with_dtype(self._to_array(values)))
        # Not the first axis, which `predict` cuts.
        for size, wanted in zip(array.shape[1:], self.shape[1:], strict=True):
            if wanted not in (None, size):
                raise self._misfit(array)
        if 0 in array.shape:
            raise self._error("have", "no empty axis", f"shape {array.shape}")
        return array

    def check_batch(self, array):
        if self.batch not in (None, len(array) if array.ndim else None):
            raise self._misfit(array)

    def _misfit(self, array):
        return self._error(
            "have", f"shape {self.shape}", f"shape {array.shape}"
        )

    def _error(self, verb, wanted, received):
        return ValueError(
            f"The input {self.name!r} must {verb} {wanted}. Received: "
            f"{received}."
        )

    def _to_array(self, values):
        try:
            array = np.asarray(values)
        except (TypeError, ValueError) as error:
            raise self._error(
                "be", "an array", f"{type(values).__name__} ({error})"
            ) from error
        if self._tensor.dtype == "string":
            return self._to_texts(array)
        if array.dtype.name == "bfloat16":
            array = array.astype("float32")
        if self._tensor.dtype in _NUMBERS and array.dtype.kind not in "fiub":
            raise self._error(
                "hold",
                f"numbers ({self._tensor.dtype})",
                f"{type(values).__name__} of dtype {array.dtype}",
            )
        return array

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

    def _with_dtype(self, array):
        if self._tensor.dtype not in _NUMBERS or array.size == 0:
            return array
        dtype = np.dtype(self._tensor.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            cast = array.astype(dtype)
            if dtype.kind != "f":
                kept = cast == array
                if array.dtype.kind == "f" and dtype.kind in "iu":
                    # The largest of 64 bits is no float, but one more is.
                    limit = np.float64(np.iinfo(dtype).max) + 1
                    kept &= array.astype("float64") < limit
            elif array.dtype.kind == "f":
                kept = np.isfinite(cast) | ~np.isfinite(array)
            else:
                # They may be ids, which rounding would change.
                kept = cast.astype(array.dtype) == array
        if not kept.all():
            received = f"{array[~kept].flat[0]}, of dtype {array.dtype}"
            raise self._error("hold", f"numbers that {dtype} holds", received)
        return cast

    def _with_rank(self, array):
        """Adds or drops a last axis of size 1, as Keras does."""
        rank = len(self.shape)
        if array.ndim == rank + 1 and array.shape[-1] == 1:
            return array[..., 0]
        if rank and array.ndim == rank - 1 and self.shape[-1] == 1:
            return array[..., None]
        if array.ndim != rank:
            raise self._misfit(array)
        return array


_NUMBERS = {
    "bool",
    *("float16", "float32", "float64"),
    *("int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
}
