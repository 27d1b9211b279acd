"""The reference that layers are tested against does what the paper proves.

Its gradients are compared with those that TensorFlow finds for layers.
"""

import itertools

import cane_reference as reference
import numpy as np
import pytest

FORMS = ("separate", "joint")
CLASSES = 5


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_loss_by_hand():
    scores, q = np.log([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 0.25, 0.75])
    # Candidates weigh 3; the noises 3 / 0.25 = 12 and 4 / 0.75 = 16 / 3.
    loss, gradient = reference.loss_and_gradient(scores, 1, [0, 1], [2, 3], q)
    expected = (np.log(15 / 2) + np.log(25 / 3 / 2)) / 2
    assert loss == pytest.approx(expected, rel=1e-14)
    np.testing.assert_allclose(
        gradient,
        [
            (1 / 15 + 3 / 25) / 2,
            (2 / 15 + 6 / 25) / 2 - 1,
            12 / 15 / 2,
            16 / 25 / 2,
        ],
        rtol=1e-14,
    )
    loss, _ = reference.loss_and_gradient(
        scores, 1, [0, 1], [2, 3], q, form="joint"
    )
    assert loss == pytest.approx(np.log((3 + 6 + 8 / 3) / 2), rel=1e-14)
    # The label in the place of noises; in the joint form, of the last.
    loss, gradient = reference.loss_and_gradient(scores, 3, [0, 1], [2, 2], q)
    assert loss == pytest.approx(np.log((3 + 16 / 3) / 4), rel=1e-14)
    assert gradient[2] == 0
    loss, _ = reference.loss_and_gradient(
        scores, 3, [0, 1], [2, 2], q, form="joint"
    )
    assert loss == pytest.approx(np.log((3 + 6 + 8 / 3) / 4), rel=1e-14)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_noises", [1, 2, 3])
def test_truth_is_the_maximum(form, shared, num_noises, rng):
    """Theorem 1: the expected gradient is zero at log p, and only there.

    For the joint form: the expectation is over labels and `n` noises, of
    which the last gives way to a label outside the candidates. With
    `w(j) = e^s_j / q(j)`, at true scores, and `D = P(C) + 1/n sum_i w(j_i)`,
    noises `j_1..j_n` are in the sum with probability
    `prod_i q(j_i) * (P(C) + w(j_n))`, first term from labels in `C`, second
    from the label `j_n`. `D` has no order, so that the mean over orders may be
    taken, `prod_i q(j_i) * D`. The gradient of `log D` is that of `D` by `D`;
    `D` falls out, and what remains is the gradient of the sum over all
    classes. A shared noise that is a candidate has `w = 0`, in both places.
    """
    candidates = [1, 3]
    q = rng.dirichlet(np.ones(CLASSES))
    p = rng.dirichlet(np.ones(CLASSES))
    arguments = p, candidates, q, num_noises, form, shared
    gradient = reference.expected_gradient(np.log(p) + 0.7, *arguments)
    np.testing.assert_allclose(gradient, 0, atol=1e-14)
    elsewhere = np.log(p) + 0.1 * rng.normal(size=CLASSES)
    gradient = reference.expected_gradient(elsewhere, *arguments)
    assert abs(gradient).max() > 1e-3


@pytest.mark.parametrize("row", [0, 2])
@pytest.mark.parametrize(
    "candidates, num_noises", [([], 3), ([0, 3], 2), ([0, 3], 3)]
)
def test_labels_as_noises_tend_to_the_truth(row, candidates, num_noises):
    """No gradient in expectation where scores are log probabilities."""
    p = np.array([0.3, 0.1, 0.15, 0.25, 0.2])
    q = reference.outside(p, candidates)
    total, size = np.zeros(5), np.zeros(5)
    for labels in itertools.product(range(5), repeat=3):
        for drawn in itertools.product(np.flatnonzero(q), repeat=num_noises):
            noises = reference.labels_as_noises(
                row, range(3), labels, drawn, candidates
            )
            _, gradient = reference.loss_and_gradient(
                np.log(p), labels[row], candidates, noises, q, "joint"
            )
            chance = np.prod(p[list(labels)]) * np.prod(q[list(drawn)])
            total += chance * gradient
            size += chance * np.abs(gradient)
    np.testing.assert_allclose(total, 0, atol=1e-12)
    assert (size > 0.05).all()
