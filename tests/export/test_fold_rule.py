"""What folding a layer into codebooks is weighed by."""

import types

import pytest

from keras_compembed.export.export_options import ExportOptions
from keras_compembed.export.fold_rule import FoldRule


def vectors(columns=64, width=32, is_faster=True):
    products = types.SimpleNamespace(
        can_fold=True,
        columns=columns,
        width=width,
        num_numbers=columns * width,
        num_bytes=0,
        folds_faster=lambda *args: is_faster,
    )
    return types.SimpleNamespace(products=products, features=len, length=None)


def pays(*args, goal=None, quantize=None, **kwargs):
    options = ExportOptions(quantize, optimize_for=goal)
    return FoldRule(options).pays(*args, **kwargs)


@pytest.mark.parametrize("goal", [None, "latency", "size", "memory"])
def test_what_is_smaller_and_faster_is_folded(goal):
    assert pays(vectors(), 8, goal=goal)


def test_what_is_slower_is_folded_for_size_alone():
    slower = vectors(is_faster=False)
    assert not pays(slower, 8)
    assert not pays(slower, 8, goal="latency")
    assert pays(slower, 8, goal="size")


def test_codebooks_that_others_read_count():
    """Of a layer of 32 x 32 numbers, folded 64 x 32."""
    kept = 64 * 32
    assert pays(vectors(), 32)
    assert not pays(vectors(), 32, kept=kept)
    assert not pays(vectors(), 32, kept=kept, goal="size")
    assert pays(vectors(), 32, kept=kept, goal="latency")


def test_kernels_that_others_read_count():
    assert not pays(vectors(), 32, kernels=32 * 32, kept=32 * 64)
    # Kernels are float32 where codebooks alone are int8.
    assert not pays(vectors(64, 8), 256)
    assert not pays(vectors(64, 8), 64, quantize="int8")
    assert not pays(vectors(64, 8), 256, quantize="int8_codebooks")
    assert pays(vectors(64, 32), 64, quantize="int8_codebooks")
