"""Models of the golden LiteRT files, one for each way to store a table."""

import json

import keras
import numpy as np

import keras_compembed as kc

ROWS, WIDTH, LENGTH, USERS = 150, 12, 6, 40
# A runtime without types of four bits.
OLDER = "2.12"


def ids_input(length=None):
    return keras.Input((length,), dtype="int32")


def randomize(layer, size=1.0):
    """Weights of size 1, the same each time, so that no part is missed."""
    rng = np.random.default_rng(0)
    for weight in layer.trainable_weights:
        weight.assign(size * rng.normal(size=weight.shape))
    return layer


def codes(*shape, cls=kc.CodeEmbedding, **kwargs):
    layer = cls(ROWS, WIDTH, *shape, seed=0, **kwargs)
    layer.build()
    return randomize(layer)


def rounded(bits, cls=kc.QuantizedEmbedding, **kwargs):
    start = keras.initializers.RandomUniform(seed=0)
    layer = cls(ROWS, WIDTH, bits, rows_initializer=start, seed=0, **kwargs)
    layer.build()
    randomize(layer)
    layer.scale_unit.assign(layer.scale_unit * 20)
    return layer


def anchors(cls=kc.ANTEmbedding, **kwargs):
    rng = np.random.default_rng(0)
    layer = cls(ROWS, WIDTH, 20, storage="dense", seed=0, **kwargs)
    layer.build()
    transform = np.abs(rng.normal(size=(ROWS, 20)))
    transform[rng.random(transform.shape) > 0.15] = 0
    layer.assign_transform(transform.astype("float32"))
    layer.anchors.assign(rng.normal(size=(20, WIDTH)))
    return kc.strip(layer)


def look_up(layer):
    return keras.Sequential([ids_input(), layer])


def mean(layer):
    """A mean of vectors and a dense layer, which go into codebooks."""
    start = keras.initializers.GlorotUniform(0)
    behind = keras.layers.Dense(5, kernel_initializer=start)
    pooling = keras.layers.GlobalAveragePooling1D()
    return keras.Sequential([ids_input(), layer, pooling, behind])


def user_features():
    """Ids of users, and features of them."""
    users = ids_input(LENGTH)
    start = keras.initializers.RandomNormal(seed=1)
    table = keras.layers.Embedding(USERS, WIDTH, embeddings_initializer=start)
    return users, keras.layers.GlobalAveragePooling1D()(table(users))


def scores(items):
    """A logit of each id."""
    users, features = user_features()
    return keras.Model(users, items(features, reverse=True))


def classes():
    """A softmax of many classes, found by a search through a tree."""
    users, features = user_features()
    tree = kc.trees.ClassTree.random(ROWS, branching=4, seed=0)
    selector = kc.candidates.BeamTree(tree, beam_width=4)
    head = kc.CANESoftmax(ROWS, selector, 6, 6, seed=0)
    model = keras.Model(users, head(features))
    randomize(head)
    return model


# By name, what makes a model, and options of `export_litert`.
CASES = {
    # Subcodes of four and two bits, of bytes, across bytes, and of two.
    "codes-16": (lambda: look_up(codes(5, 16)), {}),
    "codes-4": (lambda: look_up(codes(6, 4)), {}),
    "codes-256": (lambda: look_up(codes(2, 256)), {}),
    "codes-10": (lambda: look_up(codes(5, 10)), {}),
    "codes-300": (lambda: look_up(codes(1, 300)), {}),
    "codes-concat": (lambda: look_up(codes(4, 16, "concat")), {}),
    "codes-linear": (
        lambda: look_up(codes(4, 16, kc.compositions.LinearComposition(5))),
        {},
    ),
    "codes-lstm": (lambda: look_up(codes(3, 8, "lstm")), {}),
    "codes-16-int8": (lambda: look_up(codes(8, 16)), {"quantize": "int8"}),
    "codes-16-latency": (
        lambda: mean(codes(8, 16)),
        {"optimize_for": "latency"},
    ),
    "codes-16-older": (lambda: look_up(codes(5, 16)), {"min_runtime": OLDER}),
    "codes-4-latency": (
        lambda: look_up(codes(6, 4)),
        {"optimize_for": "latency"},
    ),
    "codes-folded": (lambda: mean(codes(5, 16)), {}),
    "codes-pooled": (
        lambda: look_up(
            codes(5, 16, cls=kc.CodeEmbedReduce, mask_zero=True),
        ),
        {},
    ),
    "rounded-8": (lambda: look_up(rounded(8)), {}),
    "rounded-4": (lambda: look_up(rounded(4, block_size=5)), {}),
    "rounded-2": (lambda: look_up(rounded(2)), {}),
    "rounded-narrow": (lambda: look_up(rounded(4, rank=7)), {}),
    "rounded-pooled": (
        lambda: look_up(
            rounded(4, cls=kc.QuantizedEmbedReduce, mask_zero=True)
        ),
        {},
    ),
    "anchors": (lambda: look_up(anchors()), {}),
    "anchors-int8": (lambda: look_up(anchors()), {"quantize": "int8"}),
    "anchors-pooled": (
        lambda: look_up(anchors(kc.ANTEmbedReduce, mask_zero=True)),
        {},
    ),
    "codes-scores": (
        lambda: scores(codes(5, 16, cls=kc.ReversibleCodeEmbedding)),
        {"top_k": 7},
    ),
    "codes-logits": (
        lambda: scores(
            codes(5, 16, cls=kc.ReversibleCodeEmbedding, logit_soft_cap=3.0)
        ),
        {},
    ),
    "rounded-scores": (
        lambda: scores(rounded(4, cls=kc.ReversibleQuantizedEmbedding)),
        {"top_k": 7},
    ),
    "classes": (classes, {"top_k": 7}),
    # What answers so in Keras, too.
    "codes-answers": (
        lambda: kc.top_k_model(
            scores(codes(5, 16, cls=kc.ReversibleCodeEmbedding)), 7
        ),
        {},
    ),
    "classes-answers": (lambda: kc.top_k_model(classes(), 7), {}),
}


def make_inputs(model):
    """Rows of ids, all that there are among them, and 0 in places."""
    (shape,) = {tuple(each.shape) for each in model.inputs}
    if shape[1] is not None:
        rng = np.random.default_rng(0)
        return rng.integers(USERS, size=(5, LENGTH)).astype("int32")
    ids = np.arange(ROWS, dtype="int32").reshape(-1, LENGTH)
    ids[3, 2:] = 0
    return ids


def run(path, inputs):
    """What a file answers, by name."""
    outputs = kc.export.LiteRTModel(path)(inputs)
    return outputs if isinstance(outputs, dict) else {"outputs": outputs}


def write(name, folder):
    """The model of a case, the file made of it, and what the file answers."""
    make, options = CASES[name]
    model = make()
    model.save(folder / f"{name}.keras")
    path = folder / f"{name}.tflite"
    kc.export.export_litert(model, path, verbose=0, **options)
    inputs = make_inputs(model)
    np.savez_compressed(
        path.with_suffix(".npz"),
        inputs=inputs,
        options=json.dumps(options),
        **run(path, inputs),
    )
