"""Arrays as text, for the configs of what is made from them."""

import base64
import zlib

import numpy as np


def pack_array(array):
    """An array as a dict for JSON, compressed."""
    if array is None:
        return None
    array = np.asarray(array)
    array = array.astype(array.dtype.newbyteorder("<"))
    # First bytes of all numbers first: of small ones, most bytes are equal.
    planes = np.frombuffer(array.tobytes(), "uint8")
    planes = planes.reshape(-1, array.dtype.itemsize).T
    # Of higher levels text is hardly shorter.
    packed = zlib.compress(planes.tobytes(), level=1)
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "bytes": base64.b64encode(packed).decode("ascii"),
    }


def unpack_array(packed):
    """The array that `pack_array` was given."""
    if packed is None:
        return None
    dtype = np.dtype(packed["dtype"]).newbyteorder("<")
    planes = zlib.decompress(base64.b64decode(packed["bytes"]))
    planes = np.frombuffer(planes, "uint8").reshape(dtype.itemsize, -1)
    array = np.frombuffer(planes.T.tobytes(), dtype)
    # Of this machine's order of bytes, and to be written to.
    return array.reshape(packed["shape"]).astype(packed["dtype"])
