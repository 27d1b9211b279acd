"""How many of the best classes are labels, of which rare ones count more."""

import math

import keras
import numpy as np
import tensorflow as tf

from keras_compembed.metrics.ranking_metrics import RankingMetric
from keras_compembed.utils.saving import pack_array
from keras_compembed.utils.saving import unpack_array
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_scores
from keras_compembed.utils.validation import require


@keras.saving.register_keras_serializable(package="keras_compembed")
class PropensityScoredPrecisionAtK(RankingMetric):
    """Precision at `k` in which labels count by how likely they are missed.

    Where examples have many labels, data lack some, and rare ones more often.
    A label of `n` among `N` training examples counts by the inverse of its
    propensity, `1 + (log(N) - 1) * (b + 1)**a * (n + b)**-a`: that of labels
    among the `k` classes scored highest, divided by the most that `k` labels
    could count, both summed over all examples. It is 1 where the labels that
    count most are found.

    In evaluation only, as `PrecisionAtK`.

    Example:

    >>> counts = np.arange(1000, 0, -1)
    >>> head = kc.CANESoftmax(1000, class_counts=counts)
    >>> features = np.random.normal(size=(2, 8)).astype("float32")
    >>> metric = kc.PropensityScoredPrecisionAtK(counts, 20_000, k=5)
    >>> metric.update_state([[3, 7], [2, -1]], head(features))

    Args:
        class_counts: Array `(num_classes,)`, how often each class is a label
            in the training data.
        num_examples: Integer of at least 3, training examples.
        a: Positive number. Defaults to `0.55`; the paper has 0.5 for
            Wikipedia and 0.6 for Amazon.
        b: Positive number. Defaults to `1.5`; the paper has 0.4 for Wikipedia
            and 2.6 for Amazon.
        name: Optional string. Defaults to `None`: e.g.
            `"propensity_scored_precision_at_5"`.
        k, dtype, ignore_class, in_training: Same as for `PrecisionAtK`.

    References:
        - [Jain et al., 2016](https://doi.org/10.1145/2939672.2939756),
          equation 2 and section 4
    """

    prefix = "propensity_scored_precision"

    def __init__(
        self,
        class_counts,
        num_examples,
        k=5,
        a=0.55,
        b=1.5,
        name=None,
        dtype=None,
        ignore_class=None,
        in_training=False,
    ):
        self.class_counts = check_scores("class_counts", class_counts)
        self.num_examples = check_positive_int(
            "num_examples", num_examples, minimum=3
        )
        check_positive_number("a", a)
        check_positive_number("b", b)
        self.a, self.b = a, b
        scale = (math.log(num_examples) - 1) * (b + 1) ** a
        weights = 1 + scale * (self.class_counts + b) ** -a
        self._weights = np.asarray(weights, "float32")
        super().__init__(k, name, dtype, ignore_class, in_training)

    def values(self, examples):
        weights = self._weights_of(examples)
        hits = examples.label_ranks() < self.k
        found = tf.reduce_sum(tf.where(hits, weights, 0.0), axis=1)
        return tf.math.divide_no_nan(found, self.importance(examples))

    def importance(self, examples):
        """The most that the labels of each example could count."""
        weights = self._weights_of(examples)
        number = min(self.k, weights.shape[1])
        return tf.reduce_sum(tf.math.top_k(weights, number)[0], axis=1)

    def _weights_of(self, examples):
        """What each label counts, 0 where there is none."""
        num_classes = examples.head.num_classes
        require(
            len(self._weights) == num_classes,
            "`class_counts` must have one entry for each class.",
            num_classes=num_classes,
            class_counts=len(self._weights),
        )
        labels = examples.label_lists()
        weights = tf.gather(self._weights, tf.maximum(labels, 0))
        return tf.where(labels >= 0, weights, 0.0)

    def get_config(self):
        return {
            **super().get_config(),
            "class_counts": pack_array(self.class_counts),
            "num_examples": self.num_examples,
            "a": self.a,
            "b": self.b,
        }

    @classmethod
    def from_config(cls, config):
        counts = unpack_array(config["class_counts"])
        return cls(**{**config, "class_counts": counts})
