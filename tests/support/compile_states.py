"""Models whose training is broken off and goes on, of every part we save.

They train eagerly: what is saved is the same, and nothing is traced.

Run as a script, it goes on with the files in a folder: what a new process
makes of them.
"""

import functools
import os
import pathlib
import sys
import traceback
import warnings

import keras
import numpy as np

import keras_compembed as kc

ROWS, WIDTH, BATCH_SIZE = 30, 6, 8
# Breaks training off within a period of what is done every so many steps, and
# goes on until the next one.
STEPS = 5, 3
COUNTS = 300 // np.arange(1, ROWS + 1)
TARGET = kc.transforms.L1(1e-3, target_nonzeros=40)


@keras.saving.register_keras_serializable(package="compile_states")
def first_classes(features):
    return keras.ops.arange(4)


def examples(part):
    """Ids, features and labels of one of two parts of the data."""
    rng = np.random.default_rng(part)
    rows = STEPS[part] * BATCH_SIZE
    ids = rng.integers(ROWS, size=(rows, 5)).astype("int32")
    features = rng.normal(size=(rows, WIDTH)).astype("float32")
    labels = rng.choice(ROWS, size=rows, p=COUNTS / COUNTS.sum())
    return ids, features, labels


def sgd(**kwargs):
    return keras.optimizers.SGD(0.1, momentum=0.9, **kwargs)


def adam(**kwargs):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.02, 2, 0.9)
    return keras.optimizers.Adam(schedule, **kwargs)


def lazy_adam():
    return kc.optimizers.SparseRowOptimizer(adam())


def lazy_sgd():
    return kc.optimizers.SparseRowOptimizer(sgd())


def scaled_adam():
    return keras.optimizers.LossScaleOptimizer(
        lazy_adam(), initial_scale=2.0**10, dynamic_growth_steps=3
    )


class TableCase:
    """A layer of vectors, under a small regression."""

    def __init__(self, make_layer, make_optimizer, callbacks=(), policy=None):
        self.make_layer = make_layer
        self.make_optimizer = make_optimizer
        self.callbacks = callbacks
        self.policy = policy

    def build(self):
        layer = self.make_layer(dtype=self.policy)
        model = keras.Sequential(
            [
                keras.Input((5,), dtype="int32"),
                layer,
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(
            self.make_optimizer(), "mse", metrics=["mae"], run_eagerly=True
        )
        return model

    def fit(self, model, part):
        ids, features, _ = examples(part)
        return model.fit(
            ids,
            features[:, :1],
            batch_size=BATCH_SIZE,
            shuffle=False,
            verbose=0,
            callbacks=[make() for make in self.callbacks],
        ).history


def codes(**kwargs):
    settings = {"num_codebooks": 3, "codebook_size": 4, "seed": 0, **kwargs}
    return kc.CodeEmbedding(ROWS, WIDTH, **settings)


def frozen_codes(**kwargs):
    layer = codes(learn_codes="nearest", **kwargs)
    layer.build()
    layer.freeze_codes()
    return layer


def anchors(**kwargs):
    settings = {"num_anchors": 8, "l1": 1e-3, **kwargs}
    return kc.ANTEmbedding(ROWS, WIDTH, **settings)


def sparsified_anchors(**kwargs):
    layer = anchors(**kwargs)
    layer.build()
    layer.sparsify()
    return layer


def related_anchors(**kwargs):
    return anchors(
        anchors_initializer=kc.anchors.Frequency(COUNTS),
        relations=kc.anchors.Relations([[0, 9], [1, 8], [2, 3]], ROWS),
        negative_weight=0.1,
        anchors_regularizer=kc.anchors.Orthogonality(1e-3),
        storage="lazy",
        **kwargs,
    )


class TowersCase(TableCase):
    """Two layers of one name, each in a model of its own."""

    def build(self):
        ids = keras.Input((5,), dtype="int32")
        towers = [
            keras.Sequential(
                [
                    ids,
                    self.make_layer(name="table"),
                    keras.layers.GlobalAveragePooling1D(),
                ],
                name=name,
            )
            for name in ("left", "right")
        ]
        outputs = keras.layers.Dot(1)([tower(ids) for tower in towers])
        model = keras.Model(ids, outputs)
        model.compile(
            self.make_optimizer(), "mse", metrics=["mae"], run_eagerly=True
        )
        return model


class ClassCase:
    """A layer of classes, with its loss and metrics."""

    def __init__(
        self,
        make_head,
        make_loss=kc.CANELoss,
        make_optimizer=adam,
        context=False,
        metrics=True,
    ):
        self.make_head = make_head
        self.make_loss = make_loss
        self.make_optimizer = make_optimizer
        self.context = context
        self.metrics = metrics

    def make_metrics(self):
        if not self.metrics:
            return []
        return [
            kc.ClassAccuracy(k=5, name="five"),
            kc.Coverage(),
            kc.Perplexity(ignore_class=3),
        ]

    def build(self):
        inputs = [keras.Input((WIDTH,))]
        hidden = keras.layers.Dense(WIDTH)(inputs[0])
        head = self.make_head()
        if self.context:
            inputs.append(keras.Input((), dtype="int32"))
            outputs = head(hidden, context=inputs[1])
        else:
            outputs = head(hidden)
        model = keras.Model(inputs, outputs)
        model.compile(
            self.make_optimizer(),
            self.make_loss(),
            metrics=self.make_metrics(),
            run_eagerly=True,
        )
        return model

    def fit(self, model, part):
        ids, features, labels = examples(part)
        return model.fit(
            [features, ids[:, 0]] if self.context else [features],
            labels,
            batch_size=BATCH_SIZE,
            shuffle=False,
            verbose=0,
        ).history


def classes(selector=None, **kwargs):
    settings = {"num_candidates": 4, "num_noises": 3, **kwargs}
    return kc.CANESoftmax(ROWS, selector and selector(), **settings)


def beam_tree():
    tree = kc.trees.ClassTree.random(ROWS, branching=3, seed=0)
    return kc.candidates.BeamTree(tree, max_frontier=4)


def n_gram():
    return kc.candidates.NGram.from_text(examples(0)[0], ROWS, num_best=6)


def hierarchical():
    tree = kc.trees.ClassTree.from_frequencies(COUNTS)
    return kc.baselines.HierarchicalSoftmax(tree, class_counts=COUNTS)


def adaptive():
    return kc.baselines.AdaptiveSoftmax(
        ROWS, [8, 16], factor=2, class_counts=COUNTS
    )


class LearnerCase:
    """A code learner, which is a model that trains itself."""

    def __init__(self, make):
        self.make = make

    def build(self):
        return self.make(
            num_codebooks=3,
            codebook_size=4,
            training=kc.learners.Training(
                STEPS[0], BATCH_SIZE, 1e-2, STEPS[0], validation_rows=16
            ),
            seed=0,
            verbose=0,
        )

    def fit(self, model, part):
        # What is saved is for the same table.
        model.train(np.random.default_rng(0).normal(size=(ROWS, WIDTH)))
        return {**model.history, "codes": model.codes}


def table(layer, optimizer, *callbacks, policy=None, **kwargs):
    return TableCase(
        functools.partial(layer, **kwargs), optimizer, callbacks, policy
    )


def head(selector, loss=kc.CANELoss, optimizer=adam, context=False, **kwargs):
    make = functools.partial(classes, selector, **kwargs)
    return ClassCase(make, loss, optimizer, context)


def rival(selector, loss, optimizer=adam, **kwargs):
    make = functools.partial(classes, selector, **kwargs)
    return ClassCase(make, loss, optimizer, metrics=False)


CASES = {
    "codes": table(codes, adam),
    "codes_softmax": table(codes, lazy_adam, learn_codes="softmax"),
    "codes_lstm": table(codes, adam, learn_codes="softmax", composition="lstm"),
    "codes_nearest": table(codes, lazy_sgd, learn_codes="nearest"),
    "codes_concat": table(
        codes, sgd, learn_codes="nearest", composition="concat"
    ),
    "codes_follow": table(
        codes,
        lazy_sgd,
        kc.compression.RecodeEmbeddings,
        learn_codes=kc.learners.FollowingCodes(recode_every=3),
    ),
    "codes_frozen": table(frozen_codes, lazy_adam),
    "codes_scaled": table(
        codes, scaled_adam, learn_codes="softmax", policy="mixed_float16"
    ),
    "anchors_dense": table(anchors, adam, storage="dense", l1=TARGET),
    "anchors_accumulated": table(
        anchors,
        functools.partial(sgd, gradient_accumulation_steps=2),
        storage="dense",
    ),
    "anchors_lazy": table(anchors, lazy_adam, storage="lazy", l1=TARGET),
    "anchors_lazy_sgd": table(
        anchors,
        sgd,
        storage="lazy",
        l1=kc.transforms.L1(1e-3, threshold="learning_rate"),
    ),
    "anchors_sparse": table(
        anchors,
        lazy_adam,
        storage=kc.transforms.SparseRows(5),
        l1=TARGET,
    ),
    "anchors_sparse_sgd": table(
        anchors, lazy_sgd, storage=kc.transforms.SparseRows(5), l1=1e-2
    ),
    "anchors_softmax": table(
        anchors, adam, mixture=kc.transforms.Mixture(2, "softmax")
    ),
    "anchors_related": table(related_anchors, lazy_adam),
    "anchors_towers": TowersCase(anchors, lazy_adam),
    "anchors_fixed": table(sparsified_anchors, adam),
    "anchors_scaled": table(
        anchors, scaled_adam, storage="lazy", policy="mixed_float16"
    ),
    "beam_tree": head(beam_tree, optimizer=lazy_adam),
    "nearest": head(
        lambda: kc.candidates.ApproximateNearest(refresh_every=3),
        noise="learned",
    ),
    "n_gram": head(n_gram, context=True, noise=kc.noises.UnigramNoise(COUNTS)),
    "subsets": head(
        lambda: kc.candidates.FrequencySubsets(COUNTS, num_subsets=3),
        share_noises=2,
        noise="uniform",
    ),
    "frequent": head(
        lambda: kc.candidates.FrequentClasses(COUNTS),
        share_noises=True,
        noise=kc.noises.LearnedNoise(refresh_every=3),
        class_counts=COUNTS,
        estimate="separate",
    ),
    "union": head(
        lambda: kc.candidates.Union(
            [
                kc.candidates.FrequentClasses(COUNTS),
                kc.candidates.NearestCenters(num_centers=3, refresh_every=3),
            ],
        ),
        share_noises=True,
    ),
    "function": head(
        lambda: first_classes,
        functools.partial(kc.CANELoss, evaluation="sampled", ignore_class=2),
        class_embedding=codes(),
        optimizer=lazy_adam,
    ),
    "nce": rival(beam_tree, kc.baselines.NCELoss),
    "blackout": rival(
        lambda: first_classes,
        functools.partial(kc.baselines.BlackOutLoss, num_sampled=6),
    ),
    "sampled": rival(
        lambda: first_classes,
        kc.baselines.SampledSoftmaxLoss,
        class_embedding=anchors(storage="lazy"),
        optimizer=lazy_adam,
    ),
    "full": rival(beam_tree, kc.baselines.FullSoftmaxLoss),
    "hierarchical": ClassCase(hierarchical, kc.baselines.FullSoftmaxLoss),
    "adaptive": ClassCase(adaptive, kc.baselines.FullSoftmaxLoss),
    "gumbel_learner": LearnerCase(kc.learners.GumbelCodeLearner),
    "kd_learner": LearnerCase(kc.learners.KDCodeLearner),
}


def state(model, history):
    """All numbers that a model consists of, and what it reported."""
    for layer in model._flatten_layers():
        if isinstance(layer, kc.ANTEmbedding):
            # What was put off is done, so that it can be compared.
            layer.storage.settle()
    optimizers = [model.optimizer]
    for name in ("inner_optimizer", "inner"):
        inner = getattr(optimizers[-1], name, None)
        if inner is not None:
            optimizers.append(inner)
    groups = {"model": model.variables}
    for number, optimizer in enumerate(optimizers):
        groups[f"optimizer {number}"] = optimizer.variables
    arrays = {
        f"{group} {place}": keras.ops.convert_to_numpy(variable)
        for group, variables in groups.items()
        for place, variable in enumerate(variables)
    }
    for name, values in history.items():
        arrays[f"history {name}"] = np.asarray(values)
    return arrays


def go_on(folder):
    """Loads each file, fits the second part, and writes the state."""
    for name, case in CASES.items():
        path = os.path.join(folder, f"{name}.keras")
        if not os.path.exists(path):
            continue
        try:
            model = keras.saving.load_model(path, compile=True)
            arrays = state(model, case.fit(model, 1))
        except Exception:
            arrays = {"error": np.asarray(traceback.format_exc())}
        np.savez(os.path.join(folder, f"{name}.npz"), **arrays)


if __name__ == "__main__":
    # As in the tests; h5py is older than NumPy 2.
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    go_on(pathlib.Path(sys.argv[1]))
