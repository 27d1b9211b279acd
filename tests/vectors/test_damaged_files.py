"""`read_vectors` on files that were damaged at random."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from vector_files import MAKERS
from vector_files import check_limit
from vector_files import damage
from vector_files import make_files

from keras_compembed.vectors.formats import text_lines
from keras_compembed.vectors.formats.format import Request

pytest.importorskip("gensim")
pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files that gensim, NumPy and safetensors wrote, by name."""
    return make_files(tmp_path_factory.mktemp("vectors"))


TOKEN = st.sampled_from([b"a", b"0.5", b"-1e-3", b".5", b"nan", b"1_0", b"..",
                         b"1e39", b"", b"\x0b", b"+7.", b"\xff"])  # fmt: skip
LINE = st.tuples(
    st.lists(TOKEN, min_size=1, max_size=5),
    st.sampled_from([b" ", b" ", b"\t"]),
    st.sampled_from([b"", b" ", b"\r"]),
).map(lambda parts: parts[1].join(parts[0]) + parts[2])


@settings(max_examples=400, derandomize=True, deadline=None)
@given(st.lists(LINE, min_size=1, max_size=3), st.integers(1, 3))
def test_lines_together_as_one_by_one(lines, columns):
    together = text_lines._parse_together(lines, columns, Request())
    if together is not None:
        words, vectors = text_lines._parse_one_by_one(lines, columns, Request())
        assert words == together[0]
        np.testing.assert_array_equal(vectors, together[1])


@pytest.mark.parametrize("name", MAKERS)
def test_damaged_files(files, name):
    """They are read or refused, and so is as much as the error says."""
    path, target, options = files[name]
    data = path.read_bytes()

    @settings(max_examples=200, derandomize=True, deadline=None)
    @given(st.integers(0, 2**32 - 1))
    def check(seed):
        path.write_bytes(damage(data, np.random.default_rng(seed)))
        check_limit(target, options)

    try:
        check()
    finally:
        path.write_bytes(data)
