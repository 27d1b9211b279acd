"""Embedding that stores its table as discrete codes."""

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_compembed.codes.computed import get_computed
from keras_compembed.compositions.composition import Composition
from keras_compembed.compositions.composition import is_same_composition
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.layers.lookup_layer import join_arguments
from keras_compembed.layers.options import Combiner
from keras_compembed.layers.options import Reverse
from keras_compembed.layers.options import check_reverse_table
from keras_compembed.learners.additive_quantizer import AdditiveQuantizer
from keras_compembed.learners.code_learner import CodeLearner
from keras_compembed.learners.kd_code_learner import KDCodeLearner
from keras_compembed.learners.task_codes import TaskCodes
from keras_compembed.learners.task_codes import get_task_codes
from keras_compembed.stores.codes import Codes
from keras_compembed.stores.computed_codes import ComputedCodes
from keras_compembed.stores.store import WeightSpec
from keras_compembed.utils.saving import read_also
from keras_compembed.utils.validation import check_code_shape
from keras_compembed.utils.validation import check_table
from keras_compembed.utils.validation import require

_NUM_CODEBOOKS = 32
# Arguments in earlier files.
_OF_CODEBOOKS = [
    f"codebooks_{name}" for name in ("initializer", "regularizer", "constraint")
]


@read_also("CodeEmbedReduce", "ReversibleCodeEmbedding")
@keras.saving.register_keras_serializable(package="keras_compembed")
class CodeEmbedding(LookupLayer):
    """Turns ids into vectors composed of a few shared codewords.

    Drop-in replacement for `keras.layers.Embedding`. Each id has a code of
    `num_codebooks` subcodes from 0 to `codebook_size - 1`. Its vector is
    composed from the codewords of these subcodes, by default their sum:

    `E(id) = sum_m codebooks[m, codes[id, m]]`

    A row takes `num_codebooks * ceil(log2(codebook_size))` bits instead of
    `32 * output_dim`. Codes are packed in memory, in `.keras` files and in
    LiteRT files. Only the codes of the ids in a batch are unpacked.

    Codes usually come from a trained table, with `from_table` or
    `keras_compembed.compress_model`. These codes are fixed, while codebooks
    are trained like any weight. Without `codes`, each id gets a random code.

    `fit` can also learn codes. A float vector of each id (query) then picks
    codewords by a vector of each (key). `kc.strip` drops both afterwards:

    - `codes="softmax"` picks, for each part of a query, the key with the
      largest dot product. Gradients are those of a softmax.
    - `codes="nearest"` picks the nearest key. With composition `"concat"`, the
      keys are the codewords.
    - `codes="follow"` starts from given codes and adapts them to the task, see
      `RecodeEmbeddings`.

    Codes that are computed from ids are not stored:

    - `codes="digits"` splits an id into digits. Composition `"product"` with
      `codebook_size=(q, r)` multiplies rows of the quotient and the remainder.
    - `codes="hashed"` has a random hash function for each codebook. Ids with
      the same code share a vector.

    The table also gives logits: `layer(vectors, reverse=True)`, or
    `vectors @ transpose(layer.embeddings)` in your own layer. Both train the
    codebooks and the composition. Only lookups train the codes.

    With a `combiner`, the layer sums or averages the vectors of each row of
    ids. This is much faster than a pooling layer, unless the composition is
    not linear or `fit` learns the codes.

    Example:

    >>> table = np.random.default_rng(0).normal(size=(1000, 64))
    >>> layer = CodeEmbedding.from_table(
    ...     table, num_codebooks=8, codebook_size=16, verbose=0
    ... )
    >>> model = keras.Sequential([keras.Input((None,), dtype="int32"), layer])
    >>> model.predict(np.array([[4, 20, 7]]), verbose=0).shape
    (1, 3, 64)
    >>> pooled = CodeEmbedding(1000, 64, num_codebooks=8, combiner="mean")
    >>> pooled(np.array([[4, 20, 7], [1, 1, 0]])).shape
    TensorShape([2, 64])

    Args:
        input_dim: Integer. Number of ids, i.e. largest id + 1.
        output_dim: Integer. Width of the vectors.
        num_codebooks: Optional integer. Subcodes per id (M). Defaults to
            `None`: the number of sizes in `codebook_size`, or `32`.
        codebook_size: Integer from 2 to 65536. Codewords per codebook (K).
            Powers of two waste no bits. Computed codes also take larger sizes,
            and a tuple with the size of each codebook. Defaults to `16`.
        composition: `"sum"`, `"product"` (number by number), `"concat"`,
            `"linear"` (the sum times a matrix), `"lstm"` (the sum of LSTM
            outputs, about 20 times slower), a tuple of a name and the width of
            codewords such as `("linear", 16)`, or a
            `keras_compembed.compositions.Composition`. Defaults to `"sum"`.
        codes: Optional integer array `(input_dim, num_codebooks)`; or how codes
            are computed: `"digits"`, `"hashed"` or a tuple with a seed such as
            `("hashed", 1)`; or how `fit` learns codes: `"softmax"`,
            `"nearest"`, `"follow"` or an object such as
            `keras_compembed.learners.SoftmaxCodes(...)`. Defaults to `None`:
            random codes.
        codebooks: Initializer, `keras_compembed.WeightSpec` or initial array
            of the codebooks. The shape is `(num_codebooks, codebook_size,
            code_dim)`, or `(codebook_size, output_dim)` for composition
            `"concat"`. For computed codes, it is `(sum of sizes, code_dim)`,
            or `codebooks` is a layer that holds the last codebook, such as
            `QuantizedEmbedding(r, output_dim, bits=2, learn_rows=True)`.
            With `"product"`, all codebooks but the last start as the signs of
            the initializer's numbers. Defaults to `"uniform"`.
        combiner: `None`, `"mean"`, `"sum"`, `"sqrtn"` or a
            `keras_compembed.Combiner`. Defaults to `None`: not combined.
        reverse: Optional `keras_compembed.Reverse`, options of `reverse`
            calls. A second table has fixed random codes. Defaults to `None`.
        mask_zero: Boolean. Whether id 0 is padding to mask, as in
            `keras.layers.Embedding`. A `combiner` skips it. Defaults to
            `False`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Attributes:
        learn_codes: The object that learns codes, or None for fixed codes.
        packed_codes: uint8 weight `(input_dim, bytes)`, if codes are stored.
        codebooks: Float weight. Without the last codebook if a layer holds it.
        composition: The layer's own `Composition`.

    Call arguments:
        inputs: Integer tensor of ids from 0 to `input_dim - 1`, possibly
            ragged or sparse. On CPU and in LiteRT, other ids raise an error,
            including -1. XLA and GPUs clamp them or return zeros. A `combiner`
            skips the missing entries of sparse tensors. It does not combine
            or mask the vectors of ids of rank 1. With `reverse`, a float
            tensor of vectors.
        weights: Optional float tensor, only with a `combiner`: a weight for
            each id, or for each row (the first axis). With row weights,
            `"mean"` and `"sqrtn"` return plain sums, as in keras-rs. For ids
            of rank 1, only `"sum"` uses weights.
        mask: Optional boolean tensor like `inputs`, only with a `combiner`:
            false for ids to skip.
        reverse: Boolean. Whether to multiply vectors by the transposed table,
            which gives a logit for each id. Defaults to `False`.
        training: Boolean. Matters only while codes are learned. Layers with
            `trainable=False` learn no codes.

    Input shape:
        Integer tensor of any shape, usually `(batch_size, input_length)`;
        with a `combiner`, of rank 2 or 1; with `reverse`, float tensor
        `(..., output_dim)`.

    Output shape:
        The input's shape followed by `output_dim`; with a `combiner`,
        `(batch_size, output_dim)`; with `reverse`, `(..., input_dim)`. Vectors
        have the compute dtype. Logits have the dtype of a product with
        `embeddings`. A reverse call needs memory for the whole table if it has
        more than `output_dim` vectors, if the composition is not linear, or
        while codes are learned.

    Raises:
        ValueError: If `codes` or `codebooks` are arrays of the wrong shape, or
            `"concat"` has more codebooks than `output_dim`, or the product of
            the sizes is below `input_dim` for `"digits"`, or `codebooks` is a
            layer of other sizes.

    References:
        - [Shu & Nakayama, 2018](https://arxiv.org/abs/1711.01068), equation 1
        - [Chen, Min & Sun, 2018](https://arxiv.org/abs/1806.09464)
        - [Chen, Li & Sun, 2020](https://arxiv.org/abs/1908.09756)
        - [Shi et al., 2020](https://arxiv.org/abs/1909.02107), `"digits"`
        - [Svenstrup et al., 2017](https://arxiv.org/abs/1709.03933), `"hashed"`
        - [Hochreiter & Schmidhuber, 1997](
          https://doi.org/10.1162/neco.1997.9.8.1735), `"lstm"`
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        num_codebooks: int | None = None,
        codebook_size: int | tuple = 16,
        composition: str | tuple | Composition = "sum",
        codes: ArrayLike | str | tuple | TaskCodes | None = None,
        codebooks: object = "uniform",
        combiner: str | Combiner | None = None,
        reverse: Reverse | None = None,
        mask_zero: bool = False,
        **kwargs: object,
    ):
        super().__init__(None, combiner, reverse, mask_zero, **kwargs)
        if num_codebooks is None:
            is_tuple = isinstance(codebook_size, (tuple, list))
            num_codebooks = len(codebook_size) if is_tuple else _NUM_CODEBOOKS
        sizes = input_dim, output_dim, num_codebooks, codebook_size
        dtype = self.variable_dtype
        kind = Codes if get_computed(codes) is None else ComputedCodes
        store = kind(*sizes, composition, codes, codebooks, dtype)
        self._set_store(store, CodeEmbedding)
        if store.starts_given:
            # Build outside of graphs, where weights cannot start from arrays.
            self.build()

    @classmethod
    def from_table(
        cls,
        table: ArrayLike,
        num_codebooks: int | None = None,
        codebook_size: int = 16,
        composition: str | tuple | Composition | None = None,
        learner: CodeLearner | None = None,
        sample_weight: ArrayLike | None = None,
        seed: int | None = None,
        verbose: int = 1,
        reverse_table: ArrayLike | None = None,
        **kwargs: object,
    ) -> "CodeEmbedding":
        """Learns codes of a trained table, and returns a built layer.

        Args:
            table: Array of shape `(input_dim, output_dim)`.
            num_codebooks, codebook_size: See the layer.
            composition: Optional composition, see the layer. Defaults to
                `None`: the learner's, or `"sum"`.
            learner: Optional `CodeLearner` with the same `num_codebooks`,
                `codebook_size` and `composition`. Defaults to an
                `AdditiveQuantizer` for `"sum"` and a `KDCodeLearner` for
                other compositions.
            sample_weight: Optional array `(input_dim,)`, the weight of each
                row in the error, e.g. its number of occurrences.
            seed: Optional integer, seed of the default learner.
            verbose: `0` or `1`, whether the default learner shows progress.
            reverse_table: Optional array with the shape of `table`, for logits
                with a second table. Its codes are learned in the same way.
                Defaults to `None`: the same table.
            **kwargs: Further arguments of the layer. `codes="follow"` starts
                from the learned codes.

        Raises:
            ValueError: If `learner` does not fit the other arguments.
        """
        table = check_table(table, shards=True)
        check_reverse_table(table, reverse_table, kwargs)
        if num_codebooks is None:
            num_codebooks = _NUM_CODEBOOKS
        shape = check_code_shape(num_codebooks, codebook_size)
        given = kwargs.pop("codes", None)
        rule = "`codes` must be None or 'follow' in `from_table`."
        require(get_computed(given) is None, rule, codes=given)
        learn_codes, codes = get_task_codes(given)
        require(
            learn_codes.starts_from_codes if learn_codes else codes is None,
            rule,
            codes=type(learn_codes or codes).__name__,
        )
        require(
            not hasattr(kwargs.get("codebooks"), "__array__"),
            "`codebooks` must not be an array in `from_table`.",
            codebooks=type(kwargs.get("codebooks")).__name__,
        )
        learning = composition, learner, sample_weight, seed, verbose
        options = {"seed": seed, "verbose": verbose}
        learner = get_learner(learner, composition, *shape, **options)
        if learn_codes is not None:
            learn_codes.check_teacher(*table.shape)
        kwargs["composition"] = learner.composition
        # Raise errors of the layer before codes are learned.
        codes = learn_codes and learn_codes.without_teacher()
        arguments = {**kwargs, "codes": codes, "name": "arguments"}
        cls(1, table.shape[1], *shape, **arguments)
        learner.train(table, sample_weight=sample_weight)
        if learn_codes is not None:
            learn_codes.first_codes = learner.codes
        codes = learn_codes or learner.codes
        layer = cls(*table.shape, *shape, codes=codes, **kwargs)
        layer.codebooks.assign(learner.codebooks)
        if isinstance(learner.composition, keras.layers.Layer):
            layer.composition.set_weights(learner.composition.get_weights())
        if learn_codes is not None:
            layer.learn_codes.restart(table)
        if reverse_table is not None:
            learned = CodeEmbedding.from_table(
                reverse_table, *shape, *learning, dtype=layer.dtype_policy
            )
            layer.reverse_embedding.set_weights(learned.get_weights())
        return layer

    @property
    def learn_codes(self):
        return self.store.learn_codes

    @property
    def codes(self) -> np.ndarray:
        """Codes as an unsigned array `(input_dim, num_codebooks)`.

        While codes are learned, the codes that `kc.strip` would fix.
        """
        self._require_built("codes")
        return self.store.codes

    def recode(self) -> int:
        """Gives each id the code nearest its latent vector.

        Only for layers with `codes="follow"`, see `RecodeEmbeddings`.

        Returns:
            Integer, the number of ids with a changed code.
        """
        require(
            self.store.follows,
            "`recode` must be called on a layer with codes='follow'.",
            layer=self.name,
            learn_codes=self.learn_codes,
        )
        self._require_built("recode")
        return self.learn_codes.recode()

    def reset_codebooks(self) -> None:
        """Initializes codebooks and composition again, and keeps codes.

        Use it to train them with a task from scratch, as Chen, Min & Sun do.
        Latent vectors, and queries with codewords as keys, are updated.
        """
        self._require_built("reset_codebooks")
        for each in self._list_tables():
            each.store.reset_codebooks()

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        # Arguments in earlier files.
        if "learn_codes" in config:
            config["codes"] = config.pop("learn_codes")
        join_arguments(config, "codebooks", WeightSpec, _OF_CODEBOOKS)
        return super().from_config(config)


def get_learner(learner, composition, num_codebooks, codebook_size, **kwargs):
    shape = num_codebooks, codebook_size
    if learner is None:
        if composition in (None, "sum"):
            return AdditiveQuantizer(*shape, **kwargs)
        return KDCodeLearner(*shape, composition=composition, **kwargs)
    require(
        isinstance(learner, CodeLearner),
        "`learner` must be a `CodeLearner` such as "
        f"`keras_compembed.learners.AdditiveQuantizer{shape}`.",
        learner=learner,
    )
    got = learner.num_codebooks, learner.codebook_size
    require(
        got == shape,
        "`learner` must have the layer's `num_codebooks` and "
        f"`codebook_size`, {shape}.",
        shape=got,
    )
    seed = kwargs.get("seed")
    require(
        seed is None or getattr(learner, "seed", seed) is not None,
        "`seed` must be None with a `learner`. Pass it to the learner: "
        f"`{type(learner).__name__}(..., seed={seed})`.",
        seed=seed,
    )
    require(
        composition is None
        or is_same_composition(composition, learner.composition),
        "`composition` must be that of the `learner`. For another one, pass "
        "`codes=learner.codes` to the layer itself.",
        composition=composition,
    )
    return learner
