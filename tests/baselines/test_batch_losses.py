"""SCE, RECE and the in-batch softmax, whose examples share classes."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from class_models import NUM_CLASSES
from class_models import WIDTH
from class_models import FirstClasses
from class_models import check_any_size
from class_models import check_files
from class_models import counts
from class_models import examples
from class_models import fit
from class_models import loss_and_gradients
from class_models import numerical_gradient
from class_models import randomize

import keras_compembed as kc
from keras_compembed import baselines
from keras_compembed.baselines.even_chunks import EvenChunks
from keras_compembed.candidates.beam_tree import BeamTree
from keras_compembed.layers.cane_softmax import CANESoftmax
from keras_compembed.trees import ClassTree

ROWS = 20
COUNTS = np.maximum(counts(), 0.5)


def in_batch(**kwargs):
    return baselines.InBatchSoftmaxLoss(**kwargs)


def sce(**kwargs):
    return baselines.SCELoss(3, 6, 5, mix=False, **kwargs)


def sce_mix(**kwargs):
    return baselines.SCELoss(3, 6, 5, **kwargs)


def rece(**kwargs):
    return baselines.RECELoss(5, 4, num_extra_chunks=0, **kwargs)


def rece_rounds(**kwargs):
    return baselines.RECELoss(5, num_rounds=3, **kwargs)


def log_sum_exp(scores):
    return np.log(np.exp(scores).sum())


def normal(*shape, draw=tf.random.stateless_normal):
    """What a layer with the seed 0 draws first."""
    seed = keras.random.SeedGenerator(0).next()
    return draw(shape, tf.cast(seed, "int32"))


def compiled_normal(*shape):
    """The same under XLA, which draws other numbers."""
    draw = tf.function(tf.random.stateless_normal, jit_compile=True)
    return normal(*shape, draw=draw)


NORMAL = {
    False: functools.cache(normal),
    True: functools.cache(compiled_normal),
}


def in_batch_losses(features, labels, kernel, bias, draw=normal):
    scores = features @ kernel.T + bias
    q = COUNTS / COUNTS.sum()
    scores = scores - np.log(1 - (1 - q) ** (len(labels) - 1))
    return [
        log_sum_exp([own[k] for k in set(labels)]) - own[label]
        for own, label in zip(scores, labels, strict=True)
    ]


def sce_losses(features, labels, kernel, bias, draw=normal, mix=False):
    """The largest loss of each example; None of one in no bucket."""
    rows, width = features.shape
    directions = draw(3, rows if mix else width).numpy().astype("float64")
    if mix:
        directions = directions @ features
    scores = features @ kernel.T + bias
    losses = [None] * rows
    for direction in directions:
        classes = np.argsort(-kernel @ direction)[:5]
        for row in np.argsort(-features @ direction)[:6]:
            near = {*classes, labels[row]}
            total = log_sum_exp([scores[row, k] for k in near])
            loss = total - scores[row, labels[row]]
            losses[row] = max(loss, losses[row] or loss)
    return losses


def sce_mix_losses(*arrays, draw):
    return sce_losses(*arrays, draw, mix=True)


def chunks_of(vectors, directions, number):
    """The chunk of each vector, in one round."""
    nearest = (vectors @ directions.T).argmax(axis=1)
    order = np.argsort(nearest, kind="stable")
    chunks = np.empty(len(vectors), "int64")
    for chunk in range(number):
        start = chunk * len(vectors) // number
        stop = (chunk + 1) * len(vectors) // number
        chunks[order[start:stop]] = chunk
    return chunks


def rece_losses(
    features, labels, kernel, bias, draw=normal, number=4, extra=0, rounds=1
):
    near = []
    for directions in draw(rounds, 5, features.shape[1]).numpy():
        of_rows = chunks_of(features, directions, number)
        of_classes = chunks_of(kernel, directions, number)
        near.append(abs(of_rows[:, None] - of_classes) <= extra)
    near = np.any(near, axis=0)
    near[np.arange(len(labels)), labels] = True
    scores = features @ kernel.T + bias
    return [
        log_sum_exp(own[each]) - own[label]
        for own, each, label in zip(scores, near, labels, strict=True)
    ]


def rece_rounds_losses(*arrays, draw):
    return rece_losses(*arrays, draw, number=5, extra=1, rounds=3)


REFERENCES = {
    in_batch: in_batch_losses,
    sce: sce_losses,
    sce_mix: sce_mix_losses,
    rece: rece_losses,
    rece_rounds: rece_rounds_losses,
}
# One of each class.
LOSSES = [in_batch, sce_mix, rece_rounds]


def make_layer(**kwargs):
    kwargs = {
        "selector": FirstClasses(),
        "num_candidates": 3,
        "num_noises": 4,
        "class_counts": counts(),
        "seed": 0,
    } | kwargs
    return CANESoftmax(NUM_CLASSES, **kwargs)


def random_layer(**kwargs):
    layer = make_layer(**kwargs)
    layer.build((None, WIDTH))
    randomize(layer)
    return layer


def float64_arrays(layer, features):
    arrays = features, layer.kernel.numpy(), layer.bias.numpy()
    return [array.astype("float64") for array in arrays]


@pytest.mark.parametrize(
    "make_loss, jit_compile",
    [(each, False) for each in REFERENCES] + [(each, True) for each in LOSSES],
)
def test_loss_and_gradients(make_loss, jit_compile):
    layer = random_layer()
    features, labels = examples(ROWS)
    arrays = float64_arrays(layer, features)

    def reference(features, kernel, bias):
        losses = REFERENCES[make_loss](
            features, labels, kernel, bias, draw=NORMAL[jit_compile]
        )
        placed = [loss for loss in losses if loss is not None]
        # Of SCE, some are in several buckets and some in none.
        assert len(placed) == ROWS or "sce" in make_loss.__name__
        return np.mean(placed)

    value, gradients = loss_and_gradients(
        layer, make_loss(), features, labels, jit_compile
    )
    assert float(value) == pytest.approx(reference(*arrays), rel=1e-5)
    expected = numerical_gradient(reference, *arrays)
    for gradient, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-5)


def test_examples_in_no_bucket():
    """Their losses are 0 and do not count; metrics take them for right."""
    layer = random_layer()
    features, labels = examples(ROWS)
    arrays = float64_arrays(layer, features)
    wanted = sce_losses(arrays[0], labels, *arrays[1:])
    placed = np.array([loss is not None for loss in wanted])
    assert 0 < placed.sum() < ROWS
    outputs = layer(features, training=True)
    losses = sce(reduction="none")(labels, outputs)
    wanted = np.where(placed, wanted, 0).astype("float64")
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    accuracy, perplexity = kc.ClassAccuracy(), kc.Perplexity()
    for metric in (accuracy, perplexity):
        metric.update_state(labels, outputs)
    assert float(accuracy.result()) >= 1 - placed.mean()
    assert float(perplexity.result()) == pytest.approx(
        np.exp(wanted.mean()), rel=1e-5
    )


@pytest.mark.parametrize(
    "loss",
    [
        baselines.SCELoss(2, 1000, 1000, reduction="none"),
        baselines.SCELoss(2, 1000, 1000, mix=False, reduction="none"),
        baselines.RECELoss(7, 4, 3, reduction="none"),
        baselines.RECELoss(
            7, num_extra_chunks=6, num_rounds=2, reduction="none"
        ),
        baselines.RECELoss(1, reduction="none"),
    ],
)
def test_all_classes(loss):
    """With all classes in each bucket or chunk, it is the full softmax."""
    layer = random_layer()
    features, labels = examples(ROWS)
    outputs = layer(features, training=True)
    losses = loss(labels, outputs)
    full = baselines.FullSoftmaxLoss(reduction="none")
    wanted = full(labels, layer(features, training=True))
    np.testing.assert_allclose(losses, wanted, rtol=1e-5, atol=1e-6)
    accuracies = []
    for each in (outputs, layer(features, training=True)):
        full(labels, each) if accuracies else None
        metric = kc.ClassAccuracy()
        metric.update_state(labels, each)
        accuracies.append(float(metric.result()))
    assert accuracies[0] == accuracies[1]


def test_in_batch_as_keras_rs():
    layers = pytest.importorskip("keras_rs").layers
    layer = random_layer()
    features, _ = examples(8)
    labels = np.array([3, 0, 5, 7, 1, 2, 9, 10])
    features_, kernel, bias = float64_arrays(layer, features)
    scores = (features_ @ kernel.T + bias)[:, labels].astype("float32")
    q = COUNTS / COUNTS.sum()
    probabilities = (1 - (1 - q) ** 7).astype("float32")[labels]
    scores = layers.SamplingProbabilityCorrection()(scores, probabilities)
    own = np.eye(8, dtype="float32")
    wanted = tf.nn.softmax_cross_entropy_with_logits(own, scores)
    loss = in_batch(reduction="none")
    losses = loss(labels, layer(features, training=True))
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)


@pytest.mark.parametrize("make_loss", [in_batch, sce, rece, rece_rounds])
def test_examples_left_out(make_loss):
    """What a mask leaves out changes nothing for the others."""
    layer = random_layer()
    features, labels = examples(ROWS)
    counted = np.arange(ROWS) % 3 > 0
    wild = np.where(counted[:, None], features, 100)
    padded = np.where(counted, labels, -1)
    wanted = make_loss(reduction="none")(
        labels[counted], random_layer()(features[counted], training=True)
    )
    losses = make_loss(ignore_class=-1, reduction="none")(
        padded.reshape(4, 5),
        layer(wild.reshape(4, 5, WIDTH).astype("float32"), training=True),
    ).numpy()
    assert losses.shape == (4, 5)
    losses = losses.reshape(-1)
    np.testing.assert_array_equal(losses[~counted], 0)
    np.testing.assert_allclose(losses[counted], wanted, rtol=1e-5, atol=1e-6)
    nothing = make_loss(ignore_class=-1)(
        -np.ones(ROWS, "int32"), layer(features, training=True)
    )
    assert float(nothing) == 0


@pytest.mark.parametrize("make_loss", LOSSES)
def test_batches_of_any_size(make_loss):
    check_any_size(random_layer(), random_layer(), make_loss())


@pytest.mark.parametrize("make_loss", LOSSES)
def test_diverged(make_loss):
    layer = random_layer()
    features, labels = examples(ROWS)
    features[:] = np.nan
    assert np.isnan(make_loss()(labels, layer(features, training=True)))


@pytest.mark.parametrize("make_loss", LOSSES)
def test_fit(make_loss, tmp_path):
    """In reduced precision, and then a batch of another size, with weights."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model, losses = fit(
            make_layer,
            make_loss(),
            optimizer=keras.optimizers.SGD(0.2),
            epochs=15,
            # Gradients of all losses are compared under XLA above.
            jit_compile=make_loss is sce_mix,
        )
    finally:
        keras.config.set_dtype_policy("float32")
    features, labels = examples()
    shares = counts() / counts().sum()
    unigram = -np.log(shares[labels]).mean()
    exact = model.evaluate(features, labels, verbose=0)
    # Far from what frequencies alone reach.
    assert exact < 0.5 * unigram
    assert losses[-1] < 0.5 * losses[0]
    model.run_eagerly = True
    model.fit(
        features[:13], labels[:13], sample_weight=np.arange(13.0), verbose=0
    )
    check_files(model, tmp_path / "model.keras")


@pytest.mark.parametrize("make_loss", LOSSES)
def test_tree(make_loss):
    """Vectors that are sums over paths of a tree."""
    tree = ClassTree.random(NUM_CLASSES, branching=3, seed=0)
    _, losses = fit(
        lambda: make_layer(selector=BeamTree(tree)),
        make_loss(),
        epochs=3,
        run_eagerly=True,
    )
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    "loss",
    [
        baselines.InBatchSoftmaxLoss(),
        # With all examples in each bucket, and all classes in each chunk: as
        # else those of a device are not those of all.
        baselines.SCELoss(2, 16, 5, mix=False),
        baselines.RECELoss(4, num_extra_chunks=3),
    ],
)
def test_two_devices(strategy, loss):
    kwargs = {"loss": loss, "jit_compile": False}
    one, one_losses = fit(make_layer, **kwargs)
    two, two_losses = fit(make_layer, scope=strategy.scope(), **kwargs)
    np.testing.assert_allclose(one_losses, two_losses, rtol=1e-5)
    for a, b in zip(one.weights, two.weights, strict=True):
        # Adam divides sums in another order by their size.
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-5)
    for weight in two.layers[-1].weights:
        replicas = strategy.experimental_local_results(weight.value)
        np.testing.assert_array_equal(*replicas)


@pytest.mark.parametrize("rows", [1, 4, 7, 30])
def test_even_chunks(rows):
    rng = np.random.default_rng(rows)
    codes = rng.integers(3, size=(rows, 2)).astype("int32")
    for count in (None, max(1, rows - 1)):
        known = rows if count is None else count
        chunks = EvenChunks(tf.constant(codes), 4, count)
        for of_round, each in enumerate(chunks.members.numpy()):
            order = np.argsort(codes[:, of_round], kind="stable")[:known]
            parts = [list(part[part >= 0]) for part in each]
            np.testing.assert_array_equal(np.concatenate(parts), order)
            sizes = [len(part) for part in parts]
            assert max(sizes) - min(sizes) <= 1
            for row in order:
                chunk = chunks.chunks[of_round, row]
                assert each[chunk, chunks.places[of_round, row]] == row


def test_bad_arguments():
    for make in (baselines.SCELoss, baselines.RECELoss):
        with pytest.raises(
            ValueError, match="`num_buckets` must be a positive"
        ):
            make(*[0, 1, 1])
    with pytest.raises(ValueError, match="`bucket_size_examples` must be"):
        baselines.SCELoss(1, 0, 1)
    with pytest.raises(ValueError, match="`bucket_size_classes` must be"):
        baselines.SCELoss(1, 1, 2.5)
    with pytest.raises(ValueError, match="`mix` must be True or False"):
        baselines.SCELoss(1, 1, 1, mix="yes")
    with pytest.raises(ValueError, match="`num_chunks` must be .* from 1 to 4"):
        baselines.RECELoss(4, 5)
    with pytest.raises(ValueError, match="`num_extra_chunks` must be"):
        baselines.RECELoss(4, num_extra_chunks=-1)
    with pytest.raises(ValueError, match="`num_rounds` must be a positive"):
        baselines.RECELoss(4, num_rounds=0)
    features, labels = examples(4)
    with pytest.raises(ValueError, match="`num_chunks` must be at most .* 12"):
        baselines.RECELoss(13)(labels, make_layer()(features, training=True))
    layer = make_layer(class_counts=None, name="titles")
    with pytest.raises(
        ValueError, match="with `class_counts`.*class_counts=None.*'titles'"
    ):
        in_batch()(labels, layer(features, training=True))
    layer = baselines.HierarchicalSoftmax(ClassTree.random(NUM_CLASSES, 3))
    outputs = layer(features, training=True)
    for make_loss in LOSSES:
        with pytest.raises(
            ValueError, match="output of a `keras_compembed.CANE"
        ):
            make_loss()(labels, outputs)
