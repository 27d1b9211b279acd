"""Files that are known, and hold no vectors that can be read."""

from keras_compembed.vectors.formats.text_lines import count_numbers

_LOOKED_AT = 1 << 10
_TAR_PLACE, _TAR_MARK = 257, b"ustar"
_PICKLE = (
    "a pickle, which may run any program when it is opened, so that it is "
    "opened only by name. If you trust who made it, and gensim wrote it, pass "
    "`format='gensim'`"
)
_WEB_PAGE = (
    "a web page, as servers send in place of a file that is not there or "
    "needs a log-in. Fetch the file again"
)
_MARKS = {
    b"version https://git-lfs": "the pointer of Git LFS to the file, not the "
    "file. Run `git lfs pull` in its folder",
    b"<!doctype": _WEB_PAGE,
    b"<html": _WEB_PAGE,
    b"<?xml": _WEB_PAGE,
    b"\x80\x02": _PICKLE,
    b"\x80\x03": _PICKLE,
    b"\x80\x04": _PICKLE,
    b"\x80\x05": _PICKLE,
    b"gguf": "a GGUF file. Take the safetensors file of the same model",
    b"\x89hdf": "an HDF5 file. Save the table that it holds with `numpy.save` "
    "and pass that with `words=`",
    b"\xff\xfe": "text in UTF-16. Write it anew in UTF-8",
    b"\xfe\xff": "text in UTF-16. Write it anew in UTF-8",
}


def refuse(source):
    """Raises `ValueError` if a `Source` is known to hold no vectors."""
    if any(name.endswith("data.pkl") for name in source.members):
        raise ValueError(
            f"{source} must hold vectors. Received: a file of PyTorch. Save "
            "its table with `safetensors.torch.save_file`, or its array with "
            "`numpy.save`, and pass that."
        )
    if _is_npz(source):
        return
    if source.head[_TAR_PLACE:].startswith(_TAR_MARK):
        raise ValueError(
            f"{source} must hold vectors. Received: a tar archive. Take out "
            "the file that you want: python -m tarfile -e FILE FOLDER"
        )
    # Files of safetensors begin with the length of what that opens.
    is_tensors = source.head[8:9] == b"{"
    start = source.head[:_LOOKED_AT].lstrip()
    if is_tensors or _is_row(start):
        return
    for mark, what in _MARKS.items():
        if start.lower().startswith(mark):
            raise ValueError(f"{source} must hold vectors. Received: {what}.")


def _is_npz(source):
    return any(name.endswith(".npy") for name in source.members)


def _is_row(start):
    """Whether the first line is text that ends with numbers."""
    return count_numbers(start.partition(b"\n")[0]) > 0
