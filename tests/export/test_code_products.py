"""Which graphs are chosen for sums of rows, and for rows read as bytes."""

import types

import numpy as np
import pytest

from keras_compembed.codes.packing import bits_per_subcode
from keras_compembed.export.code_products import CodeProducts
from keras_compembed.export.export_options import ExportOptions
from keras_compembed.export.row_graphs import Product
from keras_compembed.export.row_sums import RowSums

WIDTH = 256


def stored(num_codebooks, codebook_size, rows):
    bits = bits_per_subcode(codebook_size)
    packed = np.zeros((rows, -(-num_codebooks * bits // 8)), "uint8")
    return types.SimpleNamespace(
        num_codebooks=num_codebooks,
        codebook_size=codebook_size,
        per_byte=8 // bits if bits in (1, 2, 4) else 1,
        is_aligned=bits in (1, 2, 4, 8),
        table=types.SimpleNamespace(packed=packed),
    )


def products_of(shape, quantize=None, goal=None, rows=100_000):
    codewords = np.zeros((*shape, WIDTH), "float32")
    lookup = types.SimpleNamespace(
        codes=stored(*shape, rows), codewords=codewords
    )
    options = ExportOptions(quantize, optimize_for=goal)
    return CodeProducts(lookup, codewords, options)


# The most ids for which composing rows was measured to be faster, of 1, 16,
# 48, 128 and 512; None are ids of an open number.
COMPOSED = [
    ((8, 256), None, {1, 16, 48, None}),
    ((8, 256), "int8", {1, 16}),
    ((4, 256), None, {1, 16, 48, None}),
    ((4, 256), "int8", {1, 16}),
    ((16, 256), None, {1, 16, 48}),
    ((16, 256), "int8", {1, 16}),
    ((16, 64), None, {1, 16}),
    ((16, 64), "int8", {1}),
    ((32, 32), None, {1}),
    ((32, 32), "int8", {1}),
    ((32, 16), None, {1}),
    ((16, 16), None, {1}),
]


@pytest.mark.parametrize("rows", [16_000, 100_000])
@pytest.mark.parametrize("shape, quantize, composed", COMPOSED)
def test_short_texts_are_composed_and_long_ones_counted(
    shape, quantize, composed, rows
):
    products = products_of(shape, quantize, rows=rows)
    lengths = {1, 16, 48, 128, 512, None}
    if shape == (16, 256):
        # As fast either way.
        lengths -= {48, None}
        composed = composed - {48}
    got = {length for length in lengths if not products.may_sum(length)}
    assert got == composed


def test_memory_is_that_of_the_lesser_graph():
    products = products_of((8, 256), goal="memory")
    assert not products.may_sum(1)
    assert products.may_sum(64)


@pytest.mark.parametrize(
    "shape, goal, rows, is_made",
    [
        # 4 KB, of which most stand in place of other ops: 1 KB of 200 KB.
        ((16, 16), None, 16_000, True),
        ((4, 16), None, 1_000, False),
        ((4, 16), "latency", 1_000, True),
        ((16, 16), "memory", 16_000, False),
        ((16, 16), "size", 16_000, False),
        # Less than what it stands in place of.
        ((64, 4), "size", 16_000, True),
        ((8, 256), "latency", 16_000, False),
    ],
)
def test_tables_of_one_hot_rows_are_charged_what_they_add(
    shape, goal, rows, is_made
):
    products = products_of(shape, "int8", goal, rows)
    assert products.counts_bytes == is_made


def test_small_files_read_whole_bytes():
    def choose(shape, quantize):
        codewords = np.zeros((*shape, WIDTH), "float32")
        codes = stored(*shape, 16_000)
        return RowSums(codewords, ExportOptions(quantize), codes).choose(128)

    assert choose((32, 16), "int8") == Product(2)
    assert choose((16, 16), "int8") == Product(2)
    assert choose((64, 4), None) == Product(4)


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_large_codebooks_of_small_tables_are_not_read_one_by_one(quantize):
    codewords = np.zeros((8, 256, WIDTH), "float32")
    codes = stored(8, 256, 16_000)
    sums = RowSums(codewords, ExportOptions(quantize), codes)
    assert sums.choose().group >= 4
