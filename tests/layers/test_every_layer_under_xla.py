"""Layers train under XLA as they do in eager steps."""

import pytest
from layer_cases import CASES
from layer_checks import assert_weights
from layer_checks import marked
from layer_checks import settled_weights

pytestmark = pytest.mark.apart
# The rest is slow: one of these has its way of training.
QUICK_UNDER_XLA = {
    "codes",
    "codes-softmax",
    "codes-nearest",
    "reversible",
    "rounded-learned",
    "anchors-lazy",
    "anchors-sparse",
    "anchors-trained-places",
    "vocabulary",
    "classes-frequent",
}


@pytest.mark.parametrize(
    "case",
    marked(
        CASES,
        {case.name for case in CASES} - QUICK_UNDER_XLA,
    ),
)
def test_xla_trains_the_same(case):
    weights = []
    for jit_compile in (False, True):
        model, _ = case.build(run_eagerly=not jit_compile)
        model.jit_compile = jit_compile
        case.train(model)
        weights.append(settled_weights(model))
    assert_weights(model, weights[0], rtol=1e-4, atol=1e-5)
