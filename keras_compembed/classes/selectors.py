"""Selectors of candidates: the base, and selectors by counts."""

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from keras_compembed.classes.class_scores import ClassScores
from keras_compembed.classes.class_tree import ClassTree
from keras_compembed.classes.noise import random_bits
from keras_compembed.classes.tree_arrays import TreeArrays
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import own_value
from keras_compembed.utils.saving import PackedConfig
from keras_compembed.utils.saving import WholeLoad
from keras_compembed.utils.saving import load_seed
from keras_compembed.utils.saving import pack_array
from keras_compembed.utils.saving import save_seed
from keras_compembed.utils.saving import unpack_array
from keras_compembed.utils.validation import check_one_a_class
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_scores
from keras_compembed.utils.validation import check_unattached
from keras_compembed.utils.validation import require

# Array entries to process at a time.
_ENTRIES = 1 << 24


class Selector(PackedConfig, WholeLoad, keras.layers.Layer):
    """Base of selectors, which choose the candidates of each example.

    A `keras_compembed.CANESoftmax` calls `attach`, then `build`, then `select`
    in each training step. To write a selector, define `select`. Define `top_k`
    as well if you can search faster than by scoring all classes:

    >>> @keras.saving.register_keras_serializable()
    ... class FirstClasses(kc.classes.Selector):
    ...     def select(self, scores, features, context=None):
    ...         return tf.range(self.num_candidates)

    Attributes:
        num_classes, num_candidates: Integers, set by `attach`.
        tree: `ClassTree`, or None. With a tree, class vectors are sums over
            its paths.
    """

    tree = None

    def __init__(self, **kwargs: object):
        super().__init__(**kwargs)
        self.num_classes = None
        self.num_candidates = None

    def attach(self, num_classes: int, num_candidates: int) -> None:
        """Sets the numbers of classes and candidates, before `build`."""
        check_unattached(self)
        self.num_classes = num_classes
        self.num_candidates = num_candidates

    def build(self, input_shape=None):
        self.built = True

    def _before_step(self, scores, features):
        """Called once in each training step, before `select`."""
        # AutoGraph warns of a body with only a docstring.
        return

    def select(
        self,
        scores: ClassScores,
        features: tf.Tensor,
        context: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the candidates of examples, in training and evaluation.

        Args:
            scores, features: `ClassScores`, a float32 tensor `(rows, width)`.
            context: Optional integer tensor `(rows,)` of the layer call.

        Returns:
            int32 tensor of ids: `(num_candidates,)` shared by all rows, or
            `(rows, num_candidates)`. Ids in a row must differ; -1 is padding.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must have a method `select`."
        )

    def after_step(
        self, scores: ClassScores, labels: tf.Tensor, hit: tf.Tensor
    ) -> None:
        """Called once in each training step, after `select`.

        Args:
            scores, labels: `ClassScores`, and an int32 tensor `(rows,)`.
            hit: Boolean tensor `(rows,)`, whether candidates include the label.
        """
        # AutoGraph warns of a body with only a docstring.
        return

    def top_k(self, scores: ClassScores, features: tf.Tensor, k: int) -> tuple:
        """Returns the classes with the highest scores. Scores all, in chunks.

        Args:
            scores, features, k: `ClassScores`, a float32 tensor
                `(rows, width)`, and an integer.

        Returns:
            Three tensors: int32 ids `(rows, k)`, best first, -1 where fewer
            were found; their scores `(rows, k)`, minus infinity there; and
            `(rows,)`, the log-sum-exp of the scores of all classes searched.
        """
        return scores.top_k(features, k)

    def get_build_config(self):
        # The layer that holds the selector attaches it, then builds it.
        return None


@keras.saving.register_keras_serializable(package="keras_compembed")
class AllClasses(Selector):
    """Makes every class a candidate, to train the full softmax.

    With a few thousand classes, this is as fast as any selection.

    Example:

    >>> head = kc.CANESoftmax(1000, sampling=kc.Sampling(AllClasses()))

    Args:
        **kwargs: `name` of `keras.layers.Layer`.
    """

    def attach(self, num_classes, num_candidates):
        super().attach(num_classes, num_classes)

    def select(self, scores, features, context=None):
        return tf.range(self.num_classes)


class CountsSelector(Selector):
    """Base of selectors that use class counts."""

    _arrays = ("counts",)

    def __init__(self, counts: ArrayLike, **kwargs: object):
        super().__init__(**kwargs)
        self.counts = check_scores("counts", counts)

    def attach(self, num_classes, num_candidates):
        check_one_a_class("counts", self.counts, num_classes)
        super().attach(num_classes, num_candidates)


@keras.saving.register_keras_serializable(package="keras_compembed")
class FrequentClasses(CountsSelector):
    """Chooses the most frequent classes as candidates of all examples.

    One matrix product scores the candidates of the whole batch. Use it for
    skewed frequencies such as those of words, and share noise samples as well.

    Example:

    >>> counts = 1000 // np.arange(1, 1001)
    >>> selector = FrequentClasses(counts)
    >>> sampling = kc.Sampling(selector, 100, num_noises=50, shared=True)
    >>> head = kc.CANESoftmax(1000, counts, sampling)

    Args:
        counts: Array `(num_classes,)`, how often each class occurs.
        **kwargs: `name` of `keras.layers.Layer`.
    """

    def build(self, input_shape=None):
        if self.built:
            return
        order = np.argsort(-self.counts, kind="stable")
        self.classes = self._add_state("classes", order[: self.num_candidates])

    def select(self, scores, features, context=None):
        return self.classes.value

    def load_own_variables(self, store: dict) -> None:
        """Keeps the classes, as counts are part of the config."""


@keras.saving.register_keras_serializable(package="keras_compembed")
class FrequencySubsets(CountsSelector):
    """Routes an example to a subset of classes and samples candidates there.

    This is the tree of section 5 of the paper: one level of subsets with equal
    total counts. An example goes to the subset with the highest score. It is
    here for comparison: `NGram` was far better on Penn Treebank.

    Example:

    >>> counts = 1000 // np.arange(1, 1001)
    >>> selector = FrequencySubsets(counts, num_subsets=6)
    >>> sampling = kc.Sampling(selector, 40, num_noises=1)
    >>> head = kc.CANESoftmax(1000, counts, sampling)

    Args:
        counts: Array `(num_classes,)`, how often each class occurs.
        num_subsets: Integer from 2 to the number of classes. Defaults to `6`.
        seed: Optional integer.
        **kwargs: `name` of `keras.layers.Layer`.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), section 5
    """

    _settings = "num_subsets", "seed"

    def __init__(
        self,
        counts: ArrayLike,
        num_subsets: int = 6,
        seed: int | None = None,
        **kwargs: object,
    ):
        super().__init__(counts, **kwargs)
        check_positive_int("num_subsets", num_subsets, 2, len(self.counts))
        self.num_subsets = num_subsets
        self.seed = seed
        groups = split_evenly(self.counts, num_subsets)
        self.tree = TreeArrays(ClassTree.from_groups(groups))
        self._order = np.argsort(groups, kind="stable").astype("int32")
        sizes = np.bincount(groups, minlength=num_subsets)
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape=None):
        if self.built:
            return
        self.tree.build()
        self.order = self._add_state("order", self._order)
        self.starts = self._add_state("starts", self._starts)

    def select(self, scores, features, context=None):
        vectors, biases = scores.of_nodes(1)
        of_subsets = tf.matmul(features, vectors, transpose_b=True) + biases
        subset = tf.argmax(of_subsets, axis=1, output_type="int32")
        start = gather_rows(self.starts, subset)[:, None]
        size = gather_rows(self.starts, subset + 1)[:, None] - start
        number = self.num_candidates
        seed = own_value(self.seed_generator.state)
        bits = random_bits(seed, number + 1, tf.shape(features)[0])
        places = _different_places(bits, tf.cast(size, "int64"))
        steps = tf.range(number)
        small = size <= number
        places = tf.where(small, tf.minimum(steps, size - 1), places)
        ids = tf.gather(self.order.value, start + places)
        return tf.where(small & (steps >= size), -1, ids)

    def after_step(self, scores, labels, hit):
        # Evaluation does not change the state.
        self.seed_generator.next()

    def save_own_variables(self, store):
        super().save_own_variables(store)
        save_seed(store, self.seed_generator)

    def load_own_variables(self, store):
        super().load_own_variables(load_seed(store, self.seed_generator))


def split_evenly(counts, num_groups):
    """Groups of classes, most frequent first, with similar total counts."""
    order = np.argsort(-np.asarray(counts, "float64"), kind="stable")
    mass = np.cumsum(np.maximum(counts, 1e-9)[order], dtype="float64")
    middle = (mass - np.maximum(counts, 1e-9)[order] / 2) / mass[-1]
    groups = np.minimum((middle * num_groups).astype(int), num_groups - 1)
    # Each group starts after the one before and leaves room for the rest.
    starts = np.searchsorted(groups, np.arange(num_groups))
    number = len(counts)
    for group in range(1, num_groups):
        starts[group] = max(starts[group], starts[group - 1] + 1)
    room = number - num_groups + np.arange(num_groups)
    starts = np.minimum(starts, room)
    result = np.empty(number, "int32")
    result[order] = np.searchsorted(starts, np.arange(number), side="right") - 1
    return result


def _different_places(bits, size):
    """Distinct places in rows of given sizes, all equally probable."""
    number = bits.shape[1] - 1
    # One place in each part of a circle with a random start. Parts differ in
    # length by 1; the random start shares out the longer ones.
    ends = tf.range(number + 1, dtype="int64") * size // number
    lengths = tf.maximum(ends[:, 1:] - ends[:, :-1], 1)
    places = ends[:, :-1] + tf.math.floormod(bits[:, 1:], lengths)
    turn = tf.math.floormod(bits[:, :1], size)
    return tf.cast(tf.math.floormod(places + turn, size), "int32")


@keras.saving.register_keras_serializable(package="keras_compembed")
class NGram(Selector):
    """Looks up candidates by context, such as the previous word.

    Call the layer with an integer context for each example:
    `head(features, context=ids)`. Contexts outside the table, such as -1, get
    the candidates of `fallback`, and so do all examples without a context.
    Prediction scores all classes.

    Example:

    >>> text = np.random.default_rng(0).integers(1000, size=(100, 50))
    >>> selector = NGram.from_text(text, num_classes=1000)
    >>> head = kc.CANESoftmax(1000, sampling=kc.Sampling(selector))
    >>> ids = keras.Input((49,), dtype="int32")
    >>> features = keras.layers.Embedding(1000, 16)(ids)
    >>> outputs = head(features, context=ids)

    Args:
        table: Integer array `(num_contexts, best)`, classes for each context,
            most probable first. Classes in a row must differ; -1 is padding.
        fallback: Optional integer array `(best,)`, classes for unknown
            contexts. Defaults to `None`: no candidates.
        **kwargs: `name` of `keras.layers.Layer`.

    Raises:
        ValueError: If a row of `table` has a class twice.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), section 5
    """

    def __init__(
        self,
        table: ArrayLike,
        fallback: ArrayLike | None = None,
        **kwargs: object,
    ):
        super().__init__(**kwargs)
        # The last row is the fallback.
        self._table = _check_table(table, fallback)

    @classmethod
    def from_text(
        cls,
        ids: ArrayLike,
        num_classes: int,
        num_best: int = 100,
        **kwargs: object,
    ) -> "NGram":
        """Makes a selector from counts of class pairs in a text.

        The candidates after a class are its most frequent followers, then the
        most frequent classes of the text. The latter are also the fallback.

        Args:
            ids: Integer array `(tokens,)` or `(sequences, tokens)`, below
                `num_classes`; negative ids are padding.
            num_classes: Integer.
            num_best: Integer. Classes to keep for each context, at least the
                layer's `num_candidates`. Defaults to `100`.
            **kwargs: `name` of `keras.layers.Layer`.
        """
        check_positive_int("num_classes", num_classes, maximum=2**31 - 1)
        check_positive_int("num_best", num_best)
        ids = np.asarray(ids)
        require(
            ids.ndim in (1, 2) and ids.dtype.kind in "iu",
            "`ids` must be an integer array (tokens,) or (sequences, tokens).",
            shape=ids.shape,
            dtype=ids.dtype.name,
        )
        largest = int(ids.max()) if ids.size else -1
        require(
            largest < num_classes,
            f"`ids` must be below num_classes={num_classes}.",
            largest=largest,
        )
        counts = np.bincount(ids[ids >= 0].ravel(), minlength=num_classes)
        frequent = np.argsort(-counts, kind="stable").astype("int32")
        frequent = frequent[: min(num_best, num_classes)]
        table = _most_frequent_followers(ids, num_classes, frequent)
        return cls(table, frequent, **kwargs)

    def attach(self, num_classes, num_candidates):
        largest, width = self._table.max(), self._table.shape[1]
        require(
            largest < num_classes and width >= num_candidates,
            "`table` and `fallback` must have classes below num_classes="
            f"{num_classes}, and at least num_candidates={num_candidates} "
            "columns.",
            largest=int(largest),
            columns=width,
        )
        super().attach(num_classes, num_candidates)

    def build(self, input_shape=None):
        if self.built:
            return
        self.table = self._add_state("table", self._table)

    def select(self, scores, features, context=None):
        last = len(self._table) - 1
        if context is None:
            rows = tf.constant([last])
        else:
            context = tf.cast(context, "int32")
            known = (context >= 0) & (context < last)
            rows = tf.where(known, context, last)
        candidates = gather_rows(self.table, rows)[:, : self.num_candidates]
        return candidates[0] if context is None else candidates

    def get_config(self):
        return {
            **super().get_config(),
            "table": pack_array(self._table[:-1]),
            "fallback": pack_array(self._table[-1]),
        }

    @classmethod
    def from_config(cls, config):
        parts = {
            name: unpack_array(config[name]) for name in ("table", "fallback")
        }
        return cls(**{**config, **parts})


def _check_table(table, fallback):
    """The table as int32, with the fallback as its last row."""
    table = np.asarray(table)
    require(
        table.ndim == 2 and table.shape[1] and table.dtype.kind in "iu",
        "`table` must be an integer array (num_contexts, best).",
        shape=table.shape,
        dtype=table.dtype.name,
    )
    if fallback is None:
        fallback = np.full(table.shape[1], -1)
    fallback = np.asarray(fallback)
    require(
        fallback.shape == table.shape[1:] and fallback.dtype.kind in "iu",
        "`fallback` must be an integer array as wide as `table`.",
        shape=fallback.shape,
        dtype=fallback.dtype.name,
    )
    table = np.concatenate([table, fallback[None]])
    ordered = np.sort(table, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    wrong = twice.any(axis=1) | (ordered[:, 0] < -1)
    wrong |= ordered[:, -1] >= 2**31
    require(
        not wrong.any(),
        "`table` and `fallback` must have rows of different classes, or -1.",
        row=int(np.argmax(wrong)),
    )
    return table.astype("int32")


def _most_frequent_followers(ids, num_classes, frequent):
    """Classes that follow each class, most frequent first."""
    number = len(frequent)
    before, after = ids[..., :-1].ravel(), ids[..., 1:].ravel()
    there = (before >= 0) & (after >= 0)
    keys = before[there].astype("int64") * num_classes + after[there]
    # `np.unique` takes 70 times as long for millions of keys.
    keys.sort()
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(firsts, append=len(keys))
    before, after = np.divmod(keys[firsts], num_classes)
    order = np.lexsort((-counts, before))
    before, after = before[order], after[order]
    followers = np.bincount(before, minlength=num_classes)
    starts = np.cumsum(followers) - followers
    place = np.arange(len(before)) - starts[before]
    kept = place < number
    before, after, place = before[kept], after[kept], place[kept]
    table = np.full((num_classes, number), -1, "int32")
    table[before, place] = after
    _fill_up(table, frequent)
    return table


def _fill_up(table, frequent):
    """Fills up rows with frequent classes that they do not have yet."""
    number = table.shape[1]
    rank = np.full(len(table), number)
    rank[frequent] = np.arange(number)
    step = max(1, _ENTRIES // number)
    for start in range(0, len(table), step):
        part = table[start : start + step]
        there = np.zeros((len(part), number + 1), bool)
        rows = np.arange(len(part))[:, None]
        there[rows, np.where(part >= 0, rank[part], number)] = True
        found = np.hstack([part, np.broadcast_to(frequent, part.shape)])
        left_out = np.hstack([part < 0, there[:, :number]])
        order = np.argsort(left_out, axis=1, kind="stable")[:, :number]
        part[:] = np.take_along_axis(found, order, axis=1)
