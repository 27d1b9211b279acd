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
    """Base of losses that find their layer by a mark on its output."""

    # Layers recognize these losses by this attribute.
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
        """Losses `(rows,)` in training. A mask may exclude some."""
        return examples.draw().losses

    def __call__(self, y_true, y_pred, sample_weight=None):
        losses = self._losses(y_true, y_pred, sample_weight)
        return super().__call__(losses, losses, sample_weight)

    def call(self, y_true, y_pred):
        # `__call__` passes losses.
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
    """The logical and of two masks. Each may be None."""
    if mask is None or other is None:
        return other if mask is None else mask
    return mask & other


def _has_weight(sample_weight, y_pred):
    """Whether examples have a weight other than 0, or None if unknown."""
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
    """Raises an error for labels out of range, unless a mask excludes them."""
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
            "and of labels that are not whole numbers, from, to:",
            tf.reduce_min(fractions),
            tf.reduce_max(fractions),
        ]
    if examples.lists is not None:
        received += ["Lists must have at least one label, padded by -1."]
    check = tf.debugging.Assert(
        tf.reduce_all(valid),
        [
            "Labels must be whole numbers from 0 to "
            f"{examples.head.num_classes - 1} (`num_classes` - 1).",
            *received,
        ],
    )
    # In eager mode, the check has run already.
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(valid)


@keras.saving.register_keras_serializable(package="keras_compembed")
class CANELoss(ClassLoss):
    """Trains a `keras_compembed.CANESoftmax` on a sample of the classes.

    The loss of an example compares its label with a few candidates and a few
    noise classes (Algorithm 1), which the layer chooses. It has the same
    minimum as the softmax over all classes. The cost of a step does not grow
    with the number of classes, or only with the depth of a `BeamTree`.

    An example may have a list of labels, padded by -1; duplicates count once.
    Its loss is the mean over its labels. A training step draws one of them.

    Labels may be floats if they are whole numbers. A label out of range raises
    an error. In a step compiled by XLA, it makes the loss NaN.

    Example:

    >>> model = keras.Sequential([keras.Input((8,)), kc.CANESoftmax(1000)])
    >>> model.compile("adam", loss=CANELoss())
    >>> x = np.random.normal(size=(100, 8))
    >>> _ = model.fit(x, np.arange(100), verbose=0)

    Args:
        evaluation: `"exact"` or `"sampled"`, the loss that `evaluate` and the
            validation of `fit` report. `"exact"` is the cross-entropy over
            all classes. `"sampled"` is the training loss, with the same noise
            samples each time. Defaults to `"exact"`.
        ignore_class: Optional integer. Label of examples that do not count.
        name: Optional string.
        reduction: Same as for `keras.losses.Loss`. Defaults to
            `"sum_over_batch_size"`.

    Call arguments:
        y_true: Integer labels with the shape of the output without its last
            axis. For lists of labels, add a last axis, padded by -1, shorter
            than the number of classes.
        y_pred: The output of a model that ends in a `CANESoftmax`.
        sample_weight: Optional weights of examples.

    Raises:
        ValueError: If `y_pred` is not the output of a layer over classes, or
            if the shape of the labels does not fit.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658), equations 2 to
          8 and Algorithm 1
    """


class SampledLoss(ClassLoss):
    """Base of losses that compare the label with sampled classes only."""

    # Corrects scores by the expected "count" of a class among the samples, by
    # the probability of its "presence", or not at all (None).
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
        """Losses from corrected scores of labels `(rows,)` and samples."""
        raise NotImplementedError

    def training_losses(self, examples):
        head = examples.head
        labels = examples.labels
        number = self.num_sampled
        if number is None:
            require(
                head.samples,
                "`num_sampled` must be given for a layer that trains a full "
                f"softmax over {head.num_classes} classes.",
                num_sampled=None,
            )
            sampling = head.sampling
            number = sampling.num_candidates + sampling.most_noises
        sampled = head.noise.sample(random_bits(examples.seed(), number))
        scores = head.scores.shared(
            examples.features, [labels[:, None]], [sampled]
        )
        # With batches of several sizes, the static shape is unknown.
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
            # Rounding may put the label's own sample above the label.
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
    """Trains a `keras_compembed.CANESoftmax` with sampled softmax.

    The loss is the cross-entropy of the label among itself and sampled
    classes, as in `tf.nn.sampled_softmax_loss`. It accepts any noise of the
    layer and compiles with XLA.

    Classes are sampled with replacement, but duplicates count once. The logQ
    correction subtracts from each score the logarithm of the probability of
    being sampled, `1 - (1 - q)^num_sampled`. Samples equal to the label are
    left out.

    Example:

    >>> counts = 1000 / np.arange(1, 1001)
    >>> layer = kc.CANESoftmax(1000, counts)
    >>> model = keras.Sequential([keras.Input((8,)), layer])
    >>> loss = kc.SampledSoftmaxLoss(num_sampled=40)
    >>> model.compile("adam", loss=loss)

    Args:
        num_sampled: Optional integer, sampled classes that all examples of a
            step share. Defaults to `None`: as many as the layer's candidates
            and noise samples together.
        evaluation, ignore_class, name, reduction: As for `CANELoss`, with
            the same call arguments and errors.

    References:
        - [Bengio & Senecal, 2008](https://doi.org/10.1109/TNN.2007.912312)
        - [Jean et al., 2015](https://arxiv.org/abs/1412.2007)
    """

    # "count" would give frequent classes too little weight: their samples are
    # left out in the examples that have them as the label.
    correction = "presence"

    def sampled_losses(self, label, sampled, left_out, num_classes):
        return sampled_cross_entropies(label, sampled, left_out)


@keras.saving.register_keras_serializable(package="keras_compembed")
class NCELoss(SampledLoss):
    """Trains a `keras_compembed.CANESoftmax` with noise-contrastive estimation.

    The loss separates labels from sampled classes, one by one, as in
    `tf.nn.nce_loss`. Scores act as log probabilities. The loss accepts any
    noise of the layer. With `class_counts`, biases start at log frequencies.

    Example:

    >>> counts = 1000 / np.arange(1, 1001)
    >>> layer = kc.CANESoftmax(1000, counts)
    >>> model = keras.Sequential([keras.Input((8,)), layer])
    >>> model.compile("adam", loss=kc.NCELoss(num_sampled=40))

    Args:
        num_sampled: Same as for `keras_compembed.SampledSoftmaxLoss`.
        evaluation, ignore_class, name, reduction: As for `CANELoss`, with
            the same call arguments and errors.

    References:
        - [Gutmann & Hyvarinen, 2012](
          https://jmlr.org/papers/v13/gutmann12a.html)
        - [Mnih & Teh, 2012](https://arxiv.org/abs/1206.6426)
    """

    def sampled_losses(self, label, sampled, left_out, num_classes):
        # A sample counts as noise even where it is the label.
        losses = tf.math.softplus(-label)
        return losses + tf.reduce_sum(tf.math.softplus(sampled), axis=1)


def log_presence(log_q, number):
    """Log probabilities that classes are among `number` samples."""
    return tf.math.log(-tf.math.expm1(number * tf.math.log1p(-tf.exp(log_q))))


def sampled_cross_entropies(label, others, left_out):
    """Cross-entropies of labels among themselves and other classes."""
    others = tf.where(left_out, float("-inf"), others)
    total = log_sum_exp(label[:, None], others)
    return total - label


@keras.saving.register_keras_serializable(package="keras_compembed")
class InBatchSoftmaxLoss(ClassLoss):
    """Trains a `keras_compembed.CANESoftmax` with in-batch negatives.

    The loss is the cross-entropy of the label among the labels of the batch,
    on all devices, as in two-tower retrieval. Duplicates count once. Examples
    excluded by a mask or `ignore_class` are not negatives.

    The logQ correction subtracts from each score the logarithm of the
    probability that its class is in the batch, `1 - (1 - q)^n`. Here q is the
    share of the class in `class_counts`, and n is the number of other
    examples. `keras_rs.layers.SamplingProbabilityCorrection` does the same.

    In training, metrics compare the label with the labels of the batch.

    Example:

    >>> counts = 1000 / np.arange(1, 1001)
    >>> layer = kc.CANESoftmax(1000, counts)
    >>> model = keras.Sequential([keras.Input((8,)), layer])
    >>> model.compile("adam", loss=kc.InBatchSoftmaxLoss())

    Args:
        evaluation, ignore_class, name, reduction: As for `CANELoss`, with
            the same call arguments and errors.

    Raises:
        ValueError: If the layer has no `class_counts`.

    References:
        - [Yi et al., 2019](https://doi.org/10.1145/3298689.3346996)
    """

    def training_losses(self, examples):
        head = examples.head
        require(
            head.class_counts is not None,
            "`InBatchSoftmaxLoss` must be given the output of a layer with "
            "`class_counts`, to correct scores by class frequency.",
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
