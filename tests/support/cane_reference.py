"""CANE in plain NumPy and float64, written from the paper.

Scores of one example are a vector over all classes. Candidates and noises are
sequences of class ids, -1 for places that hold none; `q` is a vector over all
classes. A tree is nested lists, whose leaves are class ids; an edge is named
by the places of the children that lead to it, `(2, 0)` for the first child of
the root's third; the parameters of edges are a dict.

Paper: Han, Huang & Zhang, 2018, "Candidates vs. Noises Estimation for Large
Multi-Class Classification Problem".
"""

import numpy as np


def loss_and_gradient(scores, label, candidates, noises, q, form="separate"):
    """Loss of one example, and its gradient by the scores of all classes.

    `form="separate"` is Algorithm 1: where the label is a candidate, the mean
    over noises of the loss with one noise (equation 7); elsewhere the label
    is the noise (equation 8).

    `form="joint"` has all noises in one sum,

        -s_y + log(sum_{k in C} e^s_k + 1/n sum_{i=1..n} e^s_{j_i} / q(j_i)),

    with the label in the place of the last of the `n` noises where it is no
    candidate. With one noise that is the paper's.

    Noises that are candidates, which happens where examples share noises
    drawn from all classes, count as 0. Then `q` sums to 1 over all classes,
    otherwise over those outside the candidates.
    """
    scores = np.asarray(scores, "float64")
    candidates = [k for k in candidates if k >= 0]
    noises = list(noises)
    if form == "joint":
        slots = noises
        if label not in candidates:
            slots = [*noises[:-1], label]
        return _loss_and_gradient(scores, label, candidates, slots, q)
    if label not in candidates:
        return _loss_and_gradient(scores, label, candidates, [label], q)
    parts = [
        _loss_and_gradient(scores, label, candidates, [noise], q)
        for noise in noises
    ]
    losses, gradients = zip(*parts, strict=True)
    return np.mean(losses), np.mean(gradients, axis=0)


def _loss_and_gradient(scores, label, candidates, slots, q):
    drawn = [label, *candidates, *(j for j in slots if j >= 0)]
    highest = scores[drawn].max()
    terms = np.zeros_like(scores)
    for k in candidates:
        terms[k] += np.exp(scores[k] - highest)
    for j in slots:
        if j >= 0 and j not in candidates:
            terms[j] += np.exp(scores[j] - highest) / q[j] / len(slots)
    gradient = terms / terms.sum()
    gradient[label] -= 1
    return highest + np.log(terms.sum()) - scores[label], gradient


def head(
    features,
    kernel,
    bias,
    labels,
    candidates,
    noises,
    q,
    form="separate",
    sample_weight=None,
):
    """Losses of a batch, without weights, the mean loss, and its gradients.

    `candidates`, `noises` and `q` have an array for each row, or one for all.
    The sum of weighted losses is divided by the number of rows.
    """
    features = np.asarray(features, "float64")
    kernel = np.asarray(kernel, "float64")
    rows = len(features)
    weight = np.ones(rows) if sample_weight is None else sample_weight
    scores = features @ kernel.T + bias

    def each(values, rank):
        values = np.asarray(values)
        return values if values.ndim == rank else [values] * rows

    losses, gradients = zip(
        *map(
            lambda *arguments: loss_and_gradient(*arguments, form=form),
            scores,
            labels,
            each(candidates, 2),
            each(noises, 2),
            each(q, 2),
        ),
        strict=True,
    )
    by_scores = np.array(gradients) * np.asarray(weight)[:, None] / rows
    return {
        "losses": np.array(losses),
        "loss": np.dot(losses, weight) / rows,
        "features": by_scores @ kernel,
        "kernel": by_scores.T @ features,
        "bias": by_scores.sum(0),
    }


def labels_as_noises(row, order, labels, drawn, excluded=()):
    """Noises of an example where labels of others come first.

    In their `order`, labels that are not excluded take the places but the
    last, then what is drawn. An example leaves out its own, or else the last
    of these places.
    """
    kept = [i for i in order if labels[i] >= 0 and labels[i] not in excluded]
    places = len(drawn) - 1
    kept = kept[:places]
    noises = [labels[i] for i in kept] + list(drawn[len(kept) : places])
    del noises[kept.index(row) if row in kept else -1]
    return [*noises, drawn[-1]]


def outside(q, candidates):
    """`q` outside the candidates, of sum 1."""
    q = np.array(q, "float64")
    q[[k for k in candidates if k >= 0]] = 0
    return q / q.sum()


def paths(tree):
    """Dict from a class to the list of edges from the root to it."""
    found = {}

    def visit(node, edge):
        if not isinstance(node, list):
            found[node] = [edge[: end + 1] for end in range(len(edge))]
            return
        for place, child in enumerate(node):
            visit(child, (*edge, place))

    visit(tree, ())
    return found


def path_scores(tree, edges, features):
    """Scores of all classes for one example, equation 9."""
    found = paths(tree)
    return np.array(
        [
            sum(features @ edges[edge] for edge in found[k])
            for k in range(len(found))
        ]
    )


def edge_gradients(tree, edges, features, label, candidates, noises, q):
    """Gradients of the objective by the edges that it touches.

    Equations 10 and 11, to be climbed: the loss has the opposite sign. Edges
    on all paths are among them, with a gradient of 0 (Proposition 1).
    """
    found = paths(tree)
    weights = np.exp(path_scores(tree, edges, features))
    if label not in candidates:
        noises = [label]
    gradients = {
        edge: np.zeros_like(features)
        for k in (*candidates, *noises, label)
        for edge in found[k]
    }
    for edge in gradients:
        for j in noises:
            above = sum(weights[k] for k in candidates if edge in found[k])
            below = sum(weights[k] for k in candidates)
            above += (edge in found[j]) * weights[j] / q[j]
            below += weights[j] / q[j]
            share = (edge in found[label]) - above / below
            gradients[edge] += share * features / len(noises)
    return gradients
