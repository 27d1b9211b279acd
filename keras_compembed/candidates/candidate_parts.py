"""What a selector returned, as parts of one set of candidates."""

import tensorflow as tf

from keras_compembed.candidates.candidate_groups import CandidateGroups
from keras_compembed.candidates.candidate_groups import ids_of
from keras_compembed.candidates.sorted_sets import is_in

# Up to so many comparisons of ids are faster than a search.
_COMPARED = 32


class CandidateParts:
    """Candidates of examples, in parts that are scored in different ways."""

    def __init__(self, selected):
        if not isinstance(selected, (list, tuple)):
            selected = [selected]
        selected = [_without_gradients(part) for part in selected]
        known = [part for part in selected if _is_shared(part)]
        others = [part for part in selected if not _is_shared(part)]
        self.shared = None
        if known:
            self.shared = known[0]
            for part in known[1:]:
                again = is_in(self.shared[None], part[None])[0]
                part = tf.where(again, -1, part)
                self.shared = tf.concat([self.shared, part], axis=0)
        self._others = []
        for part in others:
            self._others.append(self._without_earlier(part))
        self.parts = list(self._others)
        if self.shared is not None:
            self.parts.insert(0, self.shared)

    def _without_earlier(self, part):
        """A part with -1 for what is in an earlier one."""
        if self.shared is not None:
            ids = ids_of(part)
            ids = tf.where(is_in(self.shared[None], ids, _zeros(ids)), -1, ids)
            if isinstance(part, CandidateGroups):
                part = CandidateGroups(part.groups, ids)
            else:
                part = ids
        if self._others:
            # Rows of one group may be in different other groups.
            part = _of_rows(part)
            part = tf.where(self.hold(part), -1, part)
        return part

    def of_rows(self, rows):
        """Ids of all parts, `(rows, number)` or `(1, number)`."""
        if not self._others:
            return self.shared[None]
        parts = [_of_rows(part) for part in self._others]
        if self.shared is not None:
            number = self.shared.shape[0]
            shared = tf.broadcast_to(self.shared, (rows, number))
            parts.insert(0, shared)
        return parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)

    @property
    def offsets(self):
        """Of each part, 0 where there is a class, or else minus infinity."""
        return [
            tf.where(ids_of(part) >= 0, 0.0, float("-inf"))
            for part in self.parts
        ]

    @property
    def same_for_all(self):
        """Whether all rows have the same candidates."""
        return not self._others

    @property
    def of_each(self):
        """int32 tensor `(rows, number)` if there is no part but this."""
        if len(self.parts) > 1 or self.same_for_all:
            return None
        (part,) = self.parts
        return None if isinstance(part, CandidateGroups) else part

    def hold(self, ids):
        """Whether ids are candidates of their rows, but for those of all."""
        found = False
        common = ids[None] if ids.shape.rank == 1 else ids
        for part in self._others:
            if not isinstance(part, CandidateGroups):
                held = _is_in_rows(part, common)
            elif ids.shape.rank == 1:
                # Once for each group, however many rows it has.
                held = tf.gather(is_in(part.ids, common), part.groups)
            else:
                held = is_in(part.ids, common, part.groups)
            found |= held
        return found


def _is_in_rows(sets, ids):
    if sets.shape[1] > _COMPARED:
        return is_in(sets, ids)
    # A column at a time: TensorFlow reduces a short last axis slowly.
    found = False
    for column in tf.unstack(sets, axis=1):
        found |= tf.equal(column[:, None], ids)
    return found


def _is_shared(part):
    return not isinstance(part, CandidateGroups) and part.shape.rank == 1


def _of_rows(part):
    return part.of_rows() if isinstance(part, CandidateGroups) else part


def _zeros(ids):
    return tf.zeros(tf.shape(ids)[:1], "int32")


def _without_gradients(part):
    if isinstance(part, CandidateGroups):
        return CandidateGroups(
            tf.stop_gradient(part.groups), tf.stop_gradient(part.ids)
        )
    return tf.stop_gradient(part)
