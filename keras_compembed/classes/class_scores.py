"""Scores of classes from the variables that hold their vectors and biases."""

import functools

import tensorflow as tf

from keras_compembed.classes.selector import CandidateGroups
from keras_compembed.classes.selector import GroupBlocks
from keras_compembed.classes.selector import best_in_parts
from keras_compembed.classes.selector import ids_of
from keras_compembed.classes.tree_arrays import read_above
from keras_compembed.classes.tree_arrays import sum_above
from keras_compembed.classes.tree_arrays import sum_down_to
from keras_compembed.optimizers.device_rows import computed_once
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.device_rows import own_value
from keras_compembed.optimizers.device_rows import read_unique_rows
from keras_compembed.optimizers.device_rows import unique_ids
from keras_compembed.optimizers.device_rows import unique_places
from keras_compembed.optimizers.device_rows import without_gradients
from keras_compembed.utils.chunks import MOST_NUMBERS
from keras_compembed.utils.chunks import chunk_sizes
from keras_compembed.utils.chunks import in_parts
from keras_compembed.utils.log_sums import log_add_exp
from keras_compembed.utils.log_sums import log_sum_exp
from keras_compembed.utils.log_sums import without_nan

# Rows that are worth one reading of the whole table.
_LEAST_ROWS = 32


class ClassScores:
    """What classes are scored by: their vectors and their biases."""

    def __init__(
        self,
        table,
        bias=None,
        tree=None,
        nodes=None,
        node_bias=None,
        table_is_own=True,
    ):
        self.table = table
        self.table_is_own = table_is_own
        self.bias = bias
        self.tree = tree
        self.nodes = nodes
        self.node_bias = node_bias
        self._embeds = hasattr(table, "embed")
        if self._embeds:
            self.num_classes = table.input_dim
            self.width = table.output_dim
        else:
            self.num_classes, self.width = table.shape

    def class_vectors(self, ids):
        """Vectors of classes, summed over paths, without gradients."""
        vectors = self._own_vectors(ids)
        if self.nodes is not None:
            vectors += self._sum_above(self.nodes, ids)
        return vectors

    def class_biases(self, ids):
        """Biases of classes, summed over paths, without gradients."""
        if self.bias is None:
            return tf.zeros(tf.shape(ids))
        biases = gather_rows(self.bias, ids)
        if self.nodes is not None:
            biases += self._sum_above(self.node_bias, ids)
        return biases

    def _of_nodes(self, depth):
        """Vectors and biases of all inner nodes of a depth, from 1."""
        vectors = sum_down_to(self.tree, self.nodes, depth)
        if self.node_bias is None:
            return vectors, tf.zeros(self.tree.level_sizes[depth - 1])
        return vectors, sum_down_to(self.tree, self.node_bias, depth)

    def _own_vectors(self, ids):
        """The parts of vectors that classes have for themselves."""
        if self._embeds:
            with without_gradients():
                return tf.cast(self.table.embed(ids), "float32")
        # Half precision does not hold sums over very many classes.
        return tf.cast(gather_rows(self.table, ids), "float32")

    def _sum_above(self, table, ids):
        ancestors = self.tree.ancestors(ids)
        return sum_above(lambda nodes: gather_rows(table, nodes), ancestors)

    def _score_chunk(self, features, start, size):
        """Ids and scores of so many classes; those past the end score -inf."""
        ids = start + tf.range(size)
        exists = ids < self.num_classes
        ids = tf.minimum(ids, self.num_classes - 1)
        vectors = self.class_vectors(ids)
        scores = tf.matmul(features, vectors, transpose_b=True)
        scores += self.class_biases(ids)
        return ids, tf.where(exists, scores, float("-inf"))

    def exact(self, features, labels):
        """Losses and ranks of labels by the scores of all classes, in parts."""
        rows, classes = chunk_sizes(
            features.shape[0], self.num_classes, self.width
        )
        return in_parts(
            functools.partial(self._exact_part, size=classes),
            (features, labels),
            (tf.zeros(tf.shape(labels)), tf.zeros_like(labels)),
            rows,
        )

    def _exact_part(self, features, labels, size):
        """Same as `exact`, with `size` classes scored at a time."""
        several = labels.shape.rank == 2
        flat = tf.reshape(labels, (-1,))
        each = features
        if several:
            each = tf.repeat(features, tf.shape(labels)[1], axis=0)
        own = tf.reduce_sum(each * self.class_vectors(flat), axis=1)
        own = tf.reshape(own + self.class_biases(flat), tf.shape(labels))

        def add(start, total, ranks):
            ids, scores = self._score_chunk(features, start, size)
            if several:
                # A label of each example at a time: no tensor of all of them.
                ranks += tf.transpose(
                    tf.map_fn(
                        lambda label: _count_above(ids, scores, *label),
                        (tf.transpose(labels), tf.transpose(own)),
                        fn_output_signature="int32",
                        parallel_iterations=1,
                    )
                )
            else:
                ranks += _count_above(ids, scores, labels, own)
            chunk = tf.reduce_logsumexp(scores, axis=1)
            return start + size, log_add_exp(total, chunk), ranks

        _, total, ranks = tf.while_loop(
            lambda start, *_: start < self.num_classes,
            add,
            (
                0,
                tf.fill(tf.shape(features)[:1], float("-inf")),
                tf.zeros_like(labels),
            ),
            # Else ten chunks are in memory.
            parallel_iterations=1,
        )
        # No comparison with NaN is true, which would make its rank the best.
        ranks = tf.where(tf.math.is_nan(own), self.num_classes, ranks)
        return (total[:, None] if several else total) - own, ranks

    def top_k(self, features, k):
        """The classes of the highest scores of all, scored in parts."""
        known = features.shape[0]
        size = self._rows_by_table(known)
        if size:
            compute = functools.partial(self._top_k_by_table, k=k)
        else:
            size, classes = chunk_sizes(
                known, self.num_classes, features.shape[1], k
            )
            compute = functools.partial(self._top_k_part, k=k, size=classes)
        return best_in_parts(compute, (features,), k, size)

    def _rows_by_table(self, rows):
        """How many rows to score at a time by the table as it is."""
        is_sum = self._embeds or self.nodes is not None
        if is_sum or self.table.dtype != "float32":
            return 0
        size = MOST_NUMBERS // self.num_classes
        least = _LEAST_ROWS if rows is None else min(rows, _LEAST_ROWS)
        return size if size >= least else 0

    def _top_k_by_table(self, features, k):
        """Same as `top_k`, without a copy of any vectors."""
        scores = tf.matmul(features, own_value(self.table), transpose_b=True)
        if self.bias is not None:
            scores += own_value(self.bias)
        scores = without_nan(scores)
        best, ids = tf.math.top_k(scores, k)
        ids = tf.where(best > float("-inf"), ids, -1)
        return ids, best, log_sum_exp(scores)

    def _top_k_part(self, features, k, size):
        """Same as `top_k`, with `size` classes scored at a time."""
        rows, known = tf.shape(features)[0], features.shape[0]

        def better(start, scores, ids, total):
            chunk_ids, chunk_scores = self._score_chunk(features, start, size)
            chunk_scores = without_nan(chunk_scores)
            best, places = tf.math.top_k(chunk_scores, min(k, size))
            scores = tf.concat([scores, best], axis=1)
            ids = tf.concat([ids, tf.gather(chunk_ids, places)], axis=1)
            scores, places = tf.math.top_k(scores, k)
            ids = tf.gather(ids, places, batch_dims=1)
            total = log_add_exp(total, log_sum_exp(chunk_scores))
            return start + size, scores, ids, total

        _, scores, ids, total = tf.while_loop(
            lambda start, *_: start < self.num_classes,
            better,
            (
                0,
                tf.fill((rows, k), float("-inf")),
                tf.fill((rows, k), -1),
                tf.fill((rows,), float("-inf")),
            ),
            shape_invariants=(
                tf.TensorShape(()),
                tf.TensorShape((known, k)),
                tf.TensorShape((known, k)),
                tf.TensorShape((known,)),
            ),
            # Else ten chunks are in memory.
            parallel_iterations=1,
        )
        return tf.where(scores > float("-inf"), ids, -1), scores, total

    def score_all(self, features):
        """Scores of all classes, in memory all at once."""
        # Products make gradients dense: a row that comes in several slices
        # would count several times in an optimizer's second moments.
        ids = tf.range(self.num_classes)
        scores = vectors = 0.0
        if hasattr(self.table, "score"):
            # By codes, which stay packed in files.
            scores = self.table.score(tf.convert_to_tensor(features))
        elif self._embeds:
            vectors = tf.cast(self.table.embed(ids), "float32")
        else:
            vectors = tf.cast(self.table.value * 1.0, "float32")
        biases = 0.0 if self.bias is None else self.bias.value * 1.0
        if self.nodes is not None:
            ancestors = self.tree.ancestors(ids)
            vectors += _sum_dense(self.nodes, ancestors)
            if self.bias is not None:
                biases += _sum_dense(self.node_bias, ancestors)
        if tf.is_tensor(vectors):
            scores += tf.matmul(features, vectors, transpose_b=True)
        return scores + biases

    def score(self, features, *groups, block=None, offsets=None):
        """Scores of some classes, with gradients for these alone."""
        if offsets is None:
            offsets = [tf.zeros(tf.shape(ids_of(group))) for group in groups]
        # One look-up for all of a kind: each has a scatter in its gradient.
        of_rows = [group for group in groups if _rank(group) == 2]
        others = [group for group in groups if _rank(group) != 2]
        blocks = {}
        ids = [tf.reshape(tf.concat(of_rows, axis=1), (-1,))]
        for place, group in enumerate(others, 1):
            part = ids_of(group)
            if isinstance(group, CandidateGroups):
                blocks[place] = GroupBlocks(group.groups, part.shape[0])
                # Vectors of other groups need not be read.
                part = tf.where(blocks[place].occurs[:, None], part, -1)
            ids.append(tf.reshape(part, (-1,)))
        vectors, biases, places = self._read(
            computed_once(tf.maximum(tf.concat(ids, axis=0), 0))
        )
        biases = tf.gather(biases, places) + _in_order(groups, offsets)
        sizes = [tf.size(part) for part in ids]
        places, biases = tf.split(places, sizes), tf.split(biases, sizes)
        numbers = [group.shape[1] for group in of_rows]
        own = tf.gather(vectors, places[0])
        own = tf.linalg.matvec(
            tf.reshape(own, (-1, sum(numbers), self.width)), features
        )
        own += tf.reshape(biases[0], (-1, sum(numbers)))
        own = iter(tf.split(own, numbers, 1))
        common = []
        for place, group in enumerate(others, 1):
            shape = ids_of(group).shape
            if place in blocks:
                rows = tf.reshape(places[place], shape)
                matrices = tf.gather(rows, blocks[place].of_blocks)
                matrices = tf.gather(vectors, matrices)
                scores = blocks[place].products(features, matrices)
                own_biases = tf.reshape(biases[place], shape)
                scores += tf.gather(own_biases, group.groups)
            else:
                scores = _score_shared(
                    features,
                    tf.gather(vectors, places[place]),
                    biases[place],
                    shape,
                    block,
                )
            common.append(scores)
        common = iter(common)
        return [next(own if _rank(group) == 2 else common) for group in groups]

    def _read(self, ids):
        """Vectors and biases, and where those of each of ids are."""
        if on_several_devices():
            # Those of all devices, in one order.
            different, places, room = unique_ids(ids)
            classes, chosen = different, tf.range(tf.size(different))
        else:
            chosen, places = unique_places(ids, self.num_classes)
            classes, different = ids, tf.gather(ids, chosen)
            room = None
        biases = tf.zeros(tf.shape(different))
        if self.bias is not None:
            biases = read_unique_rows(self.bias, different, room)
        vectors = 0.0
        if self.nodes is not None:
            tables = [self.nodes]
            if self.bias is not None:
                tables.append(self.node_bias)
            sums = read_above(self.tree, tables, classes, chosen, room)
            vectors = sums[0]
            biases += sum(sums[1:])
        if not self._embeds:
            rows = read_unique_rows(self.table, different, room)
            vectors += tf.cast(rows, "float32")
            return vectors, biases, places
        # The embedding itself looks for different ids, which XLA cannot do
        # among different ids.
        if self.nodes is not None:
            vectors = tf.gather(vectors, places)
        vectors += tf.cast(self.table.embed(ids), "float32")
        biases = tf.gather(biases, places)
        return vectors, biases, tf.range(tf.size(ids))


def _sum_dense(table, ancestors):
    values = table.value * 1.0
    return sum_above(lambda ids: tf.gather(values, ids), ancestors)


def _rank(group):
    return None if isinstance(group, CandidateGroups) else group.shape.rank


def _in_order(groups, offsets):
    """Offsets in a row: those of groups of rows, row by row, then others."""
    pairs = list(zip(groups, offsets, strict=True))
    of_rows = [offset for group, offset in pairs if _rank(group) == 2]
    others = [offset for group, offset in pairs if _rank(group) != 2]
    parts = [tf.concat(of_rows, axis=1), *others]
    return tf.concat([tf.reshape(part, (-1,)) for part in parts], axis=0)


def _score_shared(features, vectors, biases, shape, block):
    """Scores of classes that all rows, or some of them, share."""
    if shape.rank == 1:
        return tf.matmul(features, vectors, transpose_b=True) + biases
    parts, number = shape[1:]
    rows, width = tf.shape(features)[0], features.shape[1]
    vectors = tf.reshape(vectors, (-1, number, width))
    # Of a batch without rows, blocks have none either.
    blocks = tf.shape(vectors)[0]
    size = block if parts == 1 else (rows + parts - 1) // parts
    features = tf.pad(features, [[0, blocks * size - rows], [0, 0]])
    if parts == 1:
        features = tf.reshape(features, (blocks, size, width))
    else:
        features = tf.reshape(features, (size, blocks, width))
        features = tf.transpose(features, (1, 0, 2))
    scores = tf.matmul(features, vectors, transpose_b=True)
    scores += tf.reshape(biases, (-1, 1, number))
    if parts > 1:
        scores = tf.transpose(scores, (1, 0, 2))
    return tf.reshape(scores, (-1, number))[:rows]


def _count_above(ids, scores, labels, own):
    # The same score, computed in another way, may be above itself.
    other = tf.not_equal(ids, labels[:, None])
    above = (scores > own[:, None]) | (
        tf.equal(scores, own[:, None]) & (ids < labels[:, None])
    )
    return tf.reduce_sum(tf.cast(above & other, "int32"), axis=1)
