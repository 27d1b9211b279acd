"""Candidates of several selectors at once."""

import keras

from keras_compembed.candidates.selector import Selector
from keras_compembed.utils.validation import check_positive_int


@keras.saving.register_keras_serializable(package="keras_compembed")
class Union(Selector):
    """All that several selectors choose, as one set of candidates.

    Such as the most frequent classes, which all examples share, together with
    those near an example: what is frequent and what is near are both among
    the candidates, and noises stand for the rest. What several selectors
    choose counts once.

    Parts are scored each in its own way: what all examples share, or groups
    of them, by products of matrices.

    Prediction searches as the first selector does that searches, such as a
    `BeamTree`; if none does, it scores all classes.

    Example:

    >>> counts = 10_000 // np.arange(1, 10_001)
    >>> selector = kc.candidates.Union(
    ...     [
    ...         kc.candidates.FrequentClasses(counts),
    ...         kc.candidates.NearestCenters(num_centers=32),
    ...     ],
    ...     num_candidates=[250, 50],
    ... )
    >>> head = kc.CANESoftmax(
    ...     10_000,
    ...     selector,
    ...     num_candidates=300,
    ...     num_noises=750,
    ...     share_noises=True,
    ...     class_counts=counts,
    ... )

    Args:
        selectors: List of `Selector` objects.
        num_candidates: Optional list of integers, how many candidates each
            chooses; they add up to `num_candidates` of the layer. Defaults to
            `None`: as many each, and one more of the first if need be.
        **kwargs: `name` of `keras.layers.Layer`.

    Raises:
        ValueError: if `selectors` is not a list of selectors, two of them
            have a tree, or there is not a positive number for each; by
            `attach`, if numbers do not add up, or selectors are for another
            number of classes.
    """

    def __init__(self, selectors, num_candidates=None, **kwargs):
        super().__init__(**kwargs)
        self.selectors = _check_selectors(selectors)
        for place, part in enumerate(self.selectors):
            # Checkpoints of TensorFlow hold no list of Keras.
            self._track_trackable(part, f"selector_{place}")
        self._numbers = None
        if num_candidates is not None:
            self._numbers = _check_numbers(num_candidates, len(selectors))

    @property
    def tree(self):
        trees = [part.tree for part in self.selectors]
        return next((tree for tree in trees if tree is not None), None)

    def attach(self, num_classes, num_candidates):
        numbers, parts = self._numbers, len(self.selectors)
        if numbers is None:
            if num_candidates < parts:
                raise ValueError(
                    "There must be a candidate for each selector. Received: "
                    f"num_candidates={num_candidates} and {parts} selectors."
                )
            share, more = divmod(num_candidates, parts)
            numbers = [share + (part < more) for part in range(parts)]
        if sum(numbers) != num_candidates:
            raise ValueError(
                "`num_candidates` of the selectors must add up to that of the "
                f"layer, num_candidates={num_candidates}. "
                f"Received: num_candidates={numbers}."
            )
        for place, (part, number) in enumerate(
            zip(self.selectors, numbers, strict=True)
        ):
            try:
                part.attach(num_classes, number)
            except ValueError as error:
                kind = type(part).__name__
                raise ValueError(
                    f"`selectors[{place}]`, a {kind}, must suit the layer: "
                    f"{error}"
                ) from error
        super().attach(num_classes, num_candidates)

    def build(self, input_shape=None):
        if self.built:
            return
        for part in self.selectors:
            part.build(input_shape)
        self.built = True

    def _before_step(self, scores, features):
        for part in self.selectors:
            part._before_step(scores, features)

    def select(self, scores, features, context=None):
        found = []
        for part in self.selectors:
            selected = part.select(scores, features, context)
            several = isinstance(selected, (list, tuple))
            found += selected if several else [selected]
        return found

    def observe(self, scores, features, shared):
        for part in self.selectors:
            part.observe(scores, features, shared)

    def after_step(self, scores, labels, hit):
        for part in self.selectors:
            part.after_step(scores, labels, hit)

    def top_k(self, scores, features, k):
        for part in self.selectors:
            if type(part).top_k is not Selector.top_k:
                return part.top_k(scores, features, k)
        return super().top_k(scores, features, k)

    def get_config(self):
        return {
            **super().get_config(),
            "selectors": [
                keras.saving.serialize_keras_object(part)
                for part in self.selectors
            ],
            "num_candidates": self._numbers,
        }

    @classmethod
    def from_config(cls, config):
        parts = [
            keras.saving.deserialize_keras_object(part)
            for part in config["selectors"]
        ]
        return cls(**{**config, "selectors": parts})


def _check_selectors(selectors):
    if (
        not isinstance(selectors, (list, tuple))
        or not selectors
        or not all(isinstance(part, Selector) for part in selectors)
    ):
        raise ValueError(
            "`selectors` must be a list of `keras_compembed.candidates."
            f"Selector` objects. Received: selectors={selectors!r}."
        )
    if len({id(part) for part in selectors}) < len(selectors):
        raise ValueError(
            "`selectors` must differ. Received: the same object twice."
        )
    trees = sum(part.tree is not None for part in selectors)
    if trees > 1:
        raise ValueError(
            "One of `selectors` may have a tree, as class vectors are sums "
            f"over its paths. Received: {trees} of them with a tree."
        )
    return list(selectors)


def _check_numbers(numbers, parts):
    if not isinstance(numbers, (list, tuple)) or len(numbers) != parts:
        raise ValueError(
            "`num_candidates` must be a list of a number for each of "
            f"{parts} selectors. Received: num_candidates={numbers!r}."
        )
    for number in numbers:
        check_positive_int("num_candidates", number)
    return list(numbers)
