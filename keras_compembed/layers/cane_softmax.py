"""Softmax over very many classes, trained on a sample of them."""

import warnings
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from keras_compembed.classes.class_head import ClassHead
from keras_compembed.classes.class_head import flat_features
from keras_compembed.classes.class_head import unflat
from keras_compembed.classes.class_scores import ClassScores
from keras_compembed.classes.class_scores import inverse_lengths
from keras_compembed.classes.class_scores import top_k_without
from keras_compembed.classes.class_tree import differences_of_means
from keras_compembed.classes.class_tree import log_shares
from keras_compembed.classes.sampling import Sampling
from keras_compembed.classes.selectors import AllClasses
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.optimizers.device_rows import gather_rows
from keras_compembed.optimizers.device_rows import own_value
from keras_compembed.utils.saving import load_seed
from keras_compembed.utils.saving import pack_array
from keras_compembed.utils.saving import save_seed
from keras_compembed.utils.saving import serialize_part
from keras_compembed.utils.saving import unpack_array
from keras_compembed.utils.validation import check_boolean
from keras_compembed.utils.validation import check_class_counts
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import require

# Placeholder for class vectors that must be set before use. Training on it by
# mistake gives NaN.
_NO_START = float("-inf")
# Start and minimum of a learned temperature, as in CLIP.
_START_TEMPERATURE, _LEAST_TEMPERATURE = 0.07, 0.01


@keras.saving.register_keras_serializable(package="keras_compembed")
class CANESoftmax(ClassHead):
    """Softmax over very many classes, as the last layer of a model.

    The layer has a vector (in `kernel`) and a bias for each class. It scores
    only a few classes at a time (the method CANE). In training, these are the
    candidates that a selector chooses for each example, and noise classes drawn
    from the rest. In prediction, all classes are scored, or those that the
    selector's search finds.

    The layer returns its input, not probabilities. Losses such as
    `keras_compembed.CANELoss` and metrics such as `ClassAccuracy` find the
    layer by a mark on that tensor. A cast or a wrapper such as
    `TimeDistributed` removes the mark. `fit` and `evaluate` raise an error for
    Keras losses and metrics such as `"accuracy"` (not for all losses of a
    subclassed model). For predictions, use `top_k` or
    `keras_compembed.top_k_model`; `predict` returns features.

    If features separate the classes well, a `keras_compembed.classes.BeamTree`
    in `sampling` finds better candidates, and makes prediction fast. A class
    vector is then the sum of the vectors on its path in a tree, and `kernel`
    holds only the last of them.

    `SGD` and `Adagrad` update only the rows that a step scores. Wrap other
    optimizers in `keras_compembed.optimizers.SparseRowOptimizer`.

    With a `temperature`, scores are cosines: features and class vectors are
    scaled to length 1, and products are divided by the temperature. Losses,
    metrics, searches and LiteRT files use the same scores. A vector of zeros
    has a cosine of 0 with all others.

    A selector or noise object belongs to one layer. `.keras` files keep a
    `class_embedding` tied to the input; `keras.models.clone_model` unties it.

    Example:

    >>> x = np.random.normal(size=(500, 16)).astype("float32")
    >>> y = np.random.randint(1000, size=500)
    >>> tree = kc.classes.ClassTree.from_labels(
    ...     x, y, num_classes=1000, verbose=0
    ... )
    >>> sampling = kc.Sampling(kc.classes.BeamTree(tree))
    >>> head = CANESoftmax(1000, sampling=sampling)
    >>> model = keras.Sequential([keras.Input((16,)), head])
    >>> model.compile("sgd", loss=kc.CANELoss(), metrics=[kc.ClassAccuracy()])
    >>> _ = model.fit(x, y, verbose=0)
    >>> ids, probabilities = head.top_k(x[:2], k=5)
    >>> ids.shape
    TensorShape([2, 5])

    Args:
        num_classes: Integer, at least 2.
        class_counts: Optional array `(num_classes,)`, how often each class
            occurs. Noise samples and the `"auto"` choices follow these counts,
            and biases start at their logarithms. Counts of 0 become 0.5.
        sampling: `"auto"` or a `keras_compembed.Sampling`, the classes that a
            training step scores. Defaults to `"auto"`: `Sampling()`.
        class_embedding: Optional layer with a row for each class, used in
            place of `kernel`: a `keras.layers.Embedding` (also a
            `ReversibleEmbedding` with `tie_weights`), an `ANTEmbedding`, a
            `CodeEmbedding` or a `FeatureEmbedding`. LoRA and quantization are
            not supported. Codes are learned from input lookups only.
        use_bias: Boolean. Defaults to `True`.
        kernel_initializer: Optional initializer of class vectors. Must be
            `None` with `class_embedding`. Defaults to `None`: the class means
            in the selector's tree, if they have the width of the features, or
            else `"random_uniform"`. Configs do not hold means. A copy made
            from such a config must get its weights before it is used.
        seed: Optional integer.
        temperature: Optional positive number, such as 0.1, for scores
            `cosine / temperature + bias`. Or `"learned"`: trained as the weight
            `log_temperature`, from 0.07 and at least 0.01. Biases then act as
            log frequencies; `use_bias=False` ranks by cosines alone. Selectors
            with a tree are not supported. Defaults to `None`: scores are
            products.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.
            Parameters and scores are always float32.

    Call arguments:
        inputs: Float tensor of features. Examples that its Keras mask excludes
            (`mask_zero` of an embedding) do not count in the loss.
        context: Optional integer tensor with the leading shape of `inputs`,
            for selectors that read it, such as `NGram`.
        training: Boolean.

    Input shape:
        Float tensor `(..., width)`: `(batch, width)`, or for a language model
        `(batch, time, width)`.

    Output shape:
        The shape of the input. With a `temperature`, features are scaled to
        the length `1 / temperature`.

    Raises:
        ValueError: If `class_embedding` does not have `num_classes` rows, or
            comes with a `kernel_initializer`, or if `temperature` is not
            positive or comes with a tree.

    References:
        - [Han et al., 2018](https://arxiv.org/abs/1711.00658): Algorithms 1
          and 2; equation 9
        - [Wang et al., 2017](https://arxiv.org/abs/1704.06369): cosines
        - [Radford et al., 2021](https://arxiv.org/abs/2103.00020), section
          2.5: learned temperature
    """

    def __init__(
        self,
        num_classes: int,
        class_counts: ArrayLike | None = None,
        sampling: str | Sampling = "auto",
        class_embedding: keras.Layer | None = None,
        use_bias: bool = True,
        kernel_initializer: str | keras.Initializer | None = None,
        seed: int | None = None,
        temperature: float | str | None = None,
        **kwargs: object,
    ):
        super().__init__(num_classes, **kwargs)
        self.temperature = _check_temperature(temperature)
        self.use_bias = check_boolean("use_bias", use_bias)
        self.seed = seed
        self.class_counts = check_class_counts(class_counts, num_classes)
        self.class_embedding = _check_embedding(class_embedding, num_classes)
        require(
            class_embedding is None or kernel_initializer is None,
            "`kernel_initializer` must be None with `class_embedding`, which "
            "has initial vectors already.",
            kernel_initializer=kernel_initializer,
        )
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        if isinstance(sampling, str) and sampling == "auto":
            sampling = Sampling()
        require(
            isinstance(sampling, Sampling),
            '`sampling` must be "auto" or a `keras_compembed.Sampling`.',
            sampling=sampling,
        )
        sampling = sampling.resolve(num_classes, self.class_counts)
        self.sampling = sampling
        # These are layers. Their weights are saved with this layer's.
        self.selector = sampling.selector
        self.noise = sampling.noise
        require(
            temperature is None or self.selector.tree is None,
            "`temperature` must be None with a selector that has a tree, as "
            "cosines are no sums over its paths. For a search, use an "
            "`ApproximateNearest`.",
            temperature=temperature,
            selector=type(self.selector).__name__,
        )
        self.scores = None
        self._lost_means = False
        scored = sampling.num_candidates + sampling.most_noises
        self.samples = scored < num_classes
        if not self.samples and not isinstance(self.selector, AllClasses):
            warnings.warn(
                "`num_candidates` + `num_noises` must be less than "
                "`num_classes` to train on a sample of classes. The layer "
                f"{self.name!r} trains a full softmax. Received: "
                f"num_candidates={sampling.num_candidates}, num_noises="
                f"{sampling.num_noises}, num_classes={num_classes}.",
                stacklevel=2,
            )
        self.selector.attach(
            num_classes, min(sampling.num_candidates, num_classes)
        )
        self.noise.attach(num_classes)
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape):
        if self.built:
            return
        width = input_shape[-1]
        require(
            width is not None,
            "The last axis of the features must be known.",
            input_shape=tuple(input_shape),
        )
        embedding = self.class_embedding
        require(
            embedding is None or embedding.output_dim == width,
            f"`class_embedding` must be as wide as the features, {width}.",
            output_dim=getattr(embedding, "output_dim", None),
        )
        self.selector.build(input_shape)
        self.noise.build(input_shape)
        tree = self.selector.tree
        self.kernel = self.nodes = self.bias = self.node_bias = None
        self.log_temperature = None
        classes, nodes = self._start_of_vectors(tree, width)
        if embedding is None:
            shape = self.num_classes, width
            table = self.kernel = self.add_weight(shape, classes, name="kernel")
            self._check_lengths()
        else:
            if not embedding.built:
                embedding.build((None,))
            table = _table_of(embedding)
        if tree is not None and tree.num_nodes:
            shape = tree.num_nodes, width
            self.nodes = self.add_weight(shape, nodes, name="nodes")
        if self.use_bias:
            classes, nodes = self._start_of_biases(tree)
            shape = (self.num_classes,)
            self.bias = self.add_weight(shape, classes, name="bias")
            if self.nodes is not None:
                shape = (tree.num_nodes,)
                self.node_bias = self.add_weight(shape, nodes, name="node_bias")
        if self.temperature == "learned":
            least = np.log(_LEAST_TEMPERATURE)
            self.log_temperature = self.add_weight(
                (),
                keras.initializers.Constant(np.log(_START_TEMPERATURE)),
                name="log_temperature",
                autocast=False,
                constraint=lambda x: keras.ops.maximum(x, least),
            )
        self.scores = ClassScores(
            table,
            self.bias,
            tree,
            self.nodes,
            self.node_bias,
            table_is_own=embedding is None,
            is_cosine=self.temperature is not None,
        )
        self.built = True

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        # Copying a model replaces some of its layers.
        if name == "class_embedding" and vars(self).get("scores"):
            self.scores.table = _table_of(value)

    def call(self, inputs, context=None, training=False):
        _check_embedding(self.class_embedding, self.num_classes)
        return super().call(self.scaled(inputs), context, training)

    def _start_of_vectors(self, tree, width):
        if self.kernel_initializer is not None:
            return self.kernel_initializer, "zeros"
        if (
            self.class_embedding is not None
            or tree is None
            or tree.means_width != width
        ):
            return keras.initializers.RandomUniform(seed=self.seed), "zeros"
        known = tree.class_tree
        self._lost_means = known.class_means is None
        if self._lost_means:
            return keras.initializers.Constant(_NO_START), "zeros"
        return map(_constant, differences_of_means(known))

    def _start_of_biases(self, tree):
        if self.class_counts is None:
            return "zeros", "zeros"
        shares = log_shares(tree and tree.class_tree, self.class_counts)
        return map(_constant, shares)

    def _check_lengths(self):
        """Raises an error for initial vectors without a direction."""
        if self.temperature is None or self.kernel_initializer is None:
            return
        nonzero = tf.reduce_any(own_value(self.kernel) != 0, axis=1)
        zeros = np.flatnonzero(~nonzero.numpy())
        require(
            not zeros.size,
            "`kernel_initializer` must give no class a vector of zeros with a "
            "`temperature`.",
            classes=zeros[:3].tolist(),
        )

    def scaled(self, features: tf.Tensor) -> tf.Tensor:
        """Features as scores use them. To scale them twice changes nothing."""
        features = self._with_start(features)
        if self.temperature is None:
            return features
        temperature = self.temperature
        if temperature == "learned":
            temperature = tf.exp(own_value(self.log_temperature))
        vectors = tf.cast(features, "float32")
        # A constant factor of `vectors` would make the LiteRT converter store
        # a scaled copy of a tied table.
        vectors *= (inverse_lengths(vectors) / temperature)[..., None]
        return tf.cast(vectors, features.dtype)

    def _with_start(self, features):
        """Returns the features, after a check that vectors have been set."""
        if not self._lost_means:
            return features
        first = gather_rows(self.kernel, tf.constant([0]))
        check = tf.debugging.Assert(
            tf.reduce_any(tf.not_equal(first, _NO_START)),
            [
                f"The weights of the {type(self).__name__} {self.name!r} must "
                "be set or loaded before it is used. It was made from its "
                "configuration alone, which does not hold the class means that "
                "its vectors start from. To start from other values, pass "
                "`kernel_initializer`."
            ],
        )
        # Training cannot start before this check. In eager mode it has run.
        with tf.control_dependencies([] if check is None else [check]):
            return tf.identity(features)

    def draw(self, examples):
        if not self.samples:
            return super().draw(examples)
        counted = examples.mask
        if examples.lists is not None:
            # A label in a list is drawn less often than it is counted.
            counted = False
        return self.sampling.draw(
            self.scores,
            examples.features,
            examples.labels,
            examples.seed(),
            examples.context,
            learn=examples.training and self.trainable,
            counted=counted,
        )

    def choices(self, features: tf.Tensor, labels: tf.Tensor) -> tuple:
        """Cross-entropies, and whether each label has the best score."""
        logits = self.scores.score_all(features)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        own = tf.gather(logits, labels, batch_dims=1)
        return losses, tf.reduce_max(logits, axis=1) <= own

    def row_probabilities(self, features: tf.Tensor) -> tf.Tensor:
        """Same as `probabilities`, for float32 rows `(rows, width)`."""
        _check_embedding(self.class_embedding, self.num_classes)
        return tf.nn.softmax(self.scores.score_all(self.scaled(features)))

    def exact(self, features: tf.Tensor, labels: tf.Tensor) -> tuple:
        """Losses and ranks of labels among all classes, scored in chunks."""
        return self.scores.exact(features, tf.cast(labels, "int32"))

    def top_k(
        self, features: tf.Tensor, k: int = 5, exclude: tf.Tensor | None = None
    ) -> tuple:
        """Returns the most probable classes that the selector's search finds.

        Args:
            features: Float tensor `(..., width)`, the input of the layer.
            k: Integer. Defaults to `5`.
            exclude: Optional integer tensor `(..., n)`, classes to leave out
                of each result, such as items already seen, padded by -1.
                Probabilities are still among all classes.

        Returns:
            Two tensors `(..., k)`: int32 ids, best first, -1 where fewer were
            found, and float32 probabilities.
        """
        check_positive_int("k", k, maximum=self.num_classes)
        _check_embedding(self.class_embedding, self.num_classes)
        features = tf.convert_to_tensor(features)
        if not self.built:
            self.build(features.shape)
        rows = self.scaled(flat_features(features))

        def best(k):
            ids, scores, total = self.selector.top_k(self.scores, rows, k)
            total = tf.where(ids >= 0, total[:, None], 0.0)
            probabilities = tf.exp(scores - total)
            return unflat(ids, features), unflat(probabilities, features)

        return top_k_without(best, k, exclude, features, self.num_classes)

    def summary(self, print_fn: Callable | None = None) -> None:
        """Prints the number and kind of classes that a training step scores.

        Example:

        >>> kc.CANESoftmax(20_000, name="words").summary()
        words: 20,000 classes
        candidates: 1, by FrequentClasses
        noise classes: 999, shared by a batch, by UniformNoise

        Args:
            print_fn: Optional function that takes a line. Defaults to `print`.
        """
        say = print_fn or print
        say(f"{self.name}: {self.num_classes:,} classes")
        if self.samples:
            for line in self.sampling.summary():
                say(line)
        else:
            say("candidates: all classes; no noise classes are needed")

    def save_own_variables(self, store):
        super().save_own_variables(store)
        save_seed(store, self.seed_generator)

    def load_own_variables(self, store):
        super().load_own_variables(load_seed(store, self.seed_generator))

    def get_config(self):
        # Raise here, before a file that cannot be loaded is written.
        embedding = _check_embedding(self.class_embedding, self.num_classes)
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "class_counts": pack_array(self.class_counts),
            "sampling": serialize(self.sampling),
            "class_embedding": embedding and serialize_part(embedding),
            "use_bias": self.use_bias,
            "kernel_initializer": serialize(self.kernel_initializer),
            "seed": self.seed,
            "temperature": self.temperature,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        if "sampling" not in config:
            # Files of earlier versions have these as arguments of the layer.
            names = {name: name for name in vars(Sampling())}
            names |= {"share_noises": "shared", "noise_groups": "groups"}
            old = {
                names[key]: config.pop(key) for key in set(names) & set(config)
            }
            if type(old.get("shared")) is int:
                old.update(shared="neighbors", groups=old["shared"])
            config["sampling"] = Sampling.from_config(old)
        for name in ("sampling", "class_embedding"):
            part = config.get(name)
            if isinstance(part, dict):
                config[name] = keras.saving.deserialize_keras_object(part)
        config["class_counts"] = unpack_array(config.get("class_counts"))
        return cls(**config)


def _constant(array):
    return lambda shape, dtype: array


def _check_temperature(temperature):
    if temperature is None or isinstance(temperature, str):
        require(
            temperature in (None, "learned"),
            '`temperature` must be None, a positive number or "learned".',
            temperature=temperature,
        )
        return temperature
    return check_positive_number("temperature", temperature)


def _check_embedding(embedding, num_classes):
    """Returns the layer if its rows can be used as class vectors."""
    if embedding is None:
        return None
    require(
        isinstance(embedding, LookupLayer | keras.layers.Embedding),
        "`class_embedding` must be a `keras.layers.Embedding`, an "
        "`ANTEmbedding`, a `CodeEmbedding` or a `FeatureEmbedding`.",
        class_embedding=embedding,
    )
    require(
        getattr(embedding, "tie_weights", True),
        "`class_embedding` must have the same table for input and output.",
        tie_weights=False,
    )
    require(
        embedding.input_dim == num_classes,
        "`class_embedding` must have one row for each class, "
        f"num_classes={num_classes}.",
        input_dim=embedding.input_dim,
    )
    rank = getattr(embedding, "lora_rank", None)
    mode = embedding.quantization_mode
    require(
        rank is None and mode is None,
        "`class_embedding` must be a layer without LoRA and without "
        "quantization.",
        lora_rank=rank,
        quantization_mode=mode,
    )
    return embedding


def _table_of(embedding):
    """The table that `ClassScores` reads: a layer or a variable."""
    if isinstance(embedding, LookupLayer):
        return embedding
    return embedding.embeddings
