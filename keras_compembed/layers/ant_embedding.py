"""Embedding composed from a few anchors by a sparse transform."""

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

# Attributes that hold weights; those of further ones have longer names.
_WEIGHTS = {"anchors": "anchors", "l1": "l1_value", "transform": "transform"}
# Arguments in earlier files.
_OF_ANCHORS = "anchors_initializer", "anchors_regularizer"
_OF_TRANSFORM = (
    "storage mixture transform_initializer transform_regularizer softmax_rows"
).split()


@read_also("ANTEmbedReduce")
@keras.saving.register_keras_serializable(package="keras_compembed")
class ANTEmbedding(LookupLayer):
    """Turns non-negative integers into sparse combinations of anchors.

    Drop-in replacement of `keras.layers.Embedding` by the method Anchor &
    Transform. The table is a product, `E = T A`, of a few anchors A,
    `(num_anchors, output_dim)`, and a transform T, `(input_dim,
    num_anchors)`. Training drives most entries of T to exactly 0; A and the
    non-zeros of T are all there is to store.

    **Training** is plain `fit` with any optimizer, or a loop of your own that
    calls `optimizer.apply`: after each step that moves T comes the proximal
    step for the loss `l1 * sum |T|`. Then `kc.strip` the model, or
    `keras_compembed.export_litert` it; both store rows sparse.

    To learn T for given anchors (appendix B of the paper), build the layer
    and set `layer.anchors.trainable = False` before `compile`.

    **With a sampled softmax**, look up the classes drawn like any ids:
    `logits = hidden @ transpose(layer(classes))`.

    **Special cases** (appendix D of the paper). Vectors for frequent ids only:
    `Frequency` anchors, `transform=Transform(initializer="zeros")`, and
    `kc.strip` before training, so that only anchors are trained. A table of
    low rank: `l1=L1(0, non_negative=False)` and a dense initializer of T.
    Discrete codes: `transform=Transform(num_sets=num_sets)`, rows with
    a single 1 in each set through `assign_transform`, and `kc.strip`.

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
        num_anchors: Integer, at most `input_dim`. Rows of A, of all sets
            together. Defaults to `100`.
        anchors: `"dynamic"` (a random basis), an array of anchors to start
            from or, `(num_anchors,)`, of the ids that they stand for, one of
            `keras_compembed.anchors`, or a list of these, for several sets;
            or a `keras_compembed.WeightSpec` of one of them, with a
            regularizer such as `keras.regularizers.OrthogonalRegularizer()`.
            Objects that are anchors themselves start with a row of zeros and
            a one. Defaults to `"dynamic"`.
        transform: `None` (by the size of T), `"dense"`, `"lazy"`, `"sparse"`,
            or a `keras_compembed.anchors.Transform`, which says more: how T is
            held, begun, regularized, and turned into weights of anchors.
            Defaults to `None`.
        l1: Number of at least 0, the weight of the sum of absolute values of
            T in the loss, or a `keras_compembed.anchors.L1`, which says
            more: whether T may be negative, what thresholds follow, a number
            of non-zeros to aim at. The weight may be set later, as `l1` of
            the layer; `load_weights` sets it to that of the file, as Keras
            does with a learning rate. Defaults to `1e-5`.
        relations: Optional `keras_compembed.anchors.Relations` between ids.
            Entries of T for an id and an anchor that stands for a related id
            are not shrunk, and the `negative_weight` of an `L1` spares
            related ids. Anchors that stand for ids are those of an
            initializer such as `Frequency`.
        combiner, reverse, mask_zero, **kwargs: See `CodeEmbedding`. Weights
            of logits are tied.

    Call arguments, input shape, output shape:
        See `CodeEmbedding`. Logits are `(h A^T) T^T`. `training` matters only
        for a `negative_weight`.

    Attributes:
        anchors: Keras variable, A.
        transform: Keras variable, T as `storage` holds it while it is trained.
        storage: The rows of T, an object made for this layer.
        anchor_ids: Integer array `(num_anchors,)`, the id that each anchor
            stands for, -1 for none.
        segments: Tuple of integers, the sizes of the sets of anchors.

    References:
        - [Liang et al., 2021](https://arxiv.org/abs/2003.08197): Algorithm 1;
          equation 5 (relations)
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

        Alternates orthogonal matching pursuit, which finds the anchors of
        each row, and least squares for the anchors. Ctrl-C keeps the best so
        far.

        Args:
            table, seed: See `CodeEmbedding.from_table`.
            num_anchors: Integer. Defaults to `100`.
            max_nonzeros: Optional integer. Non-zeros in a row of T at most.
                Defaults to `8`, or to `num_anchors` if there are fewer.
            l1: Number, for a T with negative numbers too, which is more
                faithful for as many numbers, or a
                `keras_compembed.anchors.L1`. Defaults to `1e-5`.
            iterations: Integer. Defaults to `10`.
            sample_weight: Optional array `(input_dim,)`, how much each row
                counts, e.g. how often its token occurs, or the root of that.
            verbose: `0` or `1`, whether to show progress.
            total_nonzeros: Optional integer. Non-zeros of T: rows that gain
                most from a further number, times their `sample_weight`, get
                it, up to `max_nonzeros` in each. Defaults to `None`: all get
                `max_nonzeros`.
            **kwargs: Further arguments of the layer, but for `anchors` and an
                activation in the `transform`. With `transform="sparse"`, rows
                have room for `max_nonzeros` numbers.

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
        """The weight of `sum |T|` in the loss. May be set."""
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
        """Float, the part of T that is not 0."""
        return self.nnz / (self.input_dim * self.num_anchors)

    def get_transform(self) -> SparseTransform:
        """The non-zeros of T, a `SparseTransform`.

        With `"sparsemax"` and `"entmax"`, those of the weights that they
        give, so that `E = T A` again; with `"softmax"`, of what it is
        applied to.
        """
        self._require_built("get_transform")
        return self.store.get_transform()

    def assign_transform(self, transform: SparseTransform | ArrayLike) -> None:
        """Sets T, before training or in place of it.

        Args:
            transform: `SparseTransform`, or array `(input_dim, num_anchors)`.

        Raises:
            ValueError: if it has another shape, or more non-zeros in a row
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
