"""Every layer of the package, each way to use it, with a task to train it on.

A layer joins what all must pass by a line in `CASES`.
"""

import dataclasses
import typing

import keras
import numpy as np

import keras_compembed as kc
from keras_compembed import classes
from keras_compembed.learners.task_codes import FollowingCodes

IDS, WIDTH, LABELS, BATCH_SIZE = 40, 6, 3, 16
CLASSES, FEATURES = 30, 8
COUNTS = 1 + 300 // np.arange(1, CLASSES + 1)


@dataclasses.dataclass(frozen=True)
class LayerCase:
    """A layer and a task."""

    name: str
    # From arguments of `keras.layers.Layer` to a new layer, of the same
    # weights each time.
    make: typing.Callable
    # `LookUp`, `NextId` or `Classes`.
    task: object

    def __str__(self):
        return self.name

    def build(self, run_eagerly=False, **kwargs):
        """A compiled model that holds the layer, and the layer."""
        layer = self.make(**kwargs)
        model = self.task.wrap(layer)
        self.compile(model, layer, run_eagerly)
        return model, layer

    def compile(self, model, layer, run_eagerly=False):
        model.compile(
            kc.optimizers.SparseRowOptimizer(keras.optimizers.Adam(0.02)),
            self.task.loss(layer),
            jit_compile=False,
            run_eagerly=run_eagerly,
        )

    def train(self, model, rows=3 * BATCH_SIZE):
        """An epoch."""
        model.fit(
            *self.task.examples(rows),
            batch_size=BATCH_SIZE,
            shuffle=False,
            verbose=0,
        )

    def find(self, model):
        """The layer in a model that was made by another way than `build`."""
        kind = type(self.make())
        (layer,) = (each for each in model.layers if type(each) is kind)
        return layer


class LookUp:
    """Labels of the mean of a few vectors."""

    behind = (keras.layers.GlobalAveragePooling1D,)

    def wrap(self, layer):
        start = keras.initializers.GlorotUniform(0)
        head = keras.layers.Dense(LABELS, kernel_initializer=start)
        inputs = keras.Input((5,), dtype="int32")
        pools = [make() for make in self.behind]
        return keras.Sequential([inputs, layer, *pools, head])

    def loss(self, layer):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def examples(self, rows=3 * BATCH_SIZE):
        rng = np.random.default_rng(1)
        ids = rng.integers(IDS, size=(rows, 5)).astype("int32")
        return ids, ids[:, 0] % LABELS


class Pooled(LookUp):
    """The same, by a layer that takes the mean itself; id 0 is padding."""

    behind = ()

    def examples(self, rows=3 * BATCH_SIZE):
        ids, labels = super().examples(rows)
        lengths = np.arange(rows) % 6
        return np.where(np.arange(5) < lengths[:, None], ids, 0), labels


class NextId:
    """An id after a few others, by the layer that they are looked up in."""

    def wrap(self, layer):
        ids = keras.Input((5,), dtype="int32")
        hidden = keras.layers.GlobalAveragePooling1D()(layer(ids))
        mix = keras.layers.Dense(
            8, kernel_initializer=keras.initializers.GlorotUniform(0)
        )
        return keras.Model(ids, layer(mix(hidden), reverse=True))

    def loss(self, layer):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def examples(self, rows=3 * BATCH_SIZE):
        ids, _ = LookUp().examples(rows)
        return ids, ids[:, -1]


class Classes:
    """Classes of features, by Zipf's law, with a context or without."""

    def __init__(self, context=False):
        self.context = context

    def wrap(self, layer):
        encoder = keras.layers.Dense(
            FEATURES, kernel_initializer=keras.initializers.GlorotUniform(0)
        )
        features = keras.Input((FEATURES,))
        if not self.context:
            return keras.Sequential([features, encoder, layer])
        context = keras.Input((), dtype="int32")
        outputs = layer(encoder(features), context=context)
        return keras.Model([features, context], outputs)

    def loss(self, layer):
        return kc.CANELoss()

    def examples(self, rows=3 * BATCH_SIZE):
        rng = np.random.default_rng(1)
        inputs = rng.normal(size=(rows, FEATURES)).astype("float32")
        labels = rng.choice(CLASSES, size=rows, p=COUNTS / COUNTS.sum())
        if self.context:
            inputs = inputs, ((labels + 7) % CLASSES).astype("int32")
        return inputs, labels


def codes(**settings):
    """A layer of codes, with codes unless they are learned from nothing."""

    def make(**kwargs):
        rng = np.random.default_rng(0)
        arguments = {"num_codebooks": 4, "codebook_size": 8, **settings}
        learn = settings.get("codes")
        if learn in (None, "follow"):
            codes = rng.integers(8, size=(IDS, 4))
            arguments["codes"] = FollowingCodes(codes=codes) if learn else codes
        keras.utils.set_random_seed(0)
        layer = kc.CodeEmbedding(IDS, 8, **arguments, **kwargs)
        layer.build()
        # Numbers of size 1, so that no part of a vector can be missed.
        for weight in layer.trainable_weights:
            weight.assign(0.5 * rng.normal(size=weight.shape))
        return layer

    return make


def rounded(**settings):
    """A layer of rounded rows."""

    def make(**kwargs):
        keras.utils.set_random_seed(0)
        layer = kc.QuantizedEmbedding(IDS, 8, **settings, **kwargs)
        layer.build()
        rng = np.random.default_rng(0)
        # Numbers of size 1, so that no part of a vector can be missed.
        for weight in layer.trainable_weights:
            weight.assign(0.5 * rng.normal(size=weight.shape))
        layer.scale_unit.assign(layer.scale_unit * 20)
        layer.mean_row.assign(0.3 * rng.normal(size=layer.width))
        return layer

    return make


def anchors(storage, **settings):
    """A layer of anchors."""

    def make(**kwargs):
        keras.utils.set_random_seed(0)
        arguments = {"num_anchors": 9, "l1": 3e-3, **settings, **kwargs}
        layer = kc.ANTEmbedding(IDS, WIDTH, transform=storage, **arguments)
        layer.build()
        return layer

    return make


def sparsified(trainable):
    """A layer whose places of non-zeros are fixed."""

    def make(**kwargs):
        layer = anchors("dense")(**kwargs)
        return kc.strip(layer, max_nonzeros=60, trainable=trainable)

    return make


def table_part(cls, *settings, **options):
    """A layer that holds a part of a table."""

    def make(**kwargs):
        keras.utils.set_random_seed(0)
        arguments = {"name": "words", **options, **kwargs}
        layer = cls(IDS, WIDTH, *settings, **arguments)
        layer.build()
        return layer

    return make


def vocabulary_of_rounded_rows(**kwargs):
    rows = kc.QuantizedEmbedding(
        18,
        WIDTH,
        bits=4,
        learn_rows=keras.initializers.RandomUniform(seed=0),
        dtype=kwargs.get("dtype"),
    )
    make = table_part(
        kc.PrunedVocabularyEmbedding, 15, 3, sharing="nearest", rows=rows
    )
    return make(**kwargs)


def tiers(**options):
    """A layer of rounded rows of some ids, and codes of the others."""

    def make(**kwargs):
        keras.utils.set_random_seed(0)
        rng, policy = np.random.default_rng(0), {"dtype": kwargs.get("dtype")}
        layer = kc.PrunedVocabularyEmbedding(
            IDS,
            8,
            15,
            rows=kc.QuantizedEmbedding(15, 8, learn_rows=True, **policy),
            rest=kc.CodeEmbedding(
                25, 8, 4, 8, codes=rng.integers(8, size=(25, 4)), **policy
            ),
            **options,
            **kwargs,
        )
        layer.build()
        layer.store.take(rng.permutation(IDS), None)
        # Numbers of size 1, so that no part of a vector can be missed.
        for weight in layer.trainable_weights:
            weight.assign(0.5 * rng.normal(size=weight.shape))
        layer.rows.scale_unit.assign(layer.rows.scale_unit * 20)
        return layer

    return make


def digits_of_rounded_rows(**kwargs):
    """A layer of digits, with rounded rows for the last one."""
    keras.utils.set_random_seed(0)
    policy = {"dtype": kwargs.get("dtype")}
    rows = kc.QuantizedEmbedding(14, 8, bits=2, learn_rows=True, **policy)
    make = codes(
        codes="digits",
        num_codebooks=2,
        codebook_size=(3, 14),
        composition="product",
        codebooks=rows,
    )
    layer = make(**kwargs)
    rows.scale_unit.assign(rows.scale_unit * 20)
    return layer


def head(make_selector, **settings):
    """A `CANESoftmax`."""

    def make(**kwargs):
        return kc.CANESoftmax(
            CLASSES,
            COUNTS,
            kc.Sampling(
                make_selector(), num_candidates=4, num_noises=5, **settings
            ),
            kernel_initializer=keras.initializers.RandomNormal(seed=0),
            seed=0,
            **kwargs,
        )

    return make


def tree():
    return classes.ClassTree.random(CLASSES, branching=4, seed=0)


def beam_tree(**kwargs):
    return classes.BeamTree(tree(), max_frontier=4)


def n_gram():
    followers = (np.arange(CLASSES)[:, None] + np.arange(6)) % CLASSES
    return classes.NGram(followers, fallback=np.arange(6))


VECTORS = {
    "codes": codes(),
    "codes-concat": codes(composition="concat"),
    "codes-lstm": codes(composition="lstm"),
    "codes-digits": codes(
        codes="digits",
        num_codebooks=None,
        codebook_size=(3, 5, 4),
        composition="product",
    ),
    "codes-digits-rounded": digits_of_rounded_rows,
    "codes-hashed": codes(
        codes=("hashed", 1), num_codebooks=2, codebook_size=14
    ),
    "codes-softmax": codes(codes="softmax"),
    "codes-nearest": codes(codes="nearest", composition="concat"),
    "codes-follow": codes(codes="follow"),
    "rounded-narrow": rounded(bits=4, block_size=3, rank=5),
    "rounded-learned": rounded(bits=2, learn_rows=True),
    "anchors-dense": anchors("dense"),
    "anchors-lazy": anchors("lazy"),
    "anchors-sparse": anchors(kc.anchors.Transform("sparse", max_nonzeros=4)),
    "anchors-fixed": sparsified(False),
    "anchors-trained-places": sparsified(True),
    "pruned": table_part(kc.SparseEmbedding, 0.7),
    "vocabulary": table_part(kc.PrunedVocabularyEmbedding, 15, 3),
    "vocabulary-rounded": vocabulary_of_rounded_rows,
    "tiers": tiers(),
}
SUMS = {
    "codes-pooled": codes(combiner="mean", mask_zero=True),
    "codes-digits-pooled": codes(
        codes="digits",
        codebook_size=(2, 3, 3, 3),
        composition="concat",
        combiner="mean",
        mask_zero=True,
    ),
    "rounded-pooled-learned": rounded(
        bits=4, rank=5, learn_rows=True, combiner="mean", mask_zero=True
    ),
    "anchors-pooled": anchors("lazy", combiner="mean", mask_zero=True),
    "tiers-pooled": tiers(combiner="mean", mask_zero=True),
}
REVERSIBLE = {
    "reversible": codes(reverse=kc.Reverse()),
    "reversible-untied": codes(
        reverse=kc.Reverse(tie_weights=False, logit_soft_cap=3.0)
    ),
    "rounded-reversible": rounded(
        bits=4, learn_rows=True, reverse=kc.Reverse(logit_soft_cap=3.0)
    ),
    "tiers-untied": tiers(reverse=kc.Reverse(tie_weights=False)),
}
HEADS = {
    "classes-tree": head(beam_tree),
    "classes-tree-refreshed": head(lambda: beam_tree(refresh_every=1)),
    "classes-nearest": head(lambda: classes.ApproximateNearest(num_lists=5)),
    "classes-frequent": head(
        lambda: classes.FrequentClasses(COUNTS),
        shared=True,
        groups=2,
    ),
    "classes-subsets": head(
        lambda: classes.FrequencySubsets(COUNTS, num_subsets=4, seed=0),
        estimate="separate",
        noise="learned",
    ),
}
CASES = [
    LayerCase(name, make, task)
    for task, layers in (
        (LookUp(), VECTORS),
        (Pooled(), SUMS),
        (NextId(), REVERSIBLE),
        (Classes(), HEADS),
        (Classes(context=True), {"classes-ngram": head(n_gram)}),
    )
    for name, make in layers.items()
]
