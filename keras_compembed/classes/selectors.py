"""Selectors of candidates: their base, and those by counts."""

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

# Numbers held at a time.
_ENTRIES = 1 << 24


class Selector(PackedConfig, WholeLoad, keras.layers.Layer):
    """Base of what chooses the candidates of each example.

    A `keras_compembed.CANESoftmax` calls its `attach`, then `build`, then
    `select` in each step of training. For a method of your own, write
    `select`, and `top_k` if you know a faster way than scores of all classes:

    >>> @keras.saving.register_keras_serializable()
    ... class FirstClasses(kc.classes.Selector):
    ...     def select(self, scores, features, context=None):
    ...         return tf.range(self.num_candidates)

    Attributes:
        num_classes, num_candidates: Integers, from `attach`.
        tree: `ClassTree` that class vectors are sums over paths of, or None.
    """

    tree = None

    def __init__(self, **kwargs: object):
        super().__init__(**kwargs)
        self.num_classes = None
        self.num_candidates = None

    def attach(self, num_classes: int, num_candidates: int) -> None:
        """Tells sizes, before `build`: classes, and how many to choose."""
        check_unattached(self)
        self.num_classes = num_classes
        self.num_candidates = num_candidates

    def build(self, input_shape=None):
        self.built = True

    def _before_step(self, scores, features):
        """Called once in each step of training, before `select`."""
        # AutoGraph warns of a body that is a docstring alone.
        return

    def select(
        self,
        scores: ClassScores,
        features: tf.Tensor,
        context: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Candidates of examples, in training and in evaluation.

        Args:
            scores, features: `ClassScores`, a float32 tensor `(rows, width)`.
            context: Optional integer tensor `(rows,)`, what the layer was
                called with.

        Returns:
            int32 tensor: `(num_candidates,)`, ids that all rows share, or
            `(rows, num_candidates)`, ids of each row's own; they differ
            within a row, -1 where there are fewer.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must have a method `select`."
        )

    def after_step(
        self, scores: ClassScores, labels: tf.Tensor, hit: tf.Tensor
    ) -> None:
        """Called once in each step of training, after `select`.

        Args:
            scores, labels: `ClassScores`, and an int32 tensor `(rows,)`.
            hit: Boolean tensor `(rows,)`, whether candidates hold the label.
        """
        # AutoGraph warns of a body that is a docstring alone.
        return

    def top_k(self, scores: ClassScores, features: tf.Tensor, k: int) -> tuple:
        """The classes of the highest scores; here, all are scored in chunks.

        Args:
            scores, features, k: `ClassScores`, a float32 tensor
                `(rows, width)`, and an integer.

        Returns:
            Tensors: `(rows, k)` int32 ids, best first, and `(rows, k)`
            scores, where fewer classes were found -1 and minus infinity;
            and `(rows,)`, the logarithm of the sum of exponentials of the
            scores of all classes that were looked at.
        """
        return scores.top_k(features, k)

    def get_build_config(self):
        # The layer that holds the selector attaches it, then builds it.
        return None


@keras.saving.register_keras_serializable(package="keras_compembed")
class AllClasses(Selector):
    """Every class is a candidate of every example.

    The layer trains the softmax over all classes. Up to some thousands of
    classes, that is as fast as any choice among them.

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
    """Base of selectors that choose by how often classes occur."""

    _arrays = ("counts",)

    def __init__(self, counts: ArrayLike, **kwargs: object):
        super().__init__(**kwargs)
        self.counts = check_scores("counts", counts)

    def attach(self, num_classes, num_candidates):
        check_one_a_class("counts", self.counts, num_classes)
        super().attach(num_classes, num_candidates)


@keras.saving.register_keras_serializable(package="keras_compembed")
class FrequentClasses(CountsSelector):
    """The same candidates for all examples: those that occur most.

    With one set for all, their scores are a matrix product. For classes of
    very different frequency, such as words; then share noises, too.

    Example:

    >>> counts = 1000 // np.arange(1, 1001)
    >>> selector = FrequentClasses(counts)
    >>> sampling = kc.Sampling(selector, 100, num_noises=50, shared=True)
    >>> head = kc.CANESoftmax(1000, counts, sampling)

    Args:
        counts: Array `(num_classes,)` of numbers of at least 0, how often each
            class occurs.
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
        """Leaves the classes: counts are settings, of the config."""


@keras.saving.register_keras_serializable(package="keras_compembed")
class FrequencySubsets(CountsSelector):
    """Routes an example to a subset of classes, and samples from it.

    The tree of section 5 of the paper: one level of subsets, each with an
    equal share of what occurs. An example goes to the subset of the highest
    score; its candidates are drawn there evenly. To be compared with: on Penn
    Treebank, `NGram` and `FrequentClasses` with more noises did far better.

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
        # Evaluation leaves the state as it is.
        self.seed_generator.next()

    def save_own_variables(self, store):
        super().save_own_variables(store)
        save_seed(store, self.seed_generator)

    def load_own_variables(self, store):
        super().load_own_variables(load_seed(store, self.seed_generator))


def split_evenly(counts, num_groups):
    """Groups of classes, most frequent first, of about equal mass."""
    order = np.argsort(-np.asarray(counts, "float64"), kind="stable")
    mass = np.cumsum(np.maximum(counts, 1e-9)[order], dtype="float64")
    middle = (mass - np.maximum(counts, 1e-9)[order] / 2) / mass[-1]
    groups = np.minimum((middle * num_groups).astype(int), num_groups - 1)
    # Each group begins after the one before it, and leaves room for others.
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
    """Different places in rows of some sizes, all of them equally probable."""
    number = bits.shape[1] - 1
    # One place in each part of a circle that begins anywhere: parts differ in
    # length by 1, and those of one length are not always the same.
    ends = tf.range(number + 1, dtype="int64") * size // number
    lengths = tf.maximum(ends[:, 1:] - ends[:, :-1], 1)
    places = ends[:, :-1] + tf.math.floormod(bits[:, 1:], lengths)
    turn = tf.math.floormod(bits[:, :1], size)
    return tf.cast(tf.math.floormod(places + turn, size), "int32")


@keras.saving.register_keras_serializable(package="keras_compembed")
class NGram(Selector):
    """Looks candidates up by a context, such as the word before.

    The layer is called with the context, an integer for each example:
    `head(features, context=ids)`. Contexts that the table does not have, such
    as -1, get the candidates of `fallback`; so do all without a context.
    Prediction scores all classes.

    Example:

    >>> text = np.random.default_rng(0).integers(1000, size=(100, 50))
    >>> selector = NGram.from_text(text, num_classes=1000)
    >>> head = kc.CANESoftmax(1000, sampling=kc.Sampling(selector))
    >>> ids = keras.Input((49,), dtype="int32")
    >>> features = keras.layers.Embedding(1000, 16)(ids)
    >>> outputs = head(features, context=ids)

    Args:
        table: Integer array `(num_contexts, best)`: classes for each context,
            the most probable first, which differ within a row; -1 where there
            are no more.
        fallback: Optional integer array `(best,)`, classes for contexts that
            are not known. Defaults to `None`, no candidates.
        **kwargs: `name` of `keras.layers.Layer`.

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
        # Its last row is the fallback.
        self._table = _check_table(table, fallback)

    @classmethod
    def from_text(
        cls,
        ids: ArrayLike,
        num_classes: int,
        num_best: int = 100,
        **kwargs: object,
    ) -> "NGram":
        """Counts what follows each class in a text.

        Classes that follow come first, by how often they do, then the most
        frequent of all, which are also the fallback.

        Args:
            ids: Integer array `(tokens,)` or `(sequences, tokens)`, below
                `num_classes`; negative ones are padding.
            num_classes: Integer.
            num_best: Integer, classes to keep for each context: at least
                `num_candidates` of the layer. Defaults to `100`.
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
            "`table` and `fallback` must hold classes below num_classes="
            f"{num_classes}, in a column for each of num_candidates="
            f"{num_candidates}.",
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
    """The table with the fallback as its last row, as int32."""
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
        "`table` and `fallback` must hold classes, each once in a row, or -1.",
        row=int(np.argmax(wrong)),
    )
    return table.astype("int32")


def _most_frequent_followers(ids, num_classes, frequent):
    """Classes by how often they follow each class."""
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
    """Fills rows up with what is frequent and not in them yet."""
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
