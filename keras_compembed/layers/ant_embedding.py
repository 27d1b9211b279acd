"""Embedding composed of a few anchors by a sparse transform."""

import keras
from numpy.typing import ArrayLike

from keras_compembed.anchors.l1 import L1
from keras_compembed.anchors.l1 import get_l1
from keras_compembed.anchors.relations import Relations
from keras_compembed.anchors.sparse_coding import learn_dictionary
from keras_compembed.anchors.sparse_rows import SparseRows
from keras_compembed.anchors.sparse_transform import SparseTransform
from keras_compembed.anchors.transform import Transform
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.options import Combiner
from keras_compembed.layers.options import Reverse
from keras_compembed.stores.anchors import Anchors
from keras_compembed.stores.store import WeightSpec
from keras_compembed.utils.saving import check_shapes
from keras_compembed.utils.saving import get_settings
from keras_compembed.utils.saving import read_also
from keras_compembed.utils.validation import check_positive_int
from keras_compembed.utils.validation import check_positive_number
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require

# Attributes of weights. Weights of second tables have longer names.
_WEIGHTS = {"anchors": "anchors", "l1": "l1_value", "transform": "transform"}
# Arguments in earlier files.
_OF_ANCHORS = "anchors_initializer", "anchors_regularizer"
_OF_TRANSFORM = (
    "storage mixture transform_initializer transform_regularizer softmax_rows"
).split()


@read_also("ANTEmbedReduce")
@keras.saving.register_keras_serializable(package="keras_compembed")
class ANTEmbedding(LookupLayer):
    """Turns ids into sparse combinations of a few anchor vectors.

    Drop-in replacement for `keras.layers.Embedding`, by the method Anchor &
    Transform. The table is a product, `E = T A`, of a few anchors A
    `(num_anchors, output_dim)` and a transform T `(input_dim, num_anchors)`.
    Training drives most entries of T to exactly 0. Only A and the non-zeros of
    T are stored.

    **Training** is plain `fit` with any optimizer except Ftrl and Muon, or
    your own loop with `optimizer.apply`. A proximal step for the loss
    `l1 * sum |T|` follows each optimizer step. Then use `kc.strip` or
    `keras_compembed.export_litert`; both store rows sparsely.

    To learn T for given anchors (appendix B of the paper), build the layer and
    set `layer.anchors.trainable = False` before `compile`.

    **With a sampled softmax**, look up the sampled classes like any ids:
    `logits = hidden @ transpose(layer(classes))`.

    **Special cases** (appendix D of the paper):

    - Vectors for frequent ids only: `Frequency` anchors,
      `transform=Transform(initializer="zeros")`, and `kc.strip` before
      training, so that only anchors are trained.
    - A low-rank table: `l1=L1(0, non_negative=False)` and a dense initializer
      of T.
    - Discrete codes: `transform=Transform(num_sets=num_sets)`, rows with a
      single 1 in each set through `assign_transform`, and `kc.strip`.

    Example:

    >>> layer = ANTEmbedding(1000, 64, num_anchors=20, l1=1e-3)
    >>> model = keras.Sequential(
    ...     [
    ...         keras.Input((None,), dtype="int32"),
    ...         layer,
    ...         keras.layers.GlobalAveragePooling1D(),
    ...         keras.layers.Dense(1),
    ...     ]
    ... )
    >>> model.compile("adam", "mse")
    >>> ids = np.arange(1000).reshape(100, 10)
    >>> _ = model.fit(ids, ids[:, 0] % 3, epochs=5, verbose=0)
    >>> 0 < layer.density < 0.5
    True

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        num_anchors: Integer, at most `input_dim`. Rows of A, over all sets.
            Defaults to `100`.
        anchors: `"dynamic"` (a random basis), an array of initial anchors, an
            array `(num_anchors,)` of the ids that anchors represent, an object
            such as `keras_compembed.anchors.Frequency`, or a list of these,
            one for each set. For a regularizer of anchors, pass a
            `keras_compembed.WeightSpec`. An id that is an anchor starts with a
            single 1 in its row of T. Defaults to `"dynamic"`.
        transform: `None` (by the size of T), `"dense"`, `"lazy"`, `"sparse"`,
            or a `keras_compembed.anchors.Transform` with further options: the
            storage, initial values, regularizer and activation of T. Defaults
            to `None`.
        l1: Number, at least 0, the weight of `sum |T|` in the loss, or a
            `keras_compembed.anchors.L1` with further options: the sign of T,
            the threshold, a target number of non-zeros. Set the `l1` attribute
            to change it later. `load_weights` restores it. Defaults to `1e-5`.
        relations: Optional `keras_compembed.anchors.Relations` between ids.
            Entries of T for an id and the anchor of a related id are not
            shrunk, and the `negative_weight` of an `L1` skips related ids.
            This needs anchors that represent ids, e.g. `Frequency`.
        combiner, reverse, mask_zero, **kwargs: See `CodeEmbedding`. Logits
            always use the same table.

    Call arguments, input shape, output shape:
        See `CodeEmbedding`. Logits are `(h A^T) T^T`. `training` matters only
        for a `negative_weight`.

    Attributes:
        anchors: Keras variable, A.
        transform: Keras variable, T as `storage` holds it in training.
        storage: The storage of T, an object made for this layer.
        anchor_ids: Integer array `(num_anchors,)`, the id that each anchor
            represents, -1 for none.
        segments: Tuple of integers, the sizes of the sets of anchors.

    Raises:
        ValueError: If an argument is invalid, or options conflict.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        num_anchors: int = 100,
        anchors: object = "dynamic",
        transform: str | Transform | None = None,
        l1: float | L1 = 1e-5,
        relations: Relations | None = None,
        combiner: str | Combiner | None = None,
        reverse: Reverse | None = None,
        mask_zero: bool = False,
        **kwargs: object,
    ):
        super().__init__(None, combiner, reverse, mask_zero, **kwargs)
        shape = input_dim, output_dim, num_anchors
        store = Anchors(*shape, anchors, transform, l1, relations, mask_zero)
        store.storage.compute_dtype = self.compute_dtype
        self._set_store(store, ANTEmbedding)

    @classmethod
    def from_table(
        cls,
        table: ArrayLike,
        num_anchors: int = 100,
        max_nonzeros: int | None = None,
        l1: float | L1 = 1e-5,
        iterations: int = 10,
        sample_weight: ArrayLike | None = None,
        seed: int | None = None,
        verbose: int = 1,
        total_nonzeros: int | None = None,
        **kwargs: object,
    ) -> "ANTEmbedding":
        """Fits anchors and transform to a table, and returns a built layer.

        Alternates orthogonal matching pursuit for the rows of T with least
        squares for the anchors. Ctrl-C stops and keeps the best result so far.

        Args:
            table, seed: See `CodeEmbedding.from_table`.
            num_anchors: Integer. Defaults to `100`.
            max_nonzeros: Optional integer, the largest number of non-zeros in
                a row of T. Defaults to `8`, or `num_anchors` if that is less.
            l1: Number or `keras_compembed.anchors.L1`, the loss in later
                training. With a number, T may have negative entries, which
                makes it more accurate. Defaults to `1e-5`.
            iterations: Integer. Defaults to `10`.
            sample_weight: Optional array `(input_dim,)`, the weight of each
                row in the error, e.g. its number of occurrences, or the root
                of that number.
            verbose: `0` or `1`, whether to show progress.
            total_nonzeros: Optional integer, the number of non-zeros of T.
                They go to the rows with the largest decrease of the weighted
                error, up to `max_nonzeros` each. Defaults to `None`: all rows
                get `max_nonzeros`.
            **kwargs: Further arguments of the layer, without an initializer of
                `anchors` and an activation of the `transform`. With
                `transform="sparse"`, rows have room for `max_nonzeros` entries.

        Raises:
            ValueError: If `table` is not finite, or an argument is invalid.

        References:
            - [Liang et al., 2021](https://arxiv.org/abs/2003.08197), appendix
              B
        """
        table = check_table(table, shards=True)
        l1 = get_l1(l1, non_negative=False)
        check_positive_int("num_anchors", num_anchors)
        if max_nonzeros is None:
            max_nonzeros = min(8, num_anchors)
        transform = get_settings(Transform, kwargs.pop("transform", None))
        if transform.storage == "sparse":
            transform = transform.changed(storage=SparseRows(max_nonzeros))
        kwargs |= {"transform": transform, "l1": l1}
        layer = cls(*table.shape, num_anchors, **kwargs)
        require(
            layer.activation is None,
            "`mixture` must have no activation in `from_table`.",
            activation=layer.activation,
        )
        anchors = kwargs.get("anchors")
        require(
            getattr(anchors, "initializer", anchors) is None,
            "`anchors` must have no initializer in `from_table`.",
            anchors=anchors,
        )
        room = getattr(layer.storage, "max_nonzeros", num_anchors)
        check_positive_int("max_nonzeros", max_nonzeros, maximum=room)
        layer.build()
        sizes = num_anchors, max_nonzeros, l1.non_negative, iterations
        options = {"sample_weight": sample_weight, "seed": seed}
        options |= {"verbose": verbose, "total_nonzeros": total_nonzeros}
        transform, anchors = learn_dictionary(table, *sizes, **options)
        layer.anchors.assign(anchors)
        layer.assign_transform(transform)
        return layer

    def _attribute_of_weight(self, name):
        return _WEIGHTS.get(name, f"_{name}_of_rows")

    def _dtype_of_products(self, vectors):
        return self.compute_dtype

    @property
    def l1(self) -> float:
        """The weight of `sum |T|` in the loss. You may set it."""
        return float(self.l1_value.numpy()) if self.built else self.store.l1.l1

    @l1.setter
    def l1(self, value):
        self.store.l1.l1 = check_positive_number("l1", value, zero=True)
        if self.built:
            self.l1_value.assign(value)

    @property
    def nnz(self) -> int:
        """Integer, the non-zeros of T."""
        return self.get_transform().nnz

    @property
    def density(self) -> float:
        """Float, the share of non-zeros of T."""
        return self.nnz / (self.input_dim * self.num_anchors)

    def get_transform(self) -> SparseTransform:
        """Returns the non-zeros of T, a `SparseTransform`.

        With `"sparsemax"` and `"entmax"`, T is the result of the activation,
        so that `E = T A`. With `"softmax"`, T is the input of the activation.
        """
        self._require_built("get_transform")
        return self.store.get_transform()

    def assign_transform(self, transform: SparseTransform | ArrayLike) -> None:
        """Sets T, before training or instead of training.

        Args:
            transform: `SparseTransform`, or array `(input_dim, num_anchors)`.

        Raises:
            ValueError: If it has another shape, or more non-zeros in a row
                than `storage` has room for.
        """
        self._require_built("assign_transform")
        self.store.assign_transform(transform)

    def save_own_variables(self, store):
        self.store.save(store)

    def load_own_variables(self, store):
        check_shapes(self, store, {"anchors": self.anchors})
        self.store.restore(store)

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        if "anchors_initializer" in config:
            parts = [config.pop(name, None) for name in _OF_TRANSFORM]
            config["transform"] = Transform(*parts)
            parts = [config.pop(name, None) for name in _OF_ANCHORS]
            config["anchors"] = WeightSpec(*parts)
            l1 = config["l1"] = get_l1(config["l1"])
            l1.negative_weight = config.pop("negative_weight", 0.0)
        return super().from_config(config)
