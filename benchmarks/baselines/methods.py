"""Methods of `keras_compembed` for the embeddings of this folder."""

from benchmarks.baselines.deep_hash_embedding import DeepHashEmbedding
from benchmarks.baselines.hash_embedding import HashEmbedding
from benchmarks.baselines.quotient_remainder_embedding import (
    QuotientRemainderEmbedding,
)
from benchmarks.baselines.tensor_train_embedding import TensorTrainEmbedding
from benchmarks.baselines.word2ket_embedding import Word2KetEmbedding
from keras_compembed.layers.lookup_layer import LookupLayer
from keras_compembed.methods.method import Fit
from keras_compembed.methods.method import Method


class BaselineMethod(Method):
    """Stores tables by an `EmbeddingBaseline` with some options."""

    rows = LookupLayer
    store = None

    def __init__(self, name, **options):
        self._name = name
        self.options = options

    @property
    def name(self):
        return self._name

    def start(self, seed=None, verbose=0):
        options = {**self.options, "seed": seed}

        def from_table(table, sample_weight=None, **kwargs):
            return self.store.from_table(
                table, sample_weight=sample_weight, **options, **kwargs
            )

        return Fit(options, from_table)

    def litert_bytes(self, input_dim, output_dim, quantize=None):
        store = self.store(input_dim, output_dim, **self.options)
        return store.litert_bytes(quantize)

    def new_layer(self, fit, input_dim, output_dim, **kwargs):
        store = self.store(input_dim, output_dim, **fit.options)
        return store.in_layer(**kwargs)


class Hashed(BaselineMethod):
    """A few shared rows for each id, chosen by hash functions."""

    store = HashEmbedding

    def __init__(self, num_rows, num_hashes=2, num_importances=None):
        name = f"hashed {num_rows} rows x {num_hashes}"
        if num_importances is not None:
            name += f", {num_importances} importances"
        super().__init__(
            name,
            num_rows=num_rows,
            num_hashes=num_hashes,
            num_importances=num_importances,
        )

    def reason_against(self, input_dim, output_dim):
        if self.options["num_rows"] > input_dim:
            return "it has fewer rows than shared ones"
        return None


class QuotientRemainder(BaselineMethod):
    """A row for the quotient of an id, joined with one for its remainder."""

    store = QuotientRemainderEmbedding

    def __init__(self, num_remainders, operation="multiply"):
        super().__init__(
            f"quotient and remainder {num_remainders} {operation}",
            num_remainders=num_remainders,
            operation=operation,
        )

    def reason_against(self, input_dim, output_dim):
        if self.options["num_remainders"] > input_dim:
            return "it has fewer rows than remainders"
        return None


class TensorTrain(BaselineMethod):
    """A product of small matrices, one for each digit of an id."""

    store = TensorTrainEmbedding

    def __init__(self, rank=16):
        super().__init__(f"tensor train rank {rank}", rank=rank)


class Word2Ket(BaselineMethod):
    """Sums of products of small vectors, two for each row."""

    store = Word2KetEmbedding

    def __init__(self, rank):
        super().__init__(f"word2ketXS rank {rank}", order=2, rank=rank)


class DeepHash(BaselineMethod):
    """A small network over hash codes."""

    store = DeepHashEmbedding

    def __init__(self, units):
        super().__init__(
            f"deep hashing {units} units", num_hashes=128, hidden_units=(units,)
        )
