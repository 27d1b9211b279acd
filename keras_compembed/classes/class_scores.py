"""Scores of classes from their vectors and biases."""

import functools

import tensorflow as tf

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
from keras_compembed.utils.tensor_ops import MOST_NUMBERS
from keras_compembed.utils.tensor_ops import chunk_sizes
from keras_compembed.utils.tensor_ops import in_parts
from keras_compembed.utils.tensor_ops import log_add_exp
from keras_compembed.utils.tensor_ops import log_sum_exp
from keras_compembed.utils.tensor_ops import without_nan
from keras_compembed.utils.validation import require

# With fewer rows, reading the whole table takes longer than it saves.
_LEAST_ROWS = 32
# The square of a length below this counts as 0.
_LEAST_SQUARE = 1e-24


class ClassScores:
    """Scores classes from their vectors and biases."""

    def __init__(
        self,
        table,
        bias=None,
        tree=None,
        nodes=None,
        node_bias=None,
        table_is_own=True,
        is_cosine=False,
    ):
        self.table = table
        self.table_is_own = table_is_own
        # Whether vectors count as vectors of length 1.
        self.is_cosine = is_cosine
        self._fixed_scales = None
        self.bias = bias
        self.tree = tree
        self.nodes = nodes
        self.node_bias = node_bias
        if self._embeds:
            self.num_classes = table.input_dim
            self.width = table.output_dim
        else:
            self.num_classes, self.width = table.shape

    @property
    def _embeds(self):
        """Whether a layer gives the vectors. A copy may replace that layer."""
        return hasattr(self.table, "embed")

    def class_vectors(self, ids):
        """Sums of vectors on the paths of classes, without gradients.

        With cosines, these are vectors of length 1.
        """
        vectors = self.own_vectors(ids)
        if self.nodes is not None:
            vectors += self._sum_above(self.nodes, ids)
        return unit_vectors(vectors) if self.is_cosine else vectors

    def class_biases(self, ids):
        """Sums of biases on the paths of classes, without gradients."""
        if self.bias is None:
            return tf.zeros(tf.shape(ids))
        biases = gather_rows(self.bias, ids)
        if self.nodes is not None:
            biases += self._sum_above(self.node_bias, ids)
        return biases

    def of_nodes(self, depth):
        """Vectors and biases of all inner nodes at a depth, from 1."""
        vectors = sum_down_to(self.tree, self.nodes, depth)
        if self.node_bias is None:
            return vectors, tf.zeros(self.tree.level_sizes[depth - 1])
        return vectors, sum_down_to(self.tree, self.node_bias, depth)

    def own_vectors(self, ids):
        """Vectors of the classes alone, without inner nodes."""
        if self._embeds:
            with without_gradients():
                return tf.cast(self.table.embed(ids), "float32")
        # Half precision is too coarse for sums over very many classes.
        return tf.cast(gather_rows(self.table, ids), "float32")

    def _sum_above(self, table, ids):
        ancestors = self.tree.ancestors(ids)
        return sum_above(lambda nodes: gather_rows(table, nodes), ancestors)

    def _score_chunk(self, features, start, size):
        """Ids and scores of `size` classes, -inf past the end."""
        ids = start + tf.range(size)
        exists = ids < self.num_classes
        ids = tf.minimum(ids, self.num_classes - 1)
        vectors = self.class_vectors(ids)
        scores = tf.matmul(features, vectors, transpose_b=True)
        scores += self.class_biases(ids)
        return ids, tf.where(exists, scores, float("-inf"))

    def exact(self, features, labels):
        """Losses and ranks of labels among all classes, in chunks."""
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
        """Same as `exact`, but scores `size` classes at a time."""
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
                # One label of each example at a time saves memory.
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
            # More would keep ten chunks in memory.
            parallel_iterations=1,
        )
        # Comparisons with NaN are false, which would give it the best rank.
        ranks = tf.where(tf.math.is_nan(own), self.num_classes, ranks)
        return (total[:, None] if several else total) - own, ranks

    def top_k(self, features, k):
        """The classes with the highest scores, scored in chunks."""
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
        """How many rows to score at a time without copies of the table."""
        is_sum = self._embeds or self.nodes is not None
        if is_sum or self.table.dtype != "float32":
            return 0
        size = MOST_NUMBERS // self.num_classes
        least = _LEAST_ROWS if rows is None else min(rows, _LEAST_ROWS)
        return size if size >= least else 0

    def _top_k_by_table(self, features, k):
        """Same as `top_k`, without copies of vectors."""
        table = own_value(self.table)
        scores = tf.matmul(features, table, transpose_b=True)
        if self.is_cosine:
            scores = self._cosines_of(scores, table)
        if self.bias is not None:
            scores += own_value(self.bias)
        scores = without_nan(scores)
        best, ids = tf.math.top_k(scores, k)
        ids = tf.where(best > float("-inf"), ids, -1)
        return ids, best, log_sum_exp(scores)

    def _top_k_part(self, features, k, size):
        """Same as `top_k`, but scores `size` classes at a time."""
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
            # More would keep ten chunks in memory.
            parallel_iterations=1,
        )
        return tf.where(scores > float("-inf"), ids, -1), scores, total

    def score_all(self, features):
        """Scores of all classes, all in memory at once."""
        # Products make gradients dense. A row in several slices would count
        # several times in an optimizer's second moments.
        ids = tf.range(self.num_classes)
        scores = vectors = 0.0
        form = getattr(self.table, "store", None)
        if hasattr(form, "score_chunks"):
            # Scores by codes, which stay packed in files.
            scores = form.score(tf.convert_to_tensor(features))
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
        if self.is_cosine:
            scores = self._cosines_of(scores, vectors)
        return scores + biases

    def _cosines_of(self, products, vectors):
        """Products with all vectors, divided by lengths of vectors."""
        if self._fixed_scales is None:
            return products * inverse_lengths(vectors)
        # With no op between, the converter stores a scaled copy of the table.
        return without_nan(products) * self._fixed_scales

    def fix_lengths(self):
        """Computes the lengths of vectors once, for an exported copy."""
        vectors = self.own_vectors(tf.range(self.num_classes))
        if self.table_is_own:
            self.table.assign(unit_vectors(vectors))
            self.is_cosine = False
        else:
            self._fixed_scales = tf.constant(inverse_lengths(vectors).numpy())

    def own(self, features, *lists, offsets=None):
        """Scores of lists `(rows, number)`, one for each example."""
        return self.shared(features, lists, (), offsets)

    def shared(self, features, own, lists, offsets=None, neighbors=None):
        """Scores of each example's own lists, then of shared lists.

        A shared list is `(number,)` for the batch, or `(groups, number)`.
        Groups have `neighbors` adjacent examples, or, without `neighbors`,
        take examples in turn. Only classes in the lists have gradients.
        """
        # One lookup for all: the gradient of each has a scatter.
        ids = _one_row(own, lists)
        vectors, biases, places = self._read(computed_once(tf.maximum(ids, 0)))
        biases = tf.gather(biases, places)
        if offsets is not None:
            biases += _one_row(offsets[: len(own)], offsets[len(own) :])
        widths = [each.shape[1] for each in own]
        sizes = [sum(map(tf.size, own)), *map(tf.size, lists)]
        places, biases = tf.split(places, sizes), tf.split(biases, sizes)
        scores = tf.gather(vectors, places[0])
        scores = tf.linalg.matvec(
            tf.reshape(scores, (-1, sum(widths), self.width)), features
        )
        scores += tf.reshape(biases[0], (-1, sum(widths)))
        found = tf.split(scores, widths, 1)
        for each, place, bias in zip(
            lists, places[1:], biases[1:], strict=True
        ):
            rows = tf.gather(vectors, place)
            found.append(
                _score_shared(features, rows, bias, each.shape, neighbors)
            )
        return found

    def _read(self, ids):
        """Vectors and biases of different ids, and the place of each id."""
        if on_several_devices():
            # The ids of all devices, in the same order everywhere.
            different, places, room = unique_ids(ids, self.num_classes)
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
            if self.is_cosine:
                vectors = unit_vectors(vectors)
            return vectors, biases, places
        # The embedding looks up unique ids itself. XLA cannot do that for ids
        # that are unique already.
        if self.nodes is not None:
            vectors = tf.gather(vectors, places)
        vectors += tf.cast(self.table.embed(ids), "float32")
        if self.is_cosine:
            vectors = unit_vectors(vectors)
        biases = tf.gather(biases, places)
        return vectors, biases, tf.range(tf.size(ids))


def inverse_lengths(vectors):
    """1 / length of vectors on the last axis; 1 for vectors of zeros."""
    squares = tf.reduce_sum(vectors**2, axis=-1)
    # A gradient of 1 / 0 would be NaN.
    return tf.math.rsqrt(tf.where(squares > _LEAST_SQUARE, squares, 1.0))


def unit_vectors(vectors):
    """Vectors of length 1, or of zeros."""
    return vectors * inverse_lengths(vectors)[..., None]


def _sum_dense(table, ancestors):
    values = table.value * 1.0
    return sum_above(lambda ids: tf.gather(values, ids), ancestors)


def _one_row(own, lists):
    """Flattens each example's own lists, then shared lists."""
    parts = [tf.concat(own, axis=1), *lists]
    return tf.concat([tf.reshape(part, (-1,)) for part in parts], axis=0)


def _score_shared(features, vectors, biases, shape, neighbors):
    """Scores of classes shared by all rows, or by groups of rows."""
    if shape.rank == 1:
        return tf.matmul(features, vectors, transpose_b=True) + biases
    number = shape[1]
    rows, width = tf.shape(features)[0], features.shape[1]
    vectors = tf.reshape(vectors, (-1, number, width))
    # A batch without rows has no blocks of neighbors.
    groups = tf.shape(vectors)[0]
    size = neighbors
    if neighbors is None:
        size = (rows + shape[0] - 1) // shape[0]
    features = tf.pad(features, [[0, groups * size - rows], [0, 0]])
    if neighbors is None:
        features = tf.reshape(features, (size, groups, width))
        features = tf.transpose(features, (1, 0, 2))
    else:
        features = tf.reshape(features, (groups, size, width))
    scores = tf.matmul(features, vectors, transpose_b=True)
    scores += tf.reshape(biases, (-1, 1, number))
    if neighbors is None:
        scores = tf.transpose(scores, (1, 0, 2))
    return tf.reshape(scores, (-1, number))[:rows]


def _count_above(ids, scores, labels, own):
    # Rounding may put the label's score above itself: skip it here.
    other = tf.not_equal(ids, labels[:, None])
    above = (scores > own[:, None]) | (
        tf.equal(scores, own[:, None]) & (ids < labels[:, None])
    )
    return tf.reduce_sum(tf.cast(above & other, "int32"), axis=1)


def best_of(ids, scores, k):
    """The result of a search among all classes that it scored."""
    missing = max(0, k - ids.shape[1])
    if missing:
        sides = [[0, 0], [0, missing]]
        ids = tf.pad(ids, sides, constant_values=-1)
        scores = tf.pad(scores, sides, constant_values=float("-inf"))
    total = log_sum_exp(scores)
    scores, places = tf.math.top_k(scores, k)
    ids = tf.gather(ids, places, batch_dims=1)
    return tf.where(scores > float("-inf"), ids, -1), scores, total


def read_excluded(exclude):
    """The ids to leave out, as an int32 tensor."""
    is_ragged = isinstance(exclude, (tf.RaggedTensor, tf.SparseTensor))
    if not is_ragged:
        exclude = tf.convert_to_tensor(exclude)
    require(
        not is_ragged and exclude.dtype != tf.string,
        "`exclude` must have lists of ids of equal length, padded by -1. Use "
        "`to_tensor(-1)` for a ragged tensor.",
        type=type(exclude).__name__,
        dtype=exclude.dtype.name,
    )
    return tf.cast(exclude, "int32")


def top_k_without(top_k, k, exclude, like, num_ids):
    """The `k` best ids and scores without those in `exclude`.

    `top_k(n)` gives ids and scores `(..., n)` for vectors such as `like`.
    """
    if exclude is None:
        return top_k(k)
    exclude = read_excluded(exclude)
    number = exclude.shape[-1] if exclude.shape.rank else None
    leading = tf.TensorShape(like.shape[:-1])
    require(
        number is not None
        and exclude.shape[:-1].is_compatible_with(leading)
        and k + number <= num_ids,
        "`exclude` must have a fixed number of ids for each row, at most "
        f"{num_ids - k} to leave k={k} of {num_ids}, padded by -1.",
        shape=tuple(exclude.shape),
    )
    ids, scores = top_k(k + number)
    same = tf.equal(tf.expand_dims(ids, -1), tf.expand_dims(exclude, -2))
    is_out = tf.reduce_any(same, axis=-1)
    # Keep the order, but move excluded ids to the end.
    order = tf.range(k + number, 0, -1) - tf.where(is_out, k + number, 0)
    places = tf.math.top_k(order, k).indices
    is_out = tf.gather(is_out, places, batch_dims=leading.rank)
    ids = tf.gather(ids, places, batch_dims=leading.rank)
    scores = tf.gather(scores, places, batch_dims=leading.rank)
    return tf.where(is_out, -1, ids), scores


def best_in_parts(compute, inputs, k, size):
    """The result of a search, computed for `size` rows at a time."""
    rows, known = tf.shape(inputs[0])[0], inputs[0].shape[0]
    results = tf.fill((rows, k), -1), tf.zeros((rows, k)), tf.zeros((rows,))
    results = in_parts(compute, inputs, results, size)
    shapes = (known, k), (known, k), (known,)
    return tuple(map(tf.ensure_shape, results, shapes))
