"""Scores of a `CANESoftmax`, and what it draws in training."""

import tensorflow as tf

from keras_compembed.candidates.row_parts import chunk_sizes
from keras_compembed.candidates.row_parts import in_parts
from keras_compembed.layers.class_head import ClassHead
from keras_compembed.layers.class_head import Draw
from keras_compembed.layers.path_reading import read_above
from keras_compembed.noises.estimate import joint_losses
from keras_compembed.noises.estimate import separate_losses
from keras_compembed.noises.random_bits import random_bits
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import on_several_devices
from keras_compembed.optimizers.read_rows import read_unique_rows
from keras_compembed.optimizers.read_rows import unique_ids
from keras_compembed.optimizers.read_rows import without_gradients
from keras_compembed.optimizers.unique_places import computed_once
from keras_compembed.optimizers.unique_places import unique_places
from keras_compembed.utils.scores import log_add_exp

# What class vectors start from that are to be set: training that fails ends in
# NaN, not in a whole row of this.
NO_START = float("-inf")


class CANETraining(ClassHead):
    """Base of `CANESoftmax`, where the arguments are described."""

    def with_start(self, features):
        """Features, if vectors have what they are to start from.

        XLA leaves the check out; losses are NaN there.

        Raises:
            InvalidArgumentError: if the layer was made from a config, and its
                weights were not set.
        """
        if not self.lost_means:
            return features
        first = gather_rows(self.kernel, tf.constant([0]))
        check = tf.debugging.Assert(
            tf.reduce_any(tf.not_equal(first, NO_START)),
            [
                f"The weights of the {type(self).__name__} {self.name!r} must "
                "be set, or loaded, before it is used: it was made from its "
                "configuration alone, which does not hold the class means "
                "that its vectors start from. To start from others, give "
                "`kernel_initializer`."
            ],
        )
        # Nothing is trained before. Eager calls have raised by now.
        with tf.control_dependencies([] if check is None else [check]):
            return tf.identity(features)

    def class_vectors(self, ids):
        """Vectors of classes, summed over paths, without gradients.

        Args:
            ids: Integer tensor `(ids,)`.

        Returns:
            float32 tensor `(ids, width)`.
        """
        vectors = self.own_vectors(ids)
        if self.nodes is not None:
            vectors += self._sum_of_nodes(self.selector.tree.ancestors(ids))
        return vectors

    def class_biases(self, ids):
        """Biases of classes, as of `class_vectors`.

        Args:
            ids: Integer tensor `(ids,)`.

        Returns:
            float32 tensor `(ids,)`.
        """
        if self.bias is None:
            return tf.zeros(tf.shape(ids))
        biases = gather_rows(self.bias, ids)
        if self.nodes is not None:
            biases += self._sum_of_biases(self.selector.tree.ancestors(ids))
        return biases

    def node_vectors(self, depth):
        """Vectors of inner nodes, summed over paths, without gradients.

        Args:
            depth: Integer from 1, edges from the root to the nodes.

        Returns:
            float32 tensor `(nodes, width)`, all of that depth.
        """
        return self._sum_down_to(depth, self.nodes)

    def node_biases(self, depth):
        """Biases of inner nodes, as of `node_vectors`."""
        if self.node_bias is None:
            return tf.zeros(self.selector.tree.level_sizes[depth - 1])
        return self._sum_down_to(depth, self.node_bias)

    def _sum_down_to(self, depth, table):
        tree = self.selector.tree
        sizes = tree.level_sizes[:depth]
        nodes = tf.range(sum(sizes))
        rows = tf.split(gather_rows(table, nodes), sizes)
        parents = tf.split(gather_rows(tree.node_parents, nodes), sizes)
        total = rows[0]
        for level in range(1, depth):
            above = parents[level] - tree.level_starts[level - 1]
            total = rows[level] + tf.gather(total, above)
        return total

    def own_vectors(self, ids):
        """The parts of vectors that classes have for themselves."""
        if self.class_embedding is not None:
            with without_gradients():
                vectors = self.class_embedding.embed(ids)
            return tf.cast(vectors, "float32")
        return gather_rows(self.kernel, ids)

    def _sum_of_nodes(self, ancestors):
        total = 0.0
        for nodes in tf.unstack(ancestors, axis=1):
            rows = gather_rows(self.nodes, tf.maximum(nodes, 0))
            total += tf.where(nodes[:, None] >= 0, rows, 0.0)
        return total

    def _sum_of_biases(self, ancestors):
        above = gather_rows(self.node_bias, tf.maximum(ancestors, 0))
        return tf.reduce_sum(tf.where(ancestors >= 0, above, 0.0), axis=1)

    def score_chunk(self, features, start, size):
        """Scores of classes next to each other.

        Args:
            features: float32 tensor `(rows, width)`.
            start: Integer tensor, the first class.
            size: Integer, how many.

        Returns:
            int32 ids and tensor of scores `(rows, size)`, minus infinity for
            those that do not exist.
        """
        ids = start + tf.range(size)
        exists = ids < self.num_classes
        ids = tf.minimum(ids, self.num_classes - 1)
        vectors = self.class_vectors(ids)
        scores = tf.matmul(features, vectors, transpose_b=True)
        scores += self.class_biases(ids)
        return ids, tf.where(exists, scores, float("-inf"))

    def exact(self, features, labels):
        features = self.with_start(features)
        labels = tf.cast(labels, "int32")
        rows, classes = chunk_sizes(
            features.shape[0], self.num_classes, self.width
        )
        return in_parts(
            lambda features, labels: self._exact_part(
                features, labels, classes
            ),
            (features, labels),
            (tf.zeros(tf.shape(labels)), tf.zeros_like(labels)),
            rows,
        )

    def _exact_part(self, features, labels, size):
        """As of `exact`, with `size` classes scored at a time."""
        own = tf.reduce_sum(features * self.class_vectors(labels), axis=1)
        own += self.class_biases(labels)

        def add(start, total, ranks):
            ids, scores = self.score_chunk(features, start, size)
            # The same score, computed in another way, may be above itself.
            other = tf.not_equal(ids, labels[:, None])
            above = (scores > own[:, None]) | (
                tf.equal(scores, own[:, None]) & (ids < labels[:, None])
            )
            ranks += tf.reduce_sum(tf.cast(above & other, "int32"), axis=1)
            chunk = tf.reduce_logsumexp(scores, axis=1)
            return start + size, log_add_exp(total, chunk), ranks

        _, total, ranks = tf.while_loop(
            lambda start, *_: start < self.num_classes,
            add,
            (
                0,
                tf.fill(tf.shape(labels), float("-inf")),
                tf.zeros_like(labels),
            ),
            # Else ten chunks are in memory.
            parallel_iterations=1,
        )
        # What is no number is above nothing, and below everything.
        ranks = tf.where(tf.math.is_nan(own), self.num_classes, ranks)
        return total - own, ranks

    def choices(self, features, labels):
        features = self.with_start(features)
        # Products make gradients dense: a row that comes in several slices
        # would count several times in an optimizer's second moments.
        ids = tf.range(self.num_classes)
        if self.class_embedding is not None:
            vectors = tf.cast(self.class_embedding.embed(ids), "float32")
        else:
            vectors = self.kernel.value * 1.0
        biases = 0.0 if self.bias is None else self.bias.value * 1.0
        if self.nodes is not None:
            ancestors = self.selector.tree.ancestors(ids)
            places, exist = tf.maximum(ancestors, 0), ancestors >= 0
            nodes = self.nodes.value * 1.0
            vectors += _sum_over_paths(nodes, places, exist)
            if self.bias is not None:
                above = (self.node_bias.value * 1.0)[:, None]
                biases += _sum_over_paths(above, places, exist)[:, 0]
        logits = tf.matmul(features, vectors, transpose_b=True) + biases
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        own = tf.gather(logits, labels, batch_dims=1)
        return losses, tf.reduce_max(logits, axis=1) <= own

    def scores(self, features, *groups):
        """Scores of some classes, with gradients for these alone.

        Args:
            features: float32 tensor `(rows, width)`.
            *groups: Integer tensors of ids: `(rows, number)`; `(number,)` for
                classes that all rows share; or `(blocks, 1, number)` for
                classes that blocks of `share_noises` rows next to each other
                share. Ids of -1 stand for no class.

        Returns:
            List of tensors `(rows, number)`, one for each group; the score of
            no class is that of class 0.
        """
        features = self.with_start(features)
        # One look-up for all of a kind: each has a scatter in its gradient.
        of_rows = [group for group in groups if group.shape.rank == 2]
        others = [group for group in groups if group.shape.rank != 2]
        number = sum(group.shape[1] for group in of_rows)
        ids = [tf.reshape(tf.concat(of_rows, axis=1), (-1,))]
        ids += [tf.reshape(group, (-1,)) for group in others]
        vectors, biases, places = self._read(
            computed_once(tf.maximum(tf.concat(ids, axis=0), 0))
        )
        places = tf.split(places, [tf.size(part) for part in ids])
        own = tf.gather(vectors, places[0])
        own = tf.linalg.matvec(
            tf.reshape(own, (-1, number, self.width)), features
        )
        own += tf.reshape(tf.gather(biases, places[0]), (-1, number))
        own = iter(tf.split(own, [group.shape[1] for group in of_rows], 1))
        common = iter(
            self._score_blocks(
                features, tf.gather(vectors, place), tf.gather(biases, place)
            )
            if group.shape.rank == 3
            else tf.matmul(
                features, tf.gather(vectors, place), transpose_b=True
            )
            + tf.gather(biases, place)
            for group, place in zip(others, places[1:], strict=True)
        )
        return [
            next(own if group.shape.rank == 2 else common) for group in groups
        ]

    def _score_blocks(self, features, vectors, biases):
        """Scores of classes that blocks of rows share, as `(rows, number)`.

        Args:
            features: float32 tensor `(rows, width)`.
            vectors: Tensor `(blocks * number, width)`.
            biases: Tensor `(blocks * number,)`.
        """
        rows = tf.shape(features)[0]
        number, size = self.num_noises, self.share_noises
        missing = -rows % size
        features = tf.pad(features, [[0, missing], [0, 0]])
        scores = tf.matmul(
            tf.reshape(features, (-1, size, self.width)),
            tf.reshape(vectors, (-1, number, self.width)),
            transpose_b=True,
        ) + tf.reshape(biases, (-1, 1, number))
        return tf.reshape(scores, (-1, number))[:rows]

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
            tree = self.selector.tree
            sums = read_above(tree, tables, classes, chosen, room)
            vectors = sums[0]
            biases += sum(sums[1:])
        if self.class_embedding is None:
            vectors += read_unique_rows(self.kernel, different, room)
            return vectors, biases, places
        # The embedding itself looks for different ids, which XLA cannot do
        # among different ids.
        if self.nodes is not None:
            vectors = tf.gather(vectors, places)
        vectors += tf.cast(self.class_embedding.embed(ids), "float32")
        biases = tf.gather(biases, places)
        return vectors, biases, tf.range(tf.size(ids))

    def draw(self, examples):
        features, labels = examples.features, examples.labels
        if not self.samples:
            return self.draw_all(examples)
        candidates = self.selector.select(
            self, tf.stop_gradient(features), examples.context
        )
        candidates = tf.stop_gradient(candidates)
        same = tf.equal(candidates, labels[:, None])
        hit = tf.reduce_any(same, axis=1)
        noises, counts, log_q, label_log_q = self._draw_noises(
            candidates, labels
        )
        label, of_candidates, of_noises = self.scores(
            features, labels[:, None], candidates, noises
        )
        nothing = float("-inf")
        of_candidates = tf.where(candidates >= 0, of_candidates, nothing)
        estimate = joint_losses if self.estimate == "joint" else separate_losses
        losses = estimate(
            label[:, 0],
            of_candidates,
            tf.where(counts, of_noises - log_q, nothing),
            (label - label_log_q)[:, 0],
            hit,
        )
        if examples.training and self.trainable:
            self.selector.after_step(self, labels, hit)
            self.noise.observe(labels, hit)
        # The label's own score, computed in another way, may be above itself.
        others = tf.where(same, nothing, of_candidates)
        best = tf.reduce_max(others, axis=1) <= label[:, 0]
        return Draw(losses, hit, hit & best)

    def _draw_noises(self, candidates, labels):
        """Noises, which of them count, and logarithms of probabilities."""
        seed = self.seed_generator.next()
        rows, block = tf.size(labels), int(self.share_noises)
        shared = candidates.shape.rank == 1
        if block:
            # Noises of several examples cannot keep clear of the candidates
            # of all of them; those that are candidates of an example count as
            # 0 in it, which leaves the expectation of the sum as it was.
            excluded = candidates if shared else None
        else:
            excluded = candidates
        draws = None if self.share_noises is True else rows
        if block > 1:
            draws = (rows + block - 1) // block
        bits = random_bits(seed, self.num_noises, draws)
        noises = self.noise.sample(bits, excluded)
        log_q = self.noise.log_prob(noises, excluded)
        label_log_q = self.noise.log_prob(labels[:, None], excluded)
        of_rows = noises
        if block > 1:
            of_block = tf.range(rows) // block
            of_rows = tf.gather(noises, of_block)
            log_q = tf.gather(log_q, of_block)
            noises = noises[:, None]
        counts = of_rows >= 0
        if block and not shared:
            same = tf.equal(of_rows[..., None], candidates[:, None, :])
            counts &= tf.logical_not(tf.reduce_any(same, axis=2))
        return noises, counts, log_q, label_log_q


def _sum_over_paths(rows, places, exist):
    """Sums of rows `(nodes, width)` at places `(ids, depth - 1)`."""
    total = 0.0
    # One after the other: all at once take depth times the memory.
    columns = tf.unstack(places, axis=1), tf.unstack(exist, axis=1)
    for column, counts in zip(*columns, strict=True):
        parts = tf.gather(rows, column)
        total += tf.where(counts[:, None], parts, 0.0)
    return total
