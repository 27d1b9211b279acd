"""Losses over many classes."""

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.classes.class_head import ClassExamples
from keras_compembed.classes.class_head import read_examples
from keras_compembed.classes.class_head import unflat
from keras_compembed.classes.noise import random_bits
from keras_compembed.classes.sampling import Draw
from keras_compembed.optimizers.device_rows import first_places
from keras_compembed.optimizers.device_rows import of_all_devices
from keras_compembed.utils.saving import PackedConfig
from keras_compembed.utils.tensor_ops import log_sum_exp
from keras_compembed.utils.validation import check_choice
from keras_compembed.utils.validation import check_label
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import require


class ClassLoss(PackedConfig, keras.losses.Loss):
    """Base of losses that find their layer by the output they are given."""

    # What layers know these losses by.
    reads_class_output = True
    _settings = "evaluation", "ignore_class"

    def __init__(
        self,
        evaluation: str = "exact",
        ignore_class: int | None = None,
        name: str | None = None,
        reduction: str = "sum_over_batch_size",
        **kwargs: object,
    ):
        super().__init__(name=name, reduction=reduction, **kwargs)
        self.evaluation = check_choice(
            "evaluation", evaluation, ("exact", "sampled")
        )
        self.ignore_class = check_label("ignore_class", ignore_class)

    def training_losses(self, examples: ClassExamples) -> tf.Tensor:
        """Losses `(rows,)` of examples in training; a mask leaves some out."""
        return examples.draw().losses

    def __call__(self, y_true, y_pred, sample_weight=None):
        losses = self._losses(y_true, y_pred, sample_weight)
        return super().__call__(losses, losses, sample_weight)

    def call(self, y_true, y_pred):
        # What `__call__` hands over.
        return y_pred

    def _losses(self, y_true, y_pred, sample_weight):
        examples = read_examples(y_true, y_pred, type(self).__name__)
        if examples is None:
            return tf.zeros(tf.shape(y_pred)[:-1])
        mask = getattr(y_pred, "_keras_mask", None)
        if self.ignore_class is not None:
            counted = examples.counted(self.ignore_class)
            mask = _both(mask, unflat(counted, y_pred))
        valid = check_labels(examples, mask)
        if examples.training or self.evaluation == "sampled":
            counted = _both(mask, _has_weight(sample_weight, y_pred))
            examples.mask = (
                None if counted is None else tf.reshape(counted, (-1,))
            )
            losses = self.training_losses(examples)
            of_rows = getattr(losses, "_keras_mask", None)
            if of_rows is not None:
                mask = _both(mask, unflat(of_rows, y_pred))
        else:
            losses, _ = examples.exact()
        losses = tf.where(valid, losses, float("nan"))
        losses = unflat(losses, y_pred)
        if mask is not None:
            losses._keras_mask = mask
        return losses


def _both(mask, other):
    """What is in both of two masks, each of which may be None."""
    if mask is None or other is None:
        return other if mask is None else mask
    return mask & other


def _has_weight(sample_weight, y_pred):
    """Which examples have a weight other than 0, or None if all may have."""
    if sample_weight is None:
        return None
    weights = tf.convert_to_tensor(sample_weight)
    rank = y_pred.shape.rank - 1
    if weights.shape.rank < rank:
        return None
    if weights.shape.rank > rank:
        weights = weights[..., 0]
    return tf.not_equal(weights, 0)


def check_labels(examples, mask):
    """Whether labels are of classes that exist, or of examples left out."""
    valid = examples.in_range
    if mask is not None:
        valid |= tf.logical_not(tf.reshape(mask, (-1,)))
    received = [
        "Received labels from, to:",
        tf.reduce_min(examples.received),
        tf.reduce_max(examples.received),
    ]
    if examples.not_whole is not None:
        rows = valid if examples.lists is None else valid[:, None]
        fractions = tf.where(
            rows, tf.zeros_like(examples.not_whole), examples.not_whole
        )
        received += [
            "and of those that are not whole numbers, from, to:",
            tf.reduce_min(fractions),
            tf.reduce_max(fractions),
        ]
    if examples.lists is not None:
        received += ["Lists must hold a label, and are padded by -1."]
    check = tf.debugging.Assert(
        tf.reduce_all(valid),
        [
            "Labels must be whole numbers from 0 to "
            f"{examples.head.num_classes - 1} (`num_classes` - 1).",
            *received,
        ],
    )
    # Eager calls have raised by now.
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(valid)


@keras.saving.register_keras_serializable(package="keras_compembed")
class CANELoss(ClassLoss):
    """Trains a `keras_compembed.CANESoftmax` on candidates and noises.

    The loss of an example is that of its label among a few candidates and a
    few noises, drawn from the other classes (Algorithm 1), as the layer chooses
    them. Its minimum is that of the softmax over all classes, but the cost of a
    step does not grow with the classes; over a `BeamTree`, it grows with the
    depth.

    An example may have several labels: a list, padded by -1, in which a label
    that comes twice counts once. Its loss is the mean over its labels; a step
    of training draws one of them.

    A label out of range is an error, or, where XLA compiles the step, makes
    the loss NaN. Labels may be floats that are whole numbers.

    Example:

    >>> model = keras.Sequential([keras.Input((8,)), kc.CANESoftmax(1000)])
    >>> model.compile("adam", loss=CANELoss())
    >>> x = np.random.normal(size=(100, 8))
    >>> _ = model.fit(x, np.arange(100), verbose=0)

    Args:
        evaluation: `"exact"` or `"sampled"`. Whether `evaluate`, and the
            validation of `fit`, report the cross-entropy over all classes or
            what training does, by the same noises each time. Defaults to
            `"exact"`.
        ignore_class: Optional integer. Label of examples that do not count.
            Defaults to `None`.
        name: Optional string.
        reduction: Same as for `keras.losses.Loss`. Defaults to
            `"sum_over_batch_size"`.

    Call arguments:
        y_true: Integer labels, of the shape of the output without its last
            axis; a last axis may follow, of one label or, padded by -1, of
            several, fewer than there are classes.
        y_pred: The output of a model that ends in a `CANESoftmax`.
        sample_weight: Optional weights of examples.

    Raises:
        ValueError: if `y_pred` does not come from a layer of classes, or
            labels are not of its leading shape.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), equations 2 to
          8 and Algorithm 1
    """


class SampledLoss(ClassLoss):
    """Base of losses that know no candidates but the label."""

    # What scores are corrected by: the expected "count" of samples of a class,
    # the probability of its "presence" among them, or None.
    correction = "count"
    _settings = *ClassLoss._settings, "num_sampled"

    def __init__(self, num_sampled: int | None = None, **kwargs: object):
        super().__init__(**kwargs)
        check_positive_int("num_sampled", num_sampled, optional=True)
        self.num_sampled = num_sampled

    def sampled_losses(
        self,
        label: tf.Tensor,
        sampled: tf.Tensor,
        left_out: tf.Tensor,
        num_classes: int,
    ) -> tf.Tensor:
        """Losses by corrected scores of labels `(rows,)` and of samples."""
        raise NotImplementedError

    def training_losses(self, examples):
        head = examples.head
        labels = examples.labels
        number = self.num_sampled
        if number is None:
            require(
                head.samples,
                "`num_sampled` must be given for a layer that trains on all "
                f"{head.num_classes} classes.",
                num_sampled=None,
            )
            sampling = head.sampling
            number = sampling.num_candidates + sampling.num_noises
        sampled = head.noise.sample(random_bits(examples.seed(), number))
        scores = head.scores.shared(
            examples.features, [labels[:, None]], [sampled]
        )
        # Where batches differ in size, it is not known.
        scores[1] = tf.ensure_shape(scores[1], (None, number))
        log_q = [head.noise.log_prob(ids) for ids in (labels[:, None], sampled)]
        hits = tf.equal(labels[:, None], sampled)
        firsts = first_places(sampled, head.num_classes)
        again = tf.not_equal(firsts, tf.range(number))
        once = [
            score - log_presence(each, float(number))
            for score, each in zip(scores, log_q, strict=True)
        ]
        if examples.training:
            no_candidate = tf.zeros_like(labels, "bool")
            head.noise.observe(labels, no_candidate)
            # Where a sample is the label, its score may be off by rounding.
            best = tf.reduce_all(hits | (scores[0] >= scores[1]), axis=1)
            losses = sampled_cross_entropies(
                once[0][:, 0], once[1], hits | again
            )
            examples.keep(Draw(losses, no_candidate, best))
        if self.correction == "presence":
            scores, hits = once, hits | again
        elif self.correction == "count":
            scores = [
                score - each - tf.math.log(float(number))
                for score, each in zip(scores, log_q, strict=True)
            ]
        return self.sampled_losses(
            scores[0][:, 0], scores[1], hits, head.num_classes
        )


@keras.saving.register_keras_serializable(package="keras_compembed")
class SampledSoftmaxLoss(SampledLoss):
    """Trains a `keras_compembed.CANESoftmax` by sampled softmax.

    The cross-entropy of the label among itself and sampled classes:
    `tf.nn.sampled_softmax_loss`, for any noise of the layer, compiled by XLA,
    and with gradients in which a row comes once.

    Classes are drawn with replacement, and each counts once, with its score
    less the logarithm of `1 - (1 - q)^num_sampled`, the probability to be
    among the samples (logQ correction). Samples that are the label are left
    out.

    Example:

    >>> counts = 1000 / np.arange(1, 1001)
    >>> layer = kc.CANESoftmax(1000, counts)
    >>> model = keras.Sequential([keras.Input((8,)), layer])
    >>> loss = kc.SampledSoftmaxLoss(num_sampled=40)
    >>> model.compile("adam", loss=loss)

    Args:
        num_sampled: Optional integer, the sampled classes that all examples
            of a step share. Defaults to the layer's candidates and noises.
        evaluation, ignore_class, name, reduction: Same as for
            `keras_compembed.CANELoss`, as are call arguments.

    References:
        - [Bengio & Senecal, 2008](https://doi.org/10.1109/TNN.2007.912312)
        - [Jean et al., 2015](https://arxiv.org/abs/1412.2007)
    """

    # With "count", a frequent class that is sampled often would weigh too
    # little in the sum where it is the label, as its samples are left out.
    correction = "presence"

    def sampled_losses(self, label, sampled, left_out, num_classes):
        return sampled_cross_entropies(label, sampled, left_out)


@keras.saving.register_keras_serializable(package="keras_compembed")
class NCELoss(SampledLoss):
    """Trains a `keras_compembed.CANESoftmax` by noise-contrastive estimation.

    Tells labels from sampled classes, one by one, by scores taken for log
    probabilities: `tf.nn.nce_loss`, for any noise of the layer, and with
    gradients in which a row comes once. Start biases at log frequencies, by
    `class_counts` of the layer.

    Example:

    >>> counts = 1000 / np.arange(1, 1001)
    >>> layer = kc.CANESoftmax(1000, counts)
    >>> model = keras.Sequential([keras.Input((8,)), layer])
    >>> model.compile("adam", loss=kc.NCELoss(num_sampled=40))

    Args:
        num_sampled: Same as for `keras_compembed.SampledSoftmaxLoss`.
        evaluation, ignore_class, name, reduction: Same as for
            `keras_compembed.CANELoss`, as are call arguments.

    References:
        - [Gutmann & Hyvarinen, 2012](
          https://jmlr.org/papers/v13/gutmann12a.html)
        - [Mnih & Teh, 2012](https://arxiv.org/abs/1206.6426)
    """

    def sampled_losses(self, label, sampled, left_out, num_classes):
        # A class sampled as noise is noise, also where it is the label.
        losses = tf.math.softplus(-label)
        return losses + tf.reduce_sum(tf.math.softplus(sampled), axis=1)


def log_presence(log_q, number):
    """Logarithms of the probabilities to be among classes that are drawn."""
    return tf.math.log(-tf.math.expm1(number * tf.math.log1p(-tf.exp(log_q))))


def sampled_cross_entropies(label, others, left_out):
    """Cross-entropies of labels among themselves and other classes."""
    others = tf.where(left_out, float("-inf"), others)
    total = log_sum_exp(label[:, None], others)
    return total - label


@keras.saving.register_keras_serializable(package="keras_compembed")
class InBatchSoftmaxLoss(ClassLoss):
    """Trains a `keras_compembed.CANESoftmax` on the labels of each batch.

    The cross-entropy of the label among all different labels of the batch, of
    all devices, as two-tower models of retrieval are trained. Scores are
    corrected (logQ correction) by the logarithm of `1 - (1 - q)^n`, the
    probability that a class of the share q of the layer's `class_counts` is
    among n others of the batch: as in
    `keras_rs.layers.SamplingProbabilityCorrection`. Examples that a mask or
    `ignore_class` leaves out are no negatives.

    In training, metrics are of the label among the labels of the batch.

    Example:

    >>> counts = 1000 / np.arange(1, 1001)
    >>> layer = kc.CANESoftmax(1000, counts)
    >>> model = keras.Sequential([keras.Input((8,)), layer])
    >>> model.compile("adam", loss=kc.InBatchSoftmaxLoss())

    Args:
        evaluation, ignore_class, name, reduction: Same as for
            `keras_compembed.CANELoss`, as are call arguments.

    Raises:
        ValueError: if the layer has no `class_counts`.

    References:
        - [Yi et al., 2019](https://doi.org/10.1145/3298689.3346996)
    """

    def training_losses(self, examples):
        head = examples.head
        require(
            head.class_counts is not None,
            "`InBatchSoftmaxLoss` must be given the output of a layer with "
            "`class_counts`, the frequencies that scores are corrected by.",
            layer=head.name,
        )
        labels = examples.labels
        others = labels
        if examples.mask is not None:
            others = tf.where(examples.mask, labels, -1)
        others = of_all_devices(others)
        steps = tf.range(tf.size(others))
        again = tf.not_equal(first_places(others, head.num_classes), steps)
        none = (others < 0) | again
        scores = head.scores.shared(
            examples.features, [labels[:, None]], [others]
        )
        shares = head.class_counts / head.class_counts.sum()
        log_q = tf.constant(np.log(shares), "float32")
        counted = tf.reduce_sum(tf.cast(others >= 0, "float32"))
        log_q = log_presence(log_q, tf.maximum(counted - 1, 1.0))
        left_out = none | tf.equal(labels[:, None], others)
        losses = sampled_cross_entropies(
            scores[0][:, 0] - tf.gather(log_q, labels),
            scores[1] - tf.gather(log_q, tf.maximum(others, 0)),
            left_out,
        )
        if examples.training:
            best = tf.reduce_all(left_out | (scores[0] >= scores[1]), axis=1)
            examples.keep(Draw(losses, tf.zeros_like(best), best))
        return losses
