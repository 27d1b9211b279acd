"""What do layers learn in half precision, next to float32?

Layers of each method are trained with the policies of Keras, float32,
mixed_float16 (losses are scaled by Keras) and mixed_bfloat16: on questions of
150 intents (CLINC150), with words averaged; on titles of 1,016 jobs (O*NET);
and learners of codes on 8,000 vectors of words (GoogleNews). Everything else is
the same, the seed too. `finite` tells that no loss of an epoch and no weight at
the end is NaN or infinite.

    python -m benchmarks training.precision --seeds 0,1,2

Needs the folders `clinc150`, `onet_titles` and `vectors_googlenews_8k_300d` of
the data folder.
"""

import contextlib
import dataclasses
import functools

import keras
import numpy as np

import keras_compembed as kc
from benchmarks.common import tables
from benchmarks.common.arguments import Flag
from benchmarks.common.benchmark import Benchmark
from benchmarks.common.benchmark import run
from benchmarks.data import class_tasks
from benchmarks.data import labelled_texts
from benchmarks.data import vectors

POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
_LENGTH = 28


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: String.
        task: `"intents"`, `"titles"` or `"vectors"`.
        layer: String, of `EMBEDDINGS`, `HEADS` or `LEARNERS`.
        policy: String, of `POLICIES`.
    """

    name: str
    task: str
    layer: str
    policy: str


class Precision(Benchmark):
    settings = {
        "width": 64,
        "epochs": Flag(8, "of texts"),
        "batch_size": 128,
        "learning_rate": 3e-3,
        "code_shape": Flag("16x16", "codebooks x codewords"),
        "iterations": Flag(2000, "of learners of codes"),
    }
    choices = {"policies": POLICIES}
    quick = {
        "width": 8,
        "epochs": 1,
        "code_shape": "2x4",
        "iterations": 4,
    }
    columns = {
        "": tables.field("row.layer"),
        "policy": tables.field("row.policy"),
        "loss": tables.figure("loss", "{:.4f}"),
        "accuracy": tables.figure("accuracy", "{:.1f}", 100, " %"),
        "finite": tables.figure("finite"),
    }

    def rows(self):
        return [
            Row(f"{layer} in {policy}", task, layer, policy)
            for task, layers in LAYERS.items()
            for layer in layers
            for policy in self.args.policies
        ]

    @functools.cached_property
    def intents(self):
        if self.args.quick:
            return drawn(60, 40, _LENGTH)
        data = labelled_texts.intents(self.folder)
        words, data = data.as_ids(6000, _LENGTH)
        return class_tasks.ClassTask(
            data.classes, data.train, data.validation, data.test, len(words)
        )

    @functools.cached_property
    def titles(self):
        if self.args.quick:
            return drawn(60, 40, 6)
        return class_tasks.job_titles(self.folder)

    @functools.cached_property
    def vectors(self):
        if self.args.quick:
            return np.random.default_rng(0).normal(size=(60, 8))
        return vectors.load_table(self.folder / vectors.GOOGLE_NEWS)

    def measure(self, row, seed):
        keras.utils.set_random_seed(seed)
        with policy(row.policy):
            layer = LAYERS[row.task][row.layer]
            if row.task == "vectors":
                return self.learn(layer, seed)
            return self.train(row.task, layer)

    def learn(self, make, seed):
        learner = make(self.args, seed).train(self.vectors)
        weights = [learner.codebooks, learner.history["loss"]]
        return {
            "loss": float(learner.history["loss"][-1]),
            "finite": all(np.isfinite(weight).all() for weight in weights),
        }

    def train(self, name, make):
        task, args = getattr(self, name), self.args
        inputs = keras.Input((task.train[0].shape[1],), dtype="int32")
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        metric = "accuracy"
        if name == "titles":
            x = pool(keras.layers.Embedding(task.input_dim, args.width))(inputs)
            outputs = make(task, args)(x)
            loss, metric = kc.CANELoss(), kc.ClassAccuracy()
        else:
            x = pool(make(task.input_dim, args))(inputs)
            # As Keras advises: probabilities are of float32.
            outputs = keras.layers.Dense(task.num_classes, dtype="float32")(x)
        model = keras.Model(inputs, outputs)
        callbacks = []
        for layer in model.layers:
            rule = getattr(layer, "learn_codes", None)
            if isinstance(rule, kc.learners.FollowingCodes):
                callbacks = [kc.compression.RecodeEmbeddings(every=50)]
        model.compile(
            kc.optimizers.SparseRowOptimizer(
                keras.optimizers.Adam(args.learning_rate)
            ),
            loss,
            metrics=[metric],
            jit_compile=self.jit_compile,
        )
        history = model.fit(
            *task.train,
            batch_size=args.batch_size,
            epochs=args.epochs,
            callbacks=callbacks,
            verbose=0,
        ).history["loss"]
        # Scales of losses are weights of the optimizer.
        weights = [history, *model.get_weights()]
        return {
            "loss": history[-1],
            "losses": history,
            "accuracy": model.evaluate(
                *task.test, batch_size=args.batch_size, verbose=0
            )[1],
            "finite": all(
                np.isfinite(np.asarray(weight, "float64")).all()
                for weight in weights
            ),
        }


@contextlib.contextmanager
def policy(name):
    """Sets the dtype policy of Keras, in a block."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def pool(layer):
    """From ids to the mean of vectors, for layers that do not pool."""
    if "Reduce" in type(layer).__name__:
        return layer
    mean = keras.layers.GlobalAveragePooling1D()
    return lambda ids: mean(layer(ids))


def drawn(examples, num_classes, length):
    """A `ClassTask` of random ids."""
    rng = np.random.default_rng(0)

    def part():
        ids = rng.integers(20, size=(examples, length), dtype="int32")
        return ids, rng.integers(num_classes, size=examples, dtype="int32")

    names = [str(number) for number in range(num_classes)]
    return class_tasks.ClassTask(names, part(), part(), part(), 20)


def codes(cls=kc.CodeEmbedding, **kwargs):
    def make(input_dim, args):
        shape = map(int, args.code_shape.split("x"))
        return cls(input_dim, args.width, *shape, seed=0, **kwargs)

    return make


def following(input_dim, args):
    """Codes that follow the task from codes drawn at random."""
    number, size = map(int, args.code_shape.split("x"))
    drawn = np.random.default_rng(0).integers(size, size=(input_dim, number))
    return codes(learn_codes="follow", codes=drawn)(input_dim, args)


def anchors(cls=kc.ANTEmbedding, **kwargs):
    return lambda input_dim, args: cls(
        input_dim, args.width, num_anchors=10, l1=1e-4, seed=0, **kwargs
    )


def rounded(cls=kc.QuantizedEmbedding, **kwargs):
    return lambda input_dim, args: cls(
        input_dim, args.width, learn_rows=True, seed=0, **kwargs
    )


def head(make_selector=None, **kwargs):
    def make(task, args):
        selector = make_selector(task) if make_selector else "auto"
        return kc.CANESoftmax(
            task.num_classes,
            selector,
            class_counts=np.maximum(task.counts, 1),
            seed=0,
            **kwargs,
        )

    return make


def from_words(task, args):
    """A head whose vectors are computed from words of classes' examples."""
    ids, labels = task.train
    counts = np.zeros((task.num_classes, task.input_dim), "float32")
    np.add.at(counts, (labels[:, None], ids), 1)
    directions = np.random.default_rng(0).normal(
        size=(task.input_dim, args.width)
    )
    features = np.log1p(counts) @ (directions / args.width**0.5)
    embedding = kc.FeatureEmbedding(features, keras.layers.Dense(args.width))
    return head(class_embedding=embedding)(task, args)


def learner(cls, **kwargs):
    def make(args, seed):
        training = kc.learners.Training(
            args.iterations, validation_interval=min(500, args.iterations)
        )
        shape = map(int, args.code_shape.split("x"))
        return cls(
            *shape,
            training=training,
            seed=seed,
            verbose=0,
            # By themselves, learners are of float32.
            dtype=keras.config.dtype_policy(),
            **kwargs,
        )

    return make


EMBEDDINGS = {
    "Embedding": lambda input_dim, args: keras.layers.Embedding(
        input_dim, args.width
    ),
    "CodeEmbedding": codes(),
    "CodeEmbedding, concat": codes(composition="concat"),
    "CodeEmbedding, LSTM": codes(composition="lstm"),
    "CodeEmbedding, follow": following,
    "CodeEmbedding, nearest": codes(learn_codes="nearest"),
    "CodeEmbedding, softmax": codes(learn_codes="softmax"),
    "CodeEmbedReduce": codes(kc.CodeEmbedReduce, combiner="mean"),
    "ANTEmbedding, dense": anchors(storage="dense"),
    "ANTEmbedding, lazy": anchors(storage="lazy"),
    "ANTEmbedding, sparse": anchors(storage="sparse"),
    "ANTEmbedReduce": anchors(kc.ANTEmbedReduce, combiner="mean"),
    "QuantizedEmbedding, 4 bits": rounded(bits=4),
    "QuantizedEmbedding, 2 bits": rounded(bits=2),
    "QuantizedEmbedReduce, 4 bits": rounded(
        kc.QuantizedEmbedReduce, bits=4, combiner="mean"
    ),
}
HEADS = {
    "CANESoftmax by default": head(),
    "CANESoftmax, frequent": head(
        lambda task: kc.candidates.FrequentClasses(np.maximum(task.counts, 1)),
        num_candidates=50,
        num_noises=200,
        share_noises=True,
    ),
    "CANESoftmax, tree": head(
        lambda task: kc.candidates.BeamTree(
            kc.trees.ClassTree.random(task.num_classes, seed=0)
        ),
        num_candidates=4,
        num_noises=20,
    ),
    "CANESoftmax, nearest": head(
        lambda task: kc.candidates.ApproximateNearest(),
        num_candidates=4,
        num_noises=20,
    ),
    "CANESoftmax, near by blocks": head(
        lambda task: kc.candidates.NearestCenters(8),
        num_candidates=50,
        num_noises=200,
        share_noises=True,
    ),
    "CANESoftmax, learned noises": head(
        lambda task: kc.candidates.FrequencySubsets(
            np.maximum(task.counts, 1), num_subsets=8, seed=0
        ),
        num_candidates=4,
        num_noises=20,
        noise="learned",
    ),
    "CANESoftmax, FeatureEmbedding": from_words,
}
LEARNERS = {
    "GumbelCodeLearner": learner(kc.learners.GumbelCodeLearner),
    "KDCodeLearner": learner(kc.learners.KDCodeLearner),
    "KDCodeLearner, LSTM": learner(
        kc.learners.KDCodeLearner, composition="lstm"
    ),
}
LAYERS = {"intents": EMBEDDINGS, "titles": HEADS, "vectors": LEARNERS}
main = functools.partial(run, Precision)
