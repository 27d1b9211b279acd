"""Candidates that groups of examples share."""

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class CandidateGroups:
    """Candidates of groups of examples: what a `Selector` may return.

    Examples of a group have the same candidates. Class vectors are read once
    for each group that occurs in a batch, and scores are matrix products,
    which is several times faster than vectors looked up for each example.

    The group of an example may depend on its own features, and on what was
    learned in earlier steps, and on nothing else. In a language model the
    features of the next position hold the label of this one: groups made
    from the features of the whole batch would tell it.

    Example:

    >>> sides = kc.candidates.CandidateGroups(
    ...     groups=tf.constant([0, 1, 1]),
    ...     ids=tf.constant([[3, 5], [2, 3]]),
    ... )
    >>> sides.of_rows().numpy()
    array([[3, 5],
           [2, 3],
           [2, 3]], dtype=int32)

    Args:
        groups: int32 tensor `(rows,)`, the group of each example.
        ids: int32 tensor `(num_groups, number)`, of a static shape: classes
            of each group, which differ within a row, -1 where there are fewer.
    """

    groups: tf.Tensor
    ids: tf.Tensor

    def of_rows(self):
        """The candidates of each example, `(rows, number)`."""
        return tf.gather(self.ids, self.groups)


def ids_of(part):
    """Ids of a part of candidates, which may be `CandidateGroups`."""
    return part.ids if isinstance(part, CandidateGroups) else part
