"""Ways to store a table in few bytes, each in many sizes."""

import dataclasses
import functools
from collections.abc import Callable

import keras

import keras_compembed as kc
from benchmarks.baselines import methods as baselines
from keras_compembed import methods
from keras_compembed.methods.method import Fit
from keras_compembed.methods.method import Method
from keras_compembed.utils.files import count_litert_bytes

QUANTIZE = "int8"
# How often re-learned codes the task are chosen anew while they are tuned.
RECODINGS = 40


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Methods that differ in one integer, and take more bytes with a larger."""

    make: Callable
    largest: int = 1 << 13
    least: int = 1

    def fit(self, shape, limit):
        """The largest that fits, or None."""
        size, step = 0, 1 << 13
        while step:
            wanted = size + step
            if wanted <= self.largest and self.fits(wanted, shape, limit):
                size = wanted
            else:
                step //= 2
        return self.make(size) if size >= self.least else None

    def fits(self, size, shape, limit):
        method = self.make(size)
        if method.reason_against(*shape) is not None:
            return False
        return method.litert_bytes(*shape, QUANTIZE) <= limit


class ComputedCodes(Method):
    """Codebooks alone, of codes that are computed from ids.

    The last codebook may have its own method.
    """

    rows = kc.CodeEmbedding

    def __init__(self, codes, sizes, composition, last=None):
        self.sizes, self.last = sizes, last
        self.options = {
            "codes": codes,
            "codebook_size": sizes,
            "composition": composition,
        }

    @property
    def name(self):
        sizes = " + ".join(map(str, self.sizes))
        options = self.options
        name = f"{options['codes']} {sizes} {options['composition']}"
        return name if self.last is None else f"{name} {self.last.name}"

    def start(self, seed=None, verbose=0):
        codes = self.options["codes"]
        codes = (codes, seed) if codes == "hashed" else codes
        return Fit({**self.options, "codes": codes}, None)

    def new_layer(self, fit, input_dim, output_dim, **kwargs):
        if self.last is not None:
            shape = self.sizes[-1], output_dim
            last = self.last.new_layer(self.last.start(), *shape)
            kwargs["codebooks"] = last
        return super().new_layer(fit, input_dim, output_dim, **kwargs)

    def litert_bytes(self, input_dim, output_dim, quantize=None):
        sizes, last = self.sizes, 0
        if self.last is not None:
            last = self.last.litert_bytes(sizes[-1], output_dim, quantize)
            sizes = sizes[:-1]
        return last + sum(
            count_litert_bytes(size * output_dim, quantize) for size in sizes
        )


class Way:
    """A way to store tables, as a model of it is made and trained."""

    is_of_table = True

    def __init__(self, sizes):
        self.sizes = sizes

    def largest(self, shape, counts, limit):
        """The first of `sizes` that has one that fits, or None."""
        found = (x.fit(shape, limit) for x in self.sizes(shape, counts))
        return next((method for method in found if method is not None), None)

    def model(self, task, chosen, table_model, seed):
        """A model with tables stored as chosen, by their names."""
        raise NotImplementedError

    def callbacks(self, task, chosen, steps):
        """Callbacks for so many steps of training."""
        return []

    def fit(self, task, chosen, model, seed):
        """A function that trains and returns another model, or None."""
        return None


class OfTable(Way):
    """Made of a trained table, and tuned."""

    def model(self, task, chosen, table_model, seed):
        how = self.weighted(task, chosen)
        return kc.compress_model(table_model, how, seed=seed, verbose=0)

    def weighted(self, task, chosen):
        return {
            name: method.for_table((1 + task.counts[name]) ** 0.5)
            for name, method in chosen.items()
        }


class TableFirst(OfTable):
    """Trained in one call, with a table for half of the epochs."""

    is_of_table = False

    def model(self, task, chosen, table_model, seed):
        keras.utils.set_random_seed(seed)
        return task.table_model()

    def fit(self, task, chosen, model, seed):
        how = self.weighted(task, chosen)
        return functools.partial(
            kc.compression.fit_compressed, model, how, seed=seed
        )


class Following(OfTable):
    """Codes that follow the task while codebooks are tuned."""

    def model(self, task, chosen, table_model, seed):
        following = {
            name: kc.methods.Codes(
                method.num_codebooks,
                method.codebook_size,
                # How often is for the callback to say.
                recode_every=1,
            )
            for name, method in chosen.items()
        }
        return super().model(task, following, table_model, seed)

    def callbacks(self, task, chosen, steps):
        every = max(1, steps // RECODINGS)
        return [kc.compression.RecodeEmbeddings(every)]


def copy_of(model):
    """A copy with the same weights."""
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    return copy


class Rounded(Way):
    """Fixed rows of LiteRT Quantizer; the rest of the model is tuned."""

    def model(self, task, chosen, table_model, seed):
        copy = copy_of(table_model)
        for name, method in chosen.items():
            layer = copy.get_layer(name)
            layer.embeddings.assign(method.rows(layer.embeddings.numpy()))
            layer.trainable = False
        return copy


class WhileTuned(Way):
    """The smallest numbers of a table become 0 while it is tuned."""

    def model(self, task, chosen, table_model, seed):
        return copy_of(table_model)

    def callbacks(self, task, chosen, steps):
        return [
            kc.compression.MagnitudePruning(
                method.sparsity,
                end_step=max(2, steps * 2 // 3),
                frequency=max(1, steps // 50),
                variables=[name],
            )
            for name, method in chosen.items()
        ]


class FromScratch(Way):
    """Trained from scratch."""

    is_of_table = False

    def __init__(self, sizes, **options):
        super().__init__(sizes)
        self.options = options

    def model(self, task, chosen, table_model, seed):
        layers = {}
        for place, (name, method) in enumerate(chosen.items()):
            fit = method.start(seed + place)
            fit = dataclasses.replace(fit, options=fit.options | self.options)
            layers[name] = method.new_layer(
                fit, *task.tables[name], mask_zero=task.mask_zero, name=name
            )
        return task.build(layers)


def quantized(bits):
    def sizes(shape, counts):
        return [
            Sizes(lambda _: methods.Quantized(bits, learn_rows=True), 1),
            Sizes(
                lambda rank: methods.Quantized(
                    bits, rank=rank, learn_rows=True
                ),
                shape[1],
            ),
        ]

    return sizes


def litert_quantizer(shape, counts, bits, block_size=None):
    # Part of an extra, which Windows does not have.
    from benchmarks.baselines.litert_quantizer import LiteRTQuantizer

    made = LiteRTQuantizer(bits, block_size)
    return [Sizes(lambda _: made, 1)]


def codes(composition=None):
    def sizes(shape, counts):
        return [Sizes(lambda number: methods.Codes(number, 16, composition))]

    return sizes


def large_codes(shape, counts):
    # A single codebook is worse than several that are smaller.
    return [
        Sizes(lambda number, k=k: methods.Codes(number, k), least=least)
        for k, least in ((256, 4), (128, 3), (64, 2), (32, 1))
    ]


def low_rank_codes(shape, counts):
    rank = max(1, shape[1] // 4)
    return [Sizes(lambda number: methods.Codes(number, 16, rank=rank))]


def anchors(shape, counts):
    # The more anchors the better, down to some eight tenths of a number a row.
    return [
        Sizes(lambda tenths, n=n: methods.Anchors(n, tenths / 10), 160, least=8)
        for n in (256, 192, 128, 100, 64, 50, 25)
    ]


def vocabulary(bits=None):
    rows = bits and methods.Quantized(bits, learn_rows=True)

    def sizes(shape, counts):
        def make(number):
            return methods.Tiered(number, rows, scores=counts)

        return [Sizes(make, shape[0] - 1)]

    return sizes


def tiers(shape, counts):
    """Rows of part of the ids, and the longest codes of the others."""
    return [
        Sizes(
            lambda number, bits=bits, m=m: methods.Tiered(
                number,
                methods.Quantized(bits, learn_rows=True),
                methods.Codes(m, 16),
                scores=counts,
            ),
            shape[0] - 1,
            least=round(share * shape[0]),
        )
        for bits, share in ((4, 0.2), (2, 0.12), (2, 0.05))
        for m in (64, 48, 40, 32, 24, 20, 16, 12, 10, 8, 6, 5, 4, 3, 2, 1)
    ]


def pruned(shape, counts):
    # Up to half of all numbers.
    return [Sizes(lambda size: methods.Pruned(1 - size / (1 << 14)))]


def hashed(shape, counts):
    def shared(number):
        return baselines.Hashed(number, num_importances=number)

    return [Sizes(baselines.Hashed, shape[0]), Sizes(shared, shape[0])]


def quotient_remainder(operation):
    def sizes(shape, counts):
        # The fewest rows first: as many quotients as remainders.
        fewest = int(shape[0] ** 0.5)
        return [
            Sizes(
                lambda size: baselines.QuotientRemainder(
                    fewest + size - 1, operation
                )
            )
        ]

    return sizes


def digits(last=None):
    def sizes(shape, counts):
        # As `quotient_remainder`.
        fewest = int(shape[0] ** 0.5)

        def make(size):
            remainders = fewest + size - 1
            sizes = max(2, -(-shape[0] // remainders)), remainders
            return ComputedCodes("digits", sizes, "product", last)

        return [Sizes(make, largest=shape[0])]

    return sizes


def hashed_codes(shape, counts):
    def make(size):
        return ComputedCodes("hashed", (size, size), "sum")

    return [Sizes(make, shape[0], least=2)]


def tensor_train(shape, counts):
    return [Sizes(baselines.TensorTrain, 512)]


WAYS = {
    "codes of 16": OfTable(codes()),
    "int2": OfTable(quantized(2)),
    "re-learned codes": Following(codes()),
    "int2 vocabulary": OfTable(vocabulary(2)),
    "tiers": OfTable(tiers),
    "anchors": OfTable(anchors),
    "large codes": OfTable(large_codes),
    "low-rank codes": OfTable(low_rank_codes),
    "int4": OfTable(quantized(4)),
    "quotient x remainder": FromScratch(quotient_remainder("multiply")),
    "vocabulary": OfTable(vocabulary()),
    "pruned": WhileTuned(pruned),
    "codes from scratch": FromScratch(codes("concat"), codes="nearest"),
    "word2ketXS": FromScratch(lambda *_: [Sizes(baselines.Word2Ket, 512)]),
    "tensor train": FromScratch(tensor_train),
    "hashed": FromScratch(hashed),
    "tensor train of a table": OfTable(tensor_train),
    "hashed of a table": OfTable(hashed),
    "quotient + remainder": FromScratch(quotient_remainder("add")),
    "int2 from scratch": FromScratch(quantized(2)),
    "softmax codes from scratch": FromScratch(codes("concat"), codes="softmax"),
    "int8": OfTable(quantized(8)),
    "table-first anchors": TableFirst(anchors),
    "table-first codes": TableFirst(large_codes),
    "digits": FromScratch(digits()),
    "int4 digits": FromScratch(digits(methods.Quantized(4, learn_rows=True))),
    "int2 digits": FromScratch(digits(methods.Quantized(2, learn_rows=True))),
    "hashed codes": FromScratch(hashed_codes),
    "LiteRT Quantizer int2": Rounded(
        functools.partial(litert_quantizer, bits=2)
    ),
    "LiteRT Quantizer int4": Rounded(
        functools.partial(litert_quantizer, bits=4)
    ),
    "LiteRT Quantizer int4 in blocks": Rounded(
        functools.partial(litert_quantizer, bits=4, block_size=64)
    ),
    "deep hashing": FromScratch(lambda *_: [Sizes(baselines.DeepHash, 4096)]),
}
